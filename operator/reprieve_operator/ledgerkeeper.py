"""Writes what a replacement inherits to the owner's metadata, before the victim goes. Never its template."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reprieve_policy import keys, ledger
from reprieve_policy.eviction import Eviction
from reprieve_policy.objects import annotations_of, controller_of, labels_of
from reprieve_runtime.api import Api, ApiError
from reprieve_runtime.paths import object_path

from .effects import Effects
from .pods import Pod, VersionedMeta

_log = logging.getLogger(__name__)

_LABEL = "true"
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    metadata: VersionedMeta = field(default_factory=VersionedMeta)


class LedgerKeeper:
    """Records each eviction once, however often it is asked to."""

    def __init__(self, api: Api, effects: Effects) -> None:
        self._api = api
        self._effects = effects

    async def record(self, pod: Pod, state: Eviction, now: datetime) -> None:
        """Count the eviction on the pod's controller; one without, or of another kind, has no ledger.

        Raises `ApiError`; 409: somebody else changed the owner, try again.
        """
        reference = controller_of(pod.metadata)
        if reference is None or reference.kind not in ledger.OWNERS:
            return
        kind = ledger.OWNERS[reference.kind]
        if not reference.apiVersion.startswith(f"{kind.group}/"):
            return
        path = object_path(kind.resource, pod.metadata.namespace, reference.name)
        owner = await self._read(path)
        if owner is None or owner.metadata.uid != reference.uid:
            _log.info("owner is gone", extra={"pod": pod.metadata.key, "owner": reference.name})
            return
        text = annotations_of(owner.metadata).get(keys.LEDGER, "")
        before = ledger.parse(text)
        after = ledger.record(before, ledger.slot_of(pod.metadata, reference), state, pod.metadata, now)
        if after == before and keys.LEDGER in labels_of(owner.metadata):
            return
        changes = {"annotations": {keys.LEDGER: ledger.render(after)}, "labels": {keys.LEDGER: _LABEL}}
        await self._patch(path, owner.metadata, changes)

    async def _read(self, path: str) -> _Owner | None:
        try:
            return await self._api.get(path, _Owner)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def _patch(self, path: str, metadata: VersionedMeta, changes: Mapping[str, object]) -> None:
        try:
            await self._effects.patch_owner(path, metadata, changes)
        except ApiError as error:
            # Gone meanwhile: nobody will make a replacement.
            if error.status != _NOT_FOUND:
                raise

"""Writes what a replacement inherits to the owner's metadata, before the victim goes. Never its template."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reprieve_policy import keys, ledger, owners
from reprieve_policy.eviction import Eviction
from reprieve_policy.objects import OwnerReference, annotations_of, controller_of, labels_of
from reprieve_runtime import lineage
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
        if reference is None or owners.owner_of(reference) is None:
            return
        keeper = await self._find_keeper(pod, reference)
        row = owners.owner_of(keeper)
        assert row is not None
        path = object_path(row.resource, pod.metadata.namespace, keeper.name)
        owner = await self._read(path)
        if owner is None or owner.metadata.uid != keeper.uid:
            _log.info("owner is gone", extra={"pod": pod.metadata.key, "owner": keeper.name})
            return
        text = annotations_of(owner.metadata).get(keys.LEDGER, "")
        before = ledger.parse(text)
        slot = ledger.slot_of(pod.metadata, reference, keeper)
        after = ledger.record(before, slot, state, pod.metadata, now)
        if after == before and keys.LEDGER in labels_of(owner.metadata):
            return
        changes = {"annotations": {keys.LEDGER: ledger.render(after)}, "labels": {keys.LEDGER: _LABEL}}
        await self._patch(path, owner.metadata, changes)

    async def _find_keeper(self, pod: Pod, reference: OwnerReference) -> OwnerReference:
        """Return the pod's controller, or the whole that this is a part of."""

        async def look_up(resource: str, name: str) -> VersionedMeta | None:
            found = await self._read(object_path(resource, pod.metadata.namespace, name))
            return None if found is None else found.metadata

        return await lineage.find_whole(reference, look_up) or reference

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

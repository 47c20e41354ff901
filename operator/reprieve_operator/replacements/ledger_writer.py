"""Writes what a replacement inherits to the owner's metadata, before the victim goes. Never its template.

When a pod of the owner last saved is written with it, or by itself where nobody inherits anything.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from reprieve_operator.cluster.pods import VersionedMeta, VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.kube import owners, timestamp
from reprieve_policy.kube.objects import OwnerReference, annotations_of, controller_of, labels_of
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime import lineage
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

_log = logging.getLogger(__name__)

_LABEL = "true"
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    metadata: VersionedMeta = field(default_factory=VersionedMeta)


class _LedgerOwner(NamedTuple):
    """Who keeps the ledger of a pod, where, and in which slot."""

    path: str
    metadata: VersionedMeta
    slot: str


class LedgerWriter:
    """Records each eviction once, however often it is asked to."""

    def __init__(self, effects: Writes) -> None:
        self._effects = effects

    async def record(self, pod: VictimPod, state: Eviction, now: datetime) -> None:
        """Count the eviction on the pod's controller; one without, or of another kind, has no ledger.

        Raises `ApiError`; 409: somebody else changed the owner, try again.
        """
        owner = await self._find_owner(pod)
        if owner is None:
            return
        before = ledger.parse(annotations_of(owner.metadata).get(keys.LEDGER, ""))
        after = ledger.record(before, owner.slot, state, pod.metadata, now)
        if after == before and keys.LEDGER in labels_of(owner.metadata):
            return
        annotations = {
            keys.LEDGER: ledger.render(after),
            **_last_checkpoint_annotation(owner, ledger.last_saved_at(after)),
        }
        await self._patch(owner, {"annotations": annotations, "labels": {keys.LEDGER: _LABEL}})

    async def retract(self, pod: VictimPod, state: Eviction) -> None:
        """Take back what `record` has counted of a pod that stays after all; raises `ApiError` as that does."""
        owner = await self._find_owner(pod)
        if owner is None:
            return
        before = ledger.parse(annotations_of(owner.metadata).get(keys.LEDGER, ""))
        after = ledger.retract(before, owner.slot, state)
        if after != before:
            text, label = (ledger.render(after), _LABEL) if after else (None, None)
            await self._patch(
                owner, {"annotations": {keys.LEDGER: text}, "labels": {keys.LEDGER: label}}
            )

    async def publish_checkpoint(self, pod: VictimPod, saved_at: datetime) -> None:
        """Say on the owner when a pod has saved that is not counted; of one that is, `record` says so. Raises `ApiError` as that does."""
        owner = await self._find_owner(pod)
        news = {} if owner is None else _last_checkpoint_annotation(owner, saved_at)
        if owner is not None and news:
            await self._patch(owner, {"annotations": news})

    async def _find_owner(self, pod: VictimPod) -> _LedgerOwner | None:
        reference = controller_of(pod.metadata)
        if reference is None or owners.ledger_kind_of(reference) is None:
            return None
        keeper = await self._find_root_owner(pod, reference)
        row = owners.ledger_kind_of(keeper)
        assert row is not None
        path = object_path(row.resource, pod.metadata.namespace, keeper.name)
        owner = await self._effects.get(path, _Owner)
        if owner is None or owner.metadata.uid != keeper.uid:
            _log.info("owner is gone", extra={"pod": pod.metadata.key, "owner": keeper.name})
            return None
        return _LedgerOwner(path, owner.metadata, ledger.slot_of(pod.metadata, reference, keeper))

    async def _find_root_owner(self, pod: VictimPod, reference: OwnerReference) -> OwnerReference:
        """Return the pod's controller, or the whole that this is a part of."""

        async def look_up(resource: str, name: str) -> VersionedMeta | None:
            found = await self._effects.get(
                object_path(resource, pod.metadata.namespace, name), _Owner
            )
            return None if found is None else found.metadata

        return await lineage.find_root_owner(reference, look_up) or reference

    async def _patch(self, owner: _LedgerOwner, changes: Mapping[str, object]) -> None:
        try:
            await self._effects.patch_owner(owner.path, owner.metadata, changes)
        except ApiError as error:
            # Gone meanwhile: nobody will make a replacement.
            if error.status != _NOT_FOUND:
                raise


def _last_checkpoint_annotation(
    owner: _LedgerOwner, saved_at: datetime | None
) -> Mapping[str, str]:
    """Return what the owner says of it, where that is news: its pods need not go in the order in which they saved."""
    known = timestamp.parse(annotations_of(owner.metadata).get(keys.LAST_CHECKPOINT_AT))
    if saved_at is None or (known is not None and known >= saved_at):
        return {}
    return {keys.LAST_CHECKPOINT_AT: timestamp.render(saved_at)}

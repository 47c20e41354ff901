"""Writes the ledger for a victim's replacement to its owner's metadata, before the victim ends.

The owner's template is never changed. The time of the owner's last checkpoint is written with the
ledger, or alone if there will be no replacement.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from reprieve_operator.cluster.pods import VersionedObject, VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.kube import owners
from reprieve_policy.kube.objects import (
    OwnerReference,
    VersionedMeta,
    annotations_of,
    controller_of,
    labels_of,
)
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime import lineage
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

_log = logging.getLogger(__name__)

_LABEL = "true"


class _LedgerOwner(NamedTuple):
    """The object with a pod's ledger, its path, and the pod's slot in the ledger."""

    path: str
    metadata: VersionedMeta
    slot: str


class LedgerWriter:
    """Records each eviction once, even if `record` is called repeatedly."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes

    async def record(self, pod: VictimPod, state: Eviction, now: datetime) -> None:
        """Count the eviction on the pod's controller.

        A pod without a controller, or with one of an unsupported kind, has no ledger. Raises
        `ApiError`; 409: another client changed the owner, try again.
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
        """Undo `record` for a pod that stays after all; raises `ApiError` as `record` does."""
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
        """Write to the owner when a pod saved that is not counted; `record` does it for others.

        Raises `ApiError` as `record` does.
        """
        owner = await self._find_owner(pod)
        annotations = {} if owner is None else _last_checkpoint_annotation(owner, saved_at)
        if owner is not None and annotations:
            await self._patch(owner, {"annotations": annotations})

    async def _find_owner(self, pod: VictimPod) -> _LedgerOwner | None:
        reference = controller_of(pod.metadata)
        if reference is None or owners.ledger_kind_of(reference) is None:
            return None
        root = await self._find_root_owner(pod, reference)
        row = owners.ledger_kind_of(root)
        assert row is not None
        path = object_path(row.resource, pod.metadata.namespace, root.name)
        owner = await self._writes.get(path, VersionedObject)
        if owner is None or owner.metadata.uid != root.uid:
            _log.info("owner is gone", extra={"pod": pod.metadata.key, "owner": root.name})
            return None
        return _LedgerOwner(path, owner.metadata, ledger.slot_of(pod.metadata, reference, root))

    async def _find_root_owner(self, pod: VictimPod, reference: OwnerReference) -> OwnerReference:
        """Return the pod's controller, or the composite owner that the controller belongs to."""

        async def get_metadata(resource: str, name: str) -> VersionedMeta | None:
            found = await self._writes.get(
                object_path(resource, pod.metadata.namespace, name), VersionedObject
            )
            return None if found is None else found.metadata

        return await lineage.find_root_owner(reference, get_metadata) or reference

    async def _patch(self, owner: _LedgerOwner, changes: Mapping[str, object]) -> None:
        try:
            await self._writes.patch_owner(owner.path, owner.metadata, changes)
        except ApiError as error:
            # If the owner is gone, no controller makes a replacement.
            if not error.is_not_found:
                raise


def _last_checkpoint_annotation(
    owner: _LedgerOwner, saved_at: datetime | None
) -> Mapping[str, str]:
    """Return the annotation if the time is newer than the owner's.

    An owner's pods may end in another order than they saved.
    """
    known = timestamp.parse(annotations_of(owner.metadata).get(keys.LAST_CHECKPOINT_AT))
    if saved_at is None or (known is not None and known >= saved_at):
        return {}
    return {keys.LAST_CHECKPOINT_AT: timestamp.render(saved_at)}

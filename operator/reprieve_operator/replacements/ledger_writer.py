"""Writes the ledger for a victim's replacement to its owner's metadata, before the victim ends.

The owner's template is never changed. The time of the owner's last checkpoint is written with the
ledger, or alone if there will be no replacement.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from reprieve_operator.cluster.call_limiter import CallPriority
from reprieve_operator.cluster.pods import VersionedObject, VictimPod
from reprieve_operator.cluster.writes import Body, Writes
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
from reprieve_runtime.single_flight import SingleFlight

from .owner_batches import OwnerBatches

_log = logging.getLogger(__name__)

_LABEL = "true"
_ROOT_TTL_SECONDS = 1.0
"""How long the owner of a controller is known, for the other pods of that controller."""
_MAX_TRIES = 5
"""Writes of one batch. The owner's own controller, which counts the pods, may be faster."""


class _LedgerOwner(NamedTuple):
    """The object with the ledger of a pod's controller."""

    path: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _LedgerChange:
    """What one victim changes on the object with its ledger."""

    pod: VictimPod
    slot: str
    recorded: Eviction | None = None
    retracted: Eviction | None = None
    saved_at: datetime | None = None
    priority: CallPriority = CallPriority.TERMINATE


class LedgerWriter:
    """Records each eviction once, even if `record` is called repeatedly."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._roots: SingleFlight[tuple[str, OwnerReference], OwnerReference] = SingleFlight(
            _ROOT_TTL_SECONDS, limits=None
        )
        # A shared slot remembers so many evictions that are counted and not yet deleted.
        self._batches: OwnerBatches[_LedgerOwner, _LedgerChange] = OwnerBatches(
            self._write, ledger.MAX_IDS
        )

    async def record(self, pod: VictimPod, state: Eviction) -> None:
        """Count the eviction on the pod's controller.

        A pod without a controller, or with one of an unsupported kind, has no ledger. Raises
        `ApiError`; 409: other clients keep changing the owner, try again.
        """
        await self._change(pod, recorded=state, priority=self._writes.priority_of(state))

    async def retract(self, pod: VictimPod, state: Eviction) -> None:
        """Undo `record` for a pod that stays after all; raises `ApiError` as `record` does."""
        await self._change(pod, retracted=state)

    async def publish_checkpoint(self, pod: VictimPod, saved_at: datetime) -> None:
        """Write to the owner when a pod saved that is not counted; `record` does it for others.

        Raises `ApiError` as `record` does.
        """
        await self._change(pod, saved_at=saved_at)

    async def _change(
        self,
        pod: VictimPod,
        *,
        recorded: Eviction | None = None,
        retracted: Eviction | None = None,
        saved_at: datetime | None = None,
        priority: CallPriority = CallPriority.TERMINATE,
    ) -> None:
        reference = controller_of(pod.metadata)
        if reference is None or owners.ledger_kind_of(reference) is None:
            return
        root = await self._find_root_owner(pod, reference)
        row = owners.ledger_kind_of(root)
        assert row is not None
        owner = _LedgerOwner(object_path(row.resource, pod.metadata.namespace, root.name), root.uid)
        change = _LedgerChange(
            pod=pod,
            slot=ledger.slot_of(pod.metadata, reference, root),
            recorded=recorded,
            retracted=retracted,
            saved_at=saved_at,
            priority=priority,
        )
        await self._batches.apply(owner, change)

    async def _find_root_owner(self, pod: VictimPod, reference: OwnerReference) -> OwnerReference:
        """Return the pod's controller, or the composite owner that the controller belongs to."""

        async def get_metadata(resource: str, name: str) -> VersionedMeta | None:
            path = object_path(resource, pod.metadata.namespace, name)
            found = await self._writes.get(path, VersionedObject, CallPriority.TERMINATE)
            return None if found is None else found.metadata

        async def find() -> OwnerReference:
            return await lineage.find_root_owner(reference, get_metadata) or reference

        # Not by the uid alone: a pod of another tenant may name it as its owner's.
        return await self._roots.do((pod.metadata.namespace or "", reference), find)

    async def _write(self, owner: _LedgerOwner, changes: Sequence[_LedgerChange]) -> None:
        """Write the changes of several victims to their owner."""
        for tries_left in reversed(range(_MAX_TRIES)):
            try:
                await self._write_once(owner, changes)
            except ApiError as error:
                # If the owner is gone, no controller makes a replacement.
                if error.is_not_found:
                    return
                if not (error.is_conflict and tries_left):
                    raise
            else:
                return

    async def _write_once(self, owner: _LedgerOwner, changes: Sequence[_LedgerChange]) -> None:
        priority = min(change.priority for change in changes)
        found = await self._writes.get(owner.path, VersionedObject, priority)
        if found is None or found.metadata.uid != owner.uid:
            pod = changes[0].pod.metadata.key
            _log.info("owner is gone", extra={"pod": pod, "owner": owner.path})
            return
        body = self._changed_metadata(found.metadata, changes)
        if body:
            await self._writes.patch_owner(owner.path, found.metadata, body, priority)

    def _changed_metadata(self, metadata: VersionedMeta, changes: Sequence[_LedgerChange]) -> Body:
        """Return the labels and annotations to write; empty if nothing changes."""
        before = ledger.parse(annotations_of(metadata).get(keys.LEDGER, ""))
        records = [
            (change.slot, change.recorded, change.pod.metadata)
            for change in changes
            if change.recorded is not None
        ]
        recorded = ledger.record_all(before, records, self._writes.now())
        is_recorded = bool(records) and (
            recorded != before or keys.LEDGER not in labels_of(metadata)
        )
        after = recorded
        for change in changes:
            if change.retracted is not None:
                after = ledger.retract(after, change.slot, change.retracted)
        saved = [change.saved_at for change in changes]
        if is_recorded:
            saved.append(ledger.last_saved_at(recorded))
        annotations: Body = dict(_last_checkpoint_annotation(metadata, saved))
        body: Body = {"annotations": annotations} if annotations else {}
        if is_recorded or after != before:
            text, label = (ledger.render(after), _LABEL) if after else (None, None)
            body = {
                "annotations": {keys.LEDGER: text, **annotations},
                "labels": {keys.LEDGER: label},
            }
        return body


def _last_checkpoint_annotation(
    metadata: VersionedMeta, saved: Sequence[datetime | None]
) -> dict[str, str]:
    """Return the annotation if one of the times is newer than the owner's.

    An owner's pods may end in another order than they saved.
    """
    known = timestamp.parse(annotations_of(metadata).get(keys.LAST_CHECKPOINT_AT))
    last = max((moment for moment in saved if moment is not None), default=None)
    if last is None or (known is not None and known >= last):
        return {}
    return {keys.LAST_CHECKPOINT_AT: timestamp.render(last)}

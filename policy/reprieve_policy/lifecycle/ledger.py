"""What a replacement inherits. It is kept on the owner, because the victim's own object is deleted.

The operator writes the ledger to the owner's metadata (never its template) before the DELETE. The
webhook reads it when the owner's next pod is created. Each pod that can be told from its siblings
has a slot of its own: the completion index of a Job, the pod name of a StatefulSet. All other pods
of an owner share one slot. `kube.owners` decides which owner holds the ledger.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.kube.objects import (
    ObjectMeta,
    OwnerReference,
    annotations_of,
    is_of_kind,
    labels_of,
)
from reprieve_policy.kube.values import json_document, timestamp
from reprieve_policy.kube.values import text as texts

from .eviction import Checkpoint, Eviction

SHARED_SLOT = ""
MAX_BYTES = 128 * 1024
"""The most recent slots are kept, up to half of the 262,144 bytes that the API server allows for
all annotations of an object: about 500 slots of an ordinary size."""
_MAX_TEXT = 2 * MAX_BYTES
_MAX_COUNT = 2**31 - 1
MAX_IDS = 64
"""Evictions remembered in the shared slot: its pods that may at one time be counted but not yet
deleted."""
_INDEX = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One slot. `eviction_ids`, newest last, makes recording the same eviction twice harmless."""

    preempted_count: int
    first_submitted_at: datetime
    eviction_ids: tuple[str, ...]
    checkpoint: Checkpoint | None = None
    save_seconds: int | None = None
    """How long the last save took, from its request to its end; `None`: none was asked for."""


Ledger = Mapping[str, LedgerEntry]


def slot_of(metadata: ObjectMeta, owner: OwnerReference, holder: OwnerReference) -> str:
    """Return the slot of a pod of `owner` in the ledger of `holder`.

    `holder` is the owner, or the larger workload that the owner is a part of.
    """
    if is_of_kind(owner, "apps", "StatefulSet"):
        return metadata.name or SHARED_SLOT
    if is_of_kind(owner, "batch", "Job"):
        own = _completion_index(metadata)
        return own if holder == owner else f"{owner.name}/{own}"
    return SHARED_SLOT


def _completion_index(metadata: ObjectMeta) -> str:
    labelled = labels_of(metadata).get(keys.COMPLETION_INDEX, "")
    index = annotations_of(metadata).get(keys.COMPLETION_INDEX, labelled)
    return index if _INDEX.fullmatch(index) else SHARED_SLOT


def record(
    ledger: Ledger, slot: str, eviction: Eviction, metadata: ObjectMeta, now: datetime
) -> Ledger:
    """Return the ledger with this eviction counted once, however often it is recorded."""
    return record_all(ledger, [(slot, eviction, metadata)], now)


def record_all(
    ledger: Ledger, evictions: Iterable[tuple[str, Eviction, ObjectMeta]], now: datetime
) -> Ledger:
    """Return the ledger with each eviction counted once, in their order; each has its slot."""
    after = dict(ledger)
    for slot, eviction, metadata in evictions:
        before = after.get(slot)
        if before is None or eviction.eviction_id not in before.eviction_ids:
            # The most recent slots come last.
            after.pop(slot, None)
            after[slot] = _counted(before, slot, eviction, metadata, now)
    return ledger if after == ledger else _newest(after)


def _counted(
    before: LedgerEntry | None, slot: str, eviction: Eviction, metadata: ObjectMeta, now: datetime
) -> LedgerEntry:
    known = before.eviction_ids if before else ()
    return LedgerEntry(
        preempted_count=1 if before is None else min(before.preempted_count + 1, _MAX_COUNT),
        first_submitted_at=before.first_submitted_at if before else _submitted_at(metadata, now),
        # A slot of its own has one pod at a time, so one id is enough.
        eviction_ids=(*known, eviction.eviction_id)[-(MAX_IDS if _is_shared(slot) else 1) :],
        checkpoint=_last_saved(slot, before.checkpoint if before else None, eviction.checkpoint),
        save_seconds=_save_seconds(eviction) or (before.save_seconds if before else None),
    )


def _last_saved(slot: str, before: Checkpoint | None, now: Checkpoint | None) -> Checkpoint | None:
    """Return the checkpoint that was saved last; an eviction without one keeps the one before.

    Pods that share a slot need not leave in the order in which they saved, so their times are
    compared. A slot with one pod at a time needs no clock.
    """
    if before is None or now is None:
        return now or before
    if not _is_shared(slot):
        return now
    return max(before, now, key=lambda checkpoint: checkpoint.saved_at)


def _save_seconds(eviction: Eviction) -> int | None:
    """Return how long the save took, rounded up, at least 1; `None` if the pod saved nothing.

    The workload's clock says when it ended, so it may seem to end before it began.
    """
    if eviction.checkpoint is None or eviction.hinted_at is None:
        return None
    took = math.ceil((eviction.checkpoint.saved_at - eviction.hinted_at).total_seconds())
    return min(max(1, took), _MAX_COUNT)


def retract(ledger: Ledger, slot: str, eviction: Eviction) -> Ledger:
    """Return the ledger without this eviction, whose mark was removed after it was counted."""
    before = ledger.get(slot)
    if before is None or eviction.eviction_id not in before.eviction_ids:
        return ledger
    others = {name: entry for name, entry in ledger.items() if name != slot}
    if before.preempted_count == 1:
        return others
    known = tuple(name for name in before.eviction_ids if name != eviction.eviction_id)
    return others | {
        slot: replace(before, preempted_count=before.preempted_count - 1, eviction_ids=known)
    }


def last_saved_at(ledger: Ledger) -> datetime | None:
    """Return when a pod of the owner last saved a checkpoint, as far as the ledger knows."""
    return max(
        (entry.checkpoint.saved_at for entry in ledger.values() if entry.checkpoint), default=None
    )


def render(ledger: Ledger) -> str:
    """Return the ledger as compact JSON."""
    slots = {slot: _to_document(entry) for slot, entry in ledger.items()}
    return json.dumps({"v": 1, "slots": slots}, separators=(",", ":"), ensure_ascii=False)


def parse(text: str) -> Ledger:
    """Read a ledger. An unreadable slot is left out, so that one bad edit loses no other count."""
    document = json_document.read(text, _MAX_TEXT)
    slots = document.get("slots") if isinstance(document, dict) else None
    if not isinstance(slots, dict):
        return {}
    entries = {slot: _from_document(value) for slot, value in slots.items() if texts.is_clean(slot)}
    return {slot: entry for slot, entry in entries.items() if entry is not None}


def _is_shared(slot: str) -> bool:
    return slot == SHARED_SLOT or slot.endswith("/")


def _newest(ledger: Ledger) -> Ledger:
    kept: dict[str, LedgerEntry] = {}
    size = 0
    for slot, entry in reversed(list(ledger.items())):
        size += len(render({slot: entry}).encode())
        if size <= MAX_BYTES:
            kept[slot] = entry
    return dict(reversed(list(kept.items())))


def _submitted_at(metadata: ObjectMeta, now: datetime) -> datetime:
    inherited = timestamp.parse(annotations_of(metadata).get(keys.FIRST_SUBMITTED_AT))
    return inherited or timestamp.parse(metadata.creationTimestamp) or now


def _to_document(entry: LedgerEntry) -> dict[str, object]:
    document: dict[str, object] = {
        "count": entry.preempted_count,
        "first": timestamp.render(entry.first_submitted_at),
        "ids": entry.eviction_ids,
    }
    if entry.checkpoint is not None:
        saved = entry.checkpoint
        document["saved"] = {
            "at": timestamp.render(saved.saved_at),
            "step": saved.step,
            "path": saved.path,
        }
    if entry.save_seconds is not None:
        document["took"] = entry.save_seconds
    return document


def _from_document(value: object) -> LedgerEntry | None:
    if not isinstance(value, dict):
        return None
    count, first, ids = value.get("count"), timestamp.parse(value.get("first")), value.get("ids")
    took = value.get("took")
    if not json_document.is_whole_number(count, 1, _MAX_COUNT) or first is None:
        return None
    return LedgerEntry(
        preempted_count=count,
        first_submitted_at=first,
        eviction_ids=_ids_from(ids),
        checkpoint=_checkpoint_from(value.get("saved")),
        save_seconds=took if json_document.is_whole_number(took, 1, _MAX_COUNT) else None,
    )


def _ids_from(value: object) -> tuple[str, ...]:
    ids = value if isinstance(value, list) else []
    return tuple(known for known in ids if isinstance(known, str) and texts.is_clean(known))[
        -MAX_IDS:
    ]


def _checkpoint_from(value: object) -> Checkpoint | None:
    if not isinstance(value, dict):
        return None
    saved_at, step, path = timestamp.parse(value.get("at")), value.get("step"), value.get("path")
    if saved_at is None:
        return None
    return Checkpoint(
        saved_at=saved_at,
        step=step if isinstance(step, int) and not isinstance(step, bool) else None,
        path=path if isinstance(path, str) and texts.is_clean(path) else None,
    )

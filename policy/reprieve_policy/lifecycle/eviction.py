"""The whole state of one soft eviction, as the pod carries it in the annotation `reprieve.dev/eviction`.

Compact JSON, well below 4096 bytes: containerd refuses container labels above that, and it copies pod annotations into
them. Deadlines are absolute, so that an operator that was killed at any instant resumes exactly.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from reprieve_policy.kube import text as texts
from reprieve_policy.kube import timestamp

MAX_ANNOTATION = 4096
"""Bytes. `render` stays well below: every text in the state is bounded where it enters."""
_REMEMBERED = 256
"""States read last: each is asked for some three times in a row."""


class Phase(StrEnum):
    """Where a victim is. Each is also a value of the label `reprieve.dev/soft-eviction`, so that `-l` and `-L` work."""

    REQUESTED = "requested"
    REPRIEVED = "reprieved"
    HINTED = "hinted"
    CHECKPOINTING = "checkpointing"
    EXTENDED = "extended"
    DEFERRED = "deferred"
    SETTLED = "settled"
    SAVED = "saved"
    TERMINATING = "terminating"
    GONE = "gone"
    REQUEUED = "requeued"
    CANCELLED = "cancelled"
    SPARED = "spared"
    FINISHED = "finished"


AWAITING_WORKLOAD = (Phase.HINTED, Phase.CHECKPOINTING, Phase.EXTENDED, Phase.DEFERRED)
"""The workload was told and may answer."""

WITH_DEADLINE = (*AWAITING_WORKLOAD, Phase.REPRIEVED, Phase.SETTLED, Phase.SAVED)
"""The state has a deadline, at which something follows."""


class CheckpointOutcome(StrEnum):
    """How the checkpoint ended: what the failure metric and the ledger go by."""

    SAVED = "saved"
    SKIPPED = "skipped"
    UNRESPONSIVE = "unresponsive"
    TIMED_OUT = "timed-out"
    REFUSED = "refused"
    OVERTAKEN = "overtaken"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    SPARED = "spared"
    HELD_BY_BUDGET = "held-by-budget"

    @property
    def is_failure(self) -> bool:
        """True where work was lost that a checkpoint should have kept."""
        return self in (
            CheckpointOutcome.UNRESPONSIVE,
            CheckpointOutcome.TIMED_OUT,
            CheckpointOutcome.REFUSED,
        )


class Source(StrEnum):
    """Which dialect asked: taking that mark away takes the eviction back."""

    LABEL = "label"
    KOORDINATOR = "koordinator"
    EVICTION_REQUEST = "eviction-request"
    """A native Eviction (`native_eviction`), of which Reprieve is a responder: a drain-like request, which as a drain's evicts and
    never deletes."""
    GANG = "gang"
    """Another pod of its gang was asked to go, and they go as a whole."""

    @property
    def is_preemption(self) -> bool:
        """True where a scheduler asks: it may be refused. Our label is a person's or a drain's, and is honoured."""
        return self is Source.KOORDINATOR


class PreemptionCause(StrEnum):
    """What preempts the pod: document 001's three triggers, and one for whoever is no scheduler."""

    PRIORITY = "priority"
    RECLAIM = "reclaim"
    SENSITIVE = "sensitive"
    REQUEST = "request"


class Device(StrEnum):
    """What a pod's work is counted in."""

    GPU = "gpu"
    CPU = "cpu"


class ProtectionReason(StrEnum):
    """On what a preemption was refused."""

    NON_PREEMPTIBLE = "non-preemptible"
    NEAR_COMPLETION = "near-completion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a workload has saved."""

    saved_at: datetime
    step: int | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCost:
    """What it costs to preempt the pod, as it was when it was asked for; see `cost`."""

    hours: float
    device: Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """One soft eviction of one pod. Times are aware UTC."""

    eviction_id: str
    phase: Phase
    requested_at: datetime
    source: Source = Source.LABEL
    initiator: str = ""
    reason: str = ""
    mark_grace_seconds: int | None = None
    attempt: int = 0
    hinted_at: datetime | None = None
    answered_at: datetime | None = None
    deadline: datetime | None = None
    checkpoint: Checkpoint | None = None
    outcome: CheckpointOutcome | None = None
    grace_seconds: int | None = None
    cause: PreemptionCause | None = None
    cost: RecordedCost | None = None
    refused_on: ProtectionReason | None = None
    """Set once the pod was reprieved or spared, and kept: nobody is reprieved twice."""
    gang: str = ""
    """The gang that goes as a whole with this pod (`disruption.identity_of`); empty for one that goes alone."""
    decision_id: str = ""
    """The id of the eviction that began the gang's."""
    request_uid: str = ""
    """Of the native Eviction that asked, for this one or for one before that was taken back; empty where none ever did."""
    must_evict: bool = False
    """Asked for through the Eviction API, or by an EvictionRequest: it is ended by an eviction and nothing else."""
    held_since: datetime | None = None
    """When a budget had held it until its ceiling, in an eviction that this one follows closely (`ending.follow_on`)."""


def render(eviction: Eviction) -> str:
    """Return the state as compact JSON; fields that say nothing are left out."""
    document = {
        _JSON_NAMES[field.name]: _plain(getattr(eviction, field.name))
        for field in fields(Eviction)
        if getattr(eviction, field.name) != field.default
    }
    return json.dumps({"v": 1, **document}, separators=(",", ":"), ensure_ascii=False)


@lru_cache(_REMEMBERED)
def parse(text: str) -> Eviction | None:
    """Return the state, `None` where the text is not one: it is then as if the pod had none."""
    if len(text) > MAX_ANNOTATION:
        return None
    try:
        document = json.loads(text)
        return (
            _from_document(document)
            if isinstance(document, dict) and document.get("v") == 1
            else None
        )
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None


def _from_document(document: Mapping[str, object]) -> Eviction:
    known = {name: document[short] for name, short in _JSON_NAMES.items() if short in document}
    values = {name: _READERS[name](value) for name, value in known.items()}
    eviction = Eviction(**values)  # type: ignore[arg-type]  # each reader returns its field's type or raises
    if eviction.deadline is None and eviction.phase in WITH_DEADLINE:
        raise ValueError("waits for ever")
    return eviction


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return timestamp.render(value)
    if isinstance(value, Checkpoint):
        saved = {"at": timestamp.render(value.saved_at), "step": value.step, "path": value.path}
        return {key: part for key, part in saved.items() if part is not None}
    if isinstance(value, RecordedCost):
        return {f"{value.device}Hours": value.hours}
    return value


def _read_text(value: object) -> str:
    if not isinstance(value, str) or not texts.is_clean(value):
        raise TypeError("not a text that `render` wrote")
    return value


def _read_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not a flag")
    return value


def _read_count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError("not a count")
    return value


def _read_moment(value: object) -> datetime:
    moment = timestamp.parse(_read_text(value))
    if moment is None:
        raise ValueError("not a timestamp")
    return moment


def _read_checkpoint(value: object) -> Checkpoint:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    step, path = value.get("step"), value.get("path")
    return Checkpoint(
        saved_at=_read_moment(value["at"]),
        step=None if step is None else _read_count(step),
        path=None if path is None else _read_text(path),
    )


def _read_cost(value: object) -> RecordedCost:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    device = Device.GPU if f"{Device.GPU}Hours" in value else Device.CPU
    hours = value[f"{device}Hours"]
    if not isinstance(hours, int | float) or isinstance(hours, bool) or not 0 <= hours < math.inf:
        raise TypeError("not a number of hours")
    return RecordedCost(hours=float(hours), device=device)


_JSON_NAMES = {
    "eviction_id": "id",
    "phase": "phase",
    "requested_at": "requestedAt",
    "source": "source",
    "initiator": "initiator",
    "reason": "reason",
    "mark_grace_seconds": "markGraceSeconds",
    "attempt": "attempt",
    "hinted_at": "hintedAt",
    "answered_at": "answeredAt",
    "deadline": "deadline",
    "checkpoint": "checkpoint",
    "outcome": "outcome",
    "grace_seconds": "graceSeconds",
    "cause": "cause",
    "cost": "cost",
    "refused_on": "refusedOn",
    "gang": "gang",
    "decision_id": "decision",
    "request_uid": "request",
    "must_evict": "mustEvict",
    "held_since": "heldSince",
}

_READERS: Mapping[str, Callable[[object], object]] = {
    "eviction_id": _read_text,
    "phase": lambda value: Phase(_read_text(value)),
    "requested_at": _read_moment,
    "source": lambda value: Source(_read_text(value)),
    "initiator": _read_text,
    "reason": _read_text,
    "mark_grace_seconds": _read_count,
    "attempt": _read_count,
    "hinted_at": _read_moment,
    "answered_at": _read_moment,
    "deadline": _read_moment,
    "checkpoint": _read_checkpoint,
    "outcome": lambda value: CheckpointOutcome(_read_text(value)),
    "grace_seconds": _read_count,
    "cause": lambda value: PreemptionCause(_read_text(value)),
    "cost": _read_cost,
    "refused_on": lambda value: ProtectionReason(_read_text(value)),
    "gang": _read_text,
    "decision_id": _read_text,
    "request_uid": _read_text,
    "must_evict": _read_flag,
    "held_since": _read_moment,
}

"""The state of one soft eviction, which the pod carries in the annotation `reprieve.dev/eviction`.

Compact JSON, well below 4096 bytes: containerd refuses longer container labels, and copies pod
annotations into them. Deadlines are absolute, so that an operator that was killed at any moment
resumes exactly.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from reprieve_policy.kube.values import json_document, timestamp
from reprieve_policy.kube.values import text as texts

MAX_ANNOTATION = 4096
"""Bytes. `render` stays well below, because every text is bounded when it enters the state."""
_REMEMBERED = 256
"""States that were parsed last and are cached. Each is needed about three times in a row."""


class Phase(StrEnum):
    """The phase of a victim, and a value of the label `reprieve.dev/soft-eviction`.

    As a label's values, phases can be selected with `-l` and shown with `-L`.
    """

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
"""Phases in which the workload has been notified and may answer."""

WITH_DEADLINE = (*AWAITING_WORKLOAD, Phase.REPRIEVED, Phase.SETTLED, Phase.SAVED)
"""Phases with a deadline, at which the phase changes."""


class CheckpointOutcome(StrEnum):
    """How the checkpoint ended; the failure metric and the ledger depend on it."""

    SAVED = "saved"
    SKIPPED = "skipped"
    LOSES_LESS = "loses-less"
    """It was not asked: by ending at once it loses less than by a save."""
    ON_SIGTERM = "on-sigterm"
    """The workload saves when SIGTERM ends it. Whether it did cannot be known."""
    UNRESPONSIVE = "unresponsive"
    TIMED_OUT = "timed-out"
    REFUSED = "refused"
    OVERTAKEN = "overtaken"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    SPARED = "spared"
    HELD_BY_BUDGET = "held-by-budget"
    NOT_NEEDED = "not-needed"
    """Its preemptor no longer needs its room."""

    @property
    def is_failure(self) -> bool:
        """True if work was lost that a checkpoint should have kept."""
        return self in (
            CheckpointOutcome.UNRESPONSIVE,
            CheckpointOutcome.TIMED_OUT,
            CheckpointOutcome.REFUSED,
        )


class Source(StrEnum):
    """The dialect of the mark that asked. Removing that mark takes the eviction back."""

    LABEL = "label"
    KOORDINATOR = "koordinator"
    GANG = "gang"
    """Another pod of the gang was asked to leave, and the gang is evicted as a unit."""

    @property
    def is_preemption(self) -> bool:
        """True if a scheduler asks, which may be refused.

        Our own label is set by a person or a drain, and is honoured.
        """
        return self is Source.KOORDINATOR


class PreemptionCause(StrEnum):
    """The cause: one of document 001's three triggers, or a request that is not a scheduler's."""

    PRIORITY = "priority"
    RECLAIM = "reclaim"
    SENSITIVE = "sensitive"
    REQUEST = "request"


class Device(StrEnum):
    """The unit in which a pod's work is counted."""

    GPU = "gpu"
    CPU = "cpu"


class ProtectionReason(StrEnum):
    """Why a preemption was refused."""

    NON_PREEMPTIBLE = "non-preemptible"
    NEAR_COMPLETION = "near-completion"


class Protection(NamedTuple):
    """A preemption is refused until then; `None`: for as long as the pod lives."""

    reason: ProtectionReason
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The checkpoint that a workload has saved."""

    saved_at: datetime
    step: int | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCost:
    """The cost of preempting the pod at the time of the request; see `preemption.cost`."""

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
    """Set when the pod is reprieved or spared, and kept, so that no pod is reprieved twice."""
    gang: str = ""
    """The gang that is evicted as a unit with this pod (`disruption.identity_of`); empty: none."""
    decision_id: str = ""
    """The id of the eviction with which the gang's began."""
    must_evict: bool = False
    """The Eviction API asked for it: the pod is evicted, never deleted."""
    held_since: datetime | None = None
    """When a budget had held an earlier eviction until its ceiling, if this one follows it closely
    (`termination.carry_over_budget_hold`)."""
    cleaners_until: datetime | None = None
    """Until when a victim that is ready waits for its cleaners before SIGTERM (`cleanup`); `None`:
    it waits for none."""


def render(eviction: Eviction) -> str:
    """Return the state as compact JSON, without the fields that have their default."""
    document = {
        _JSON_NAMES[field.name]: _plain(getattr(eviction, field.name))
        for field in fields(Eviction)
        if getattr(eviction, field.name) != field.default
    }
    return json.dumps({"v": 1, **document}, separators=(",", ":"), ensure_ascii=False)


def shortened(eviction: Eviction) -> Eviction:
    """Return an ended eviction with only what the next one of the pod depends on.

    For a pod whose annotations are full. It is shorter than what the pod carried before: without
    this, the pod's owner could have the record of a budget's hold removed.
    """
    return Eviction(
        eviction_id=eviction.eviction_id,
        phase=eviction.phase,
        requested_at=eviction.requested_at,
        outcome=eviction.outcome,
        held_since=eviction.held_since,
    )


def parse(text: str) -> Eviction | None:
    """Return the state, `None` if the text is not one. The pod then counts as having no state."""
    return _parse(text) if len(text) <= MAX_ANNOTATION else None


@lru_cache(_REMEMBERED)
def _parse(text: str) -> Eviction | None:
    document = json_document.read(text, MAX_ANNOTATION)
    try:
        return (
            _from_document(document)
            if isinstance(document, dict) and document.get("v") == 1
            else None
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _from_document(document: Mapping[str, object]) -> Eviction:
    present = {name: document[short] for name, short in _JSON_NAMES.items() if short in document}
    values = {name: _READERS[name](value) for name, value in present.items()}
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
    "must_evict": "mustEvict",
    "held_since": "heldSince",
    "cleaners_until": "cleanersUntil",
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
    "must_evict": _read_flag,
    "held_since": _read_moment,
    "cleaners_until": _read_moment,
}

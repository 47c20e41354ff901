"""A victim's life as a table: (phase x observation) -> move, and the words that it is told in. `life` walks it.

The README draws `TABLE`; a test compares their phases.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from .eviction import CheckpointOutcome, Phase


class Observation(Enum):
    """What can happen to a victim, as far as its life depends on it."""

    PROTECTED = auto()
    PROTECTED_FOR_NOW = auto()
    PROTECTION_OVER = auto()
    REQUESTED_AGAIN = auto()
    CHECKPOINT_WANTED = auto()
    CHECKPOINT_UNWANTED = auto()
    HINT_LOST = auto()
    REQUEST_FORGOTTEN = auto()
    ANSWERED = auto()
    SAVED = auto()
    DEFERRED = auto()
    CANNOT = auto()
    DEADLINE_UNANSWERED = auto()
    DEADLINE_ANSWERED = auto()
    RELEASED = auto()
    HELD_BY_BUDGET = auto()
    MARK_REMOVED = auto()
    DELETED_BY_OTHERS = auto()
    CONTAINERS_ENDED = auto()
    OBJECT_GONE = auto()
    REPLACED = auto()


class Transition(NamedTuple):
    """Where an observation leads, and with which outcome where it settles one."""

    to: Phase
    outcome: CheckpointOutcome | None = None
    resends_hint: bool = False
    """The workload is asked anew, and nothing else changes: neither the phase nor its deadline."""


TERMINAL = (Phase.GONE, Phase.REQUEUED, Phase.CANCELLED, Phase.SPARED, Phase.FINISHED)

_ALWAYS: dict[Observation, Transition] = {
    Observation.MARK_REMOVED: Transition(Phase.CANCELLED, CheckpointOutcome.CANCELLED),
    Observation.DELETED_BY_OTHERS: Transition(Phase.TERMINATING, CheckpointOutcome.OVERTAKEN),
    Observation.CONTAINERS_ENDED: Transition(Phase.FINISHED, CheckpointOutcome.FINISHED),
    Observation.OBJECT_GONE: Transition(Phase.GONE, CheckpointOutcome.OVERTAKEN),
}
"""True in every phase before the DELETE."""

_ANSWERS: dict[Observation, Transition] = {
    Observation.SAVED: Transition(Phase.SAVED, CheckpointOutcome.SAVED),
    Observation.CANNOT: Transition(Phase.SETTLED, CheckpointOutcome.REFUSED),
}
"""True in every phase that waits for the workload."""

TABLE: Mapping[Phase, Mapping[Observation, Transition]] = {
    Phase.REQUESTED: _ALWAYS
    | {
        Observation.PROTECTED: Transition(Phase.SPARED, CheckpointOutcome.SPARED),
        Observation.PROTECTED_FOR_NOW: Transition(Phase.REPRIEVED),
        Observation.CHECKPOINT_WANTED: Transition(Phase.HINTED),
        Observation.CHECKPOINT_UNWANTED: Transition(Phase.SETTLED, CheckpointOutcome.SKIPPED),
    },
    Phase.REPRIEVED: _ALWAYS
    | {
        Observation.PROTECTION_OVER: Transition(Phase.REQUESTED),
        # Only a preemption is refused: somebody who wants the pod gone may ask for it all the same.
        Observation.REQUESTED_AGAIN: Transition(Phase.REQUESTED),
    },
    Phase.HINTED: _ALWAYS
    | _ANSWERS
    | {
        Observation.HINT_LOST: Transition(Phase.HINTED),
        Observation.ANSWERED: Transition(Phase.CHECKPOINTING),
        Observation.DEFERRED: Transition(Phase.DEFERRED),
        Observation.DEADLINE_UNANSWERED: Transition(Phase.SETTLED, CheckpointOutcome.UNRESPONSIVE),
    },
    Phase.CHECKPOINTING: _ALWAYS
    | _ANSWERS
    | {
        # Back to `hinted`, it could be given more time twice.
        Observation.REQUEST_FORGOTTEN: Transition(Phase.CHECKPOINTING, resends_hint=True),
        Observation.DEFERRED: Transition(Phase.DEFERRED),
        Observation.DEADLINE_ANSWERED: Transition(Phase.EXTENDED),
    },
    Phase.EXTENDED: _ALWAYS
    | _ANSWERS
    | {
        Observation.REQUEST_FORGOTTEN: Transition(Phase.EXTENDED, resends_hint=True),
        Observation.DEADLINE_ANSWERED: Transition(Phase.SETTLED, CheckpointOutcome.TIMED_OUT),
    },
    Phase.DEFERRED: _ALWAYS
    | _ANSWERS
    | {
        Observation.REQUEST_FORGOTTEN: Transition(Phase.DEFERRED, resends_hint=True),
        Observation.DEADLINE_ANSWERED: Transition(Phase.SETTLED, CheckpointOutcome.TIMED_OUT),
    },
    # Nothing more is to be heard of it; it waits for the rest of its gang. One that goes alone is released as it enters.
    Phase.SETTLED: _ALWAYS | {Observation.RELEASED: Transition(Phase.TERMINATING)},
    Phase.SAVED: _ALWAYS
    | {
        Observation.RELEASED: Transition(Phase.TERMINATING, CheckpointOutcome.SAVED),
        # Whoever ends it, the checkpoint was made.
        Observation.DELETED_BY_OTHERS: Transition(Phase.TERMINATING, CheckpointOutcome.SAVED),
        Observation.CONTAINERS_ENDED: Transition(Phase.FINISHED, CheckpointOutcome.SAVED),
        Observation.OBJECT_GONE: Transition(Phase.GONE, CheckpointOutcome.SAVED),
    },
    # Before the DELETE is out, something may still hold it up: a disruption budget, say.
    Phase.TERMINATING: {
        Observation.OBJECT_GONE: Transition(Phase.GONE),
        Observation.MARK_REMOVED: Transition(Phase.CANCELLED, CheckpointOutcome.CANCELLED),
        Observation.CONTAINERS_ENDED: Transition(Phase.FINISHED),
        # What may only be evicted is not deleted at the ceiling: it stays, and its workload goes on.
        Observation.HELD_BY_BUDGET: Transition(Phase.CANCELLED, CheckpointOutcome.HELD_BY_BUDGET),
    },
    Phase.GONE: {Observation.REPLACED: Transition(Phase.REQUEUED)},
    Phase.REQUEUED: {},
    Phase.CANCELLED: {},
    Phase.SPARED: {},
    Phase.FINISHED: {},
}

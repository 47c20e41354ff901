"""A victim's life as a table: (phase x observation) -> move, and the words that it is told in. `life` walks it.

The README draws `TABLE`; a test compares their phases.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from .eviction import Outcome, Phase


class Observation(Enum):
    """What can happen to a victim, as far as its life depends on it."""

    PROTECTED = auto()
    PROTECTED_FOR_NOW = auto()
    PROTECTION_OVER = auto()
    INSISTED = auto()
    CHECKPOINT_WANTED = auto()
    CHECKPOINT_UNWANTED = auto()
    HINT_LOST = auto()
    FORGOTTEN = auto()
    ANSWERED = auto()
    SAVED = auto()
    DEFERRED = auto()
    CANNOT = auto()
    DEADLINE_UNANSWERED = auto()
    DEADLINE_ANSWERED = auto()
    RELEASED = auto()
    HELD = auto()
    MARK_REMOVED = auto()
    DELETED_BY_OTHERS = auto()
    CONTAINERS_ENDED = auto()
    OBJECT_GONE = auto()
    REPLACED = auto()


class Move(NamedTuple):
    """Where an observation leads, and with which outcome where it settles one."""

    to: Phase
    outcome: Outcome | None = None
    asks_again: bool = False
    """The workload is asked anew, and nothing else changes: neither the phase nor its deadline."""


TERMINAL = (Phase.GONE, Phase.REQUEUED, Phase.CANCELLED, Phase.SPARED, Phase.FINISHED)

_ALWAYS: dict[Observation, Move] = {
    Observation.MARK_REMOVED: Move(Phase.CANCELLED, Outcome.CANCELLED),
    Observation.DELETED_BY_OTHERS: Move(Phase.TERMINATING, Outcome.OVERTAKEN),
    Observation.CONTAINERS_ENDED: Move(Phase.FINISHED, Outcome.FINISHED),
    Observation.OBJECT_GONE: Move(Phase.GONE, Outcome.OVERTAKEN),
}
"""True in every phase before the DELETE."""

_ANSWERS: dict[Observation, Move] = {
    Observation.SAVED: Move(Phase.SAVED, Outcome.SAVED),
    Observation.CANNOT: Move(Phase.SETTLED, Outcome.REFUSED),
}
"""True in every phase that waits for the workload."""

TABLE: Mapping[Phase, Mapping[Observation, Move]] = {
    Phase.REQUESTED: _ALWAYS
    | {
        Observation.PROTECTED: Move(Phase.SPARED, Outcome.SPARED),
        Observation.PROTECTED_FOR_NOW: Move(Phase.REPRIEVED),
        Observation.CHECKPOINT_WANTED: Move(Phase.HINTED),
        Observation.CHECKPOINT_UNWANTED: Move(Phase.SETTLED, Outcome.SKIPPED),
    },
    Phase.REPRIEVED: _ALWAYS
    | {
        Observation.PROTECTION_OVER: Move(Phase.REQUESTED),
        # Only a preemption is refused: somebody who wants the pod gone may ask for it all the same.
        Observation.INSISTED: Move(Phase.REQUESTED),
    },
    Phase.HINTED: _ALWAYS
    | _ANSWERS
    | {
        Observation.HINT_LOST: Move(Phase.HINTED),
        Observation.ANSWERED: Move(Phase.CHECKPOINTING),
        Observation.DEFERRED: Move(Phase.DEFERRED),
        Observation.DEADLINE_UNANSWERED: Move(Phase.SETTLED, Outcome.UNRESPONSIVE),
    },
    Phase.CHECKPOINTING: _ALWAYS
    | _ANSWERS
    | {
        # Back to `hinted`, it could be given more time twice.
        Observation.FORGOTTEN: Move(Phase.CHECKPOINTING, asks_again=True),
        Observation.DEFERRED: Move(Phase.DEFERRED),
        Observation.DEADLINE_ANSWERED: Move(Phase.EXTENDED),
    },
    Phase.EXTENDED: _ALWAYS
    | _ANSWERS
    | {
        Observation.FORGOTTEN: Move(Phase.EXTENDED, asks_again=True),
        Observation.DEADLINE_ANSWERED: Move(Phase.SETTLED, Outcome.TIMED_OUT),
    },
    Phase.DEFERRED: _ALWAYS
    | _ANSWERS
    | {
        Observation.FORGOTTEN: Move(Phase.DEFERRED, asks_again=True),
        Observation.DEADLINE_ANSWERED: Move(Phase.SETTLED, Outcome.TIMED_OUT),
    },
    # Nothing more is to be heard of it; it waits for the rest of its gang. One that goes alone is released as it enters.
    Phase.SETTLED: _ALWAYS | {Observation.RELEASED: Move(Phase.TERMINATING)},
    Phase.SAVED: _ALWAYS
    | {
        Observation.RELEASED: Move(Phase.TERMINATING, Outcome.SAVED),
        # Whoever ends it, the checkpoint was made.
        Observation.DELETED_BY_OTHERS: Move(Phase.TERMINATING, Outcome.SAVED),
        Observation.CONTAINERS_ENDED: Move(Phase.FINISHED, Outcome.SAVED),
        Observation.OBJECT_GONE: Move(Phase.GONE, Outcome.SAVED),
    },
    # Before the DELETE is out, something may still hold it up: a disruption budget, say.
    Phase.TERMINATING: {
        Observation.OBJECT_GONE: Move(Phase.GONE),
        Observation.MARK_REMOVED: Move(Phase.CANCELLED, Outcome.CANCELLED),
        Observation.CONTAINERS_ENDED: Move(Phase.FINISHED),
        # What may only be evicted is not deleted at the ceiling: it stays, and its workload goes on.
        Observation.HELD: Move(Phase.CANCELLED, Outcome.HELD_BY_BUDGET),
    },
    Phase.GONE: {Observation.REPLACED: Move(Phase.REQUEUED)},
    Phase.REQUEUED: {},
    Phase.CANCELLED: {},
    Phase.SPARED: {},
    Phase.FINISHED: {},
}

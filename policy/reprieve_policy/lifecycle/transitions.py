"""A victim's life as a table: (phase x observation) -> transition. `machine` walks it.

The docs draw `TABLE`; a test compares their phases.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from .eviction import CheckpointOutcome, Phase


class Observation(Enum):
    """What can happen to a victim, as far as its phase depends on it."""

    PROTECTED = auto()
    PROTECTED_FOR_NOW = auto()
    PROTECTION_OVER = auto()
    REQUESTED_AGAIN = auto()
    CHECKPOINT_WANTED = auto()
    CHECKPOINT_UNWANTED = auto()
    CHECKPOINT_LOSES_MORE = auto()
    CHECKPOINT_ON_SIGTERM = auto()
    HINT_LOST = auto()
    REQUEST_FORGOTTEN = auto()
    ANSWERED = auto()
    SAVED = auto()
    DEFERRED = auto()
    CANNOT = auto()
    DEADLINE_UNANSWERED = auto()
    DEADLINE_ANSWERED = auto()
    CLEANERS_DONE = auto()
    RELEASED = auto()
    HELD_BY_BUDGET = auto()
    MARK_REMOVED = auto()
    NOT_NEEDED = auto()
    DELETED_BY_OTHERS = auto()
    CONTAINERS_ENDED = auto()
    OBJECT_GONE = auto()
    REPLACED = auto()


class Transition(NamedTuple):
    """Where an observation leads, and the outcome if it decides one."""

    to: Phase
    outcome: CheckpointOutcome | None = None
    resends_hint: bool = False
    """The workload is asked again. Nothing else changes: neither the phase nor its deadline."""
    ends_cleaning: bool = False
    """The cleaners before SIGTERM are no longer waited for. Nothing else changes."""


TERMINAL = (Phase.GONE, Phase.REQUEUED, Phase.CANCELLED, Phase.SPARED, Phase.FINISHED)

_ALWAYS: dict[Observation, Transition] = {
    Observation.MARK_REMOVED: Transition(Phase.CANCELLED, CheckpointOutcome.CANCELLED),
    # Its preemptor was placed, is gone, or turned to another node.
    Observation.NOT_NEEDED: Transition(Phase.CANCELLED, CheckpointOutcome.NOT_NEEDED),
    Observation.DELETED_BY_OTHERS: Transition(Phase.TERMINATING, CheckpointOutcome.OVERTAKEN),
    Observation.CONTAINERS_ENDED: Transition(Phase.FINISHED, CheckpointOutcome.FINISHED),
    Observation.OBJECT_GONE: Transition(Phase.GONE, CheckpointOutcome.OVERTAKEN),
}
"""Possible in every phase before the DELETE."""

_ANSWERS: dict[Observation, Transition] = {
    Observation.SAVED: Transition(Phase.SAVED, CheckpointOutcome.SAVED),
    Observation.CANNOT: Transition(Phase.SETTLED, CheckpointOutcome.REFUSED),
}
"""Possible in every phase that waits for the workload."""

TABLE: Mapping[Phase, Mapping[Observation, Transition]] = {
    Phase.REQUESTED: _ALWAYS
    | {
        Observation.PROTECTED: Transition(Phase.SPARED, CheckpointOutcome.SPARED),
        Observation.PROTECTED_FOR_NOW: Transition(Phase.REPRIEVED),
        Observation.CHECKPOINT_WANTED: Transition(Phase.HINTED),
        Observation.CHECKPOINT_UNWANTED: Transition(Phase.SETTLED, CheckpointOutcome.SKIPPED),
        Observation.CHECKPOINT_LOSES_MORE: Transition(Phase.SETTLED, CheckpointOutcome.LOSES_LESS),
        Observation.CHECKPOINT_ON_SIGTERM: Transition(Phase.SETTLED, CheckpointOutcome.ON_SIGTERM),
    },
    Phase.REPRIEVED: _ALWAYS
    | {
        Observation.PROTECTION_OVER: Transition(Phase.REQUESTED),
        # Only a preemption is refused: a person or a drain may still ask for the pod to leave.
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
        # Not back to `hinted`: there the workload could get more time twice.
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
    # No more answers are awaited: the victim waits for the rest of its gang, and for the other
    # victims of its preemptor on its node. A victim without both is released at once. One that
    # saves on SIGTERM waits for its gang only: it saves from its DELETE on, and the others wait.
    # Both wait for the cleaners before SIGTERM, and the others for both until those are done.
    Phase.SETTLED: _ALWAYS
    | {
        Observation.CLEANERS_DONE: Transition(Phase.SETTLED, ends_cleaning=True),
        Observation.RELEASED: Transition(Phase.TERMINATING),
    },
    Phase.SAVED: _ALWAYS
    | {
        Observation.CLEANERS_DONE: Transition(Phase.SAVED, ends_cleaning=True),
        Observation.RELEASED: Transition(Phase.TERMINATING, CheckpointOutcome.SAVED),
        # The checkpoint was made, whatever ends the pod.
        Observation.DELETED_BY_OTHERS: Transition(Phase.TERMINATING, CheckpointOutcome.SAVED),
        Observation.CONTAINERS_ENDED: Transition(Phase.FINISHED, CheckpointOutcome.SAVED),
        Observation.OBJECT_GONE: Transition(Phase.GONE, CheckpointOutcome.SAVED),
    },
    # Before the DELETE is sent, something may still hold it up, such as a disruption budget.
    Phase.TERMINATING: {
        Observation.OBJECT_GONE: Transition(Phase.GONE),
        Observation.MARK_REMOVED: Transition(Phase.CANCELLED, CheckpointOutcome.CANCELLED),
        Observation.NOT_NEEDED: Transition(Phase.CANCELLED, CheckpointOutcome.NOT_NEEDED),
        Observation.CONTAINERS_ENDED: Transition(Phase.FINISHED),
        # A pod that may only be evicted is not deleted at the ceiling: it stays, and its workload
        # continues.
        Observation.HELD_BY_BUDGET: Transition(Phase.CANCELLED, CheckpointOutcome.HELD_BY_BUDGET),
    },
    Phase.GONE: {Observation.REPLACED: Transition(Phase.REQUEUED)},
    Phase.REQUEUED: {},
    Phase.CANCELLED: {},
    Phase.SPARED: {},
    Phase.FINISHED: {},
}

"""What is known of a hint, as a table: (knowledge x reply) -> knowledge. Nothing is hinted twice for one attempt.

The state on the pod says that a hint is *about to be* sent (it is written first), so an operator that finds such a
state after a restart does not know whether the workload has heard: it asks before it tells.

An answer that names no request is to the last one that the workload heard of. Whoever does not know that it heard of this one
cannot count it. Without this, what was saved for an eviction that was taken back would end the next, hours of work later.
"""

from enum import Enum, auto

from reprieve_policy.lifecycle.eviction import Eviction

from .transport import ReplyKind


class DeliveryState(Enum):
    """What this process knows of the current attempt."""

    UNSENT = auto()
    """Certainly not received: tell."""
    OUTCOME_UNKNOWN = auto()
    """Told, outcome unknown: ask."""
    INHERITED = auto()
    """Another process meant to tell: ask."""
    ANSWERED = auto()
    """It answered: ask how far it is."""
    RECHECKING = auto()
    """It answered, and then, once, knew of no such request: ask again, as that may be a race."""
    FORGOTTEN = auto()
    """It answered, and then knew of no such request twice: it was started anew, and is to be told in another attempt."""
    UNATTRIBUTED = auto()
    """Told, outcome unknown, and it says of no answer what it is to: it is to be told in another attempt."""
    CANNOT_POLL = auto()
    """It may have heard, or cannot, and cannot be asked: only time, or an annotation, will tell."""
    LOST = auto()
    """Another process's attempt was in vain: the table decides about another."""


_ON_ANSWER = {ReplyKind.ANSWER: DeliveryState.ANSWERED}

_TRANSITIONS: dict[DeliveryState, dict[ReplyKind, DeliveryState]] = {
    DeliveryState.UNSENT: _ON_ANSWER
    | {
        ReplyKind.OUTCOME_UNKNOWN: DeliveryState.OUTCOME_UNKNOWN,
        ReplyKind.DELIVERED: DeliveryState.CANNOT_POLL,
        ReplyKind.UNDELIVERABLE: DeliveryState.CANNOT_POLL,
    },
    DeliveryState.OUTCOME_UNKNOWN: _ON_ANSWER
    | {
        ReplyKind.UNKNOWN_REQUEST: DeliveryState.UNSENT,
        # Not UNSENT: it may well be to this very attempt, and nothing is hinted twice for one.
        ReplyKind.UNATTRIBUTED: DeliveryState.UNATTRIBUTED,
        ReplyKind.UNSUPPORTED: DeliveryState.CANNOT_POLL,
    },
    DeliveryState.INHERITED: _ON_ANSWER
    | dict.fromkeys(
        (
            ReplyKind.UNKNOWN_REQUEST,
            ReplyKind.UNATTRIBUTED,
            ReplyKind.UNSUPPORTED,
            ReplyKind.NOT_RECEIVED,
        ),
        DeliveryState.LOST,
    ),
    DeliveryState.ANSWERED: _ON_ANSWER | {ReplyKind.UNKNOWN_REQUEST: DeliveryState.RECHECKING},
    DeliveryState.RECHECKING: _ON_ANSWER
    | dict.fromkeys((ReplyKind.UNKNOWN_REQUEST, ReplyKind.UNATTRIBUTED), DeliveryState.FORGOTTEN),
    DeliveryState.FORGOTTEN: _ON_ANSWER,
    DeliveryState.UNATTRIBUTED: _ON_ANSWER,
    DeliveryState.CANNOT_POLL: _ON_ANSWER,
    DeliveryState.LOST: _ON_ANSWER,
}


def initial_state(state: Eviction) -> DeliveryState:
    """Return what is known of a hint that an earlier process wrote down."""
    return DeliveryState.INHERITED if state.answered_at is None else DeliveryState.ANSWERED


def state_without_attempts(knowledge: DeliveryState) -> DeliveryState:
    """Return what is left to do where there is no further attempt: what has answered this one is still asked how far it is.

    Only what names this request counts of that: what no longer knows of it may speak of an earlier one.
    """
    return (
        DeliveryState.RECHECKING
        if knowledge is DeliveryState.FORGOTTEN
        else DeliveryState.CANNOT_POLL
    )


def next_state(knowledge: DeliveryState, heard: ReplyKind) -> DeliveryState:
    """Return what is known after a reply; a reply that says nothing changes nothing."""
    return _TRANSITIONS[knowledge].get(heard, knowledge)

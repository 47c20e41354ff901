"""The delivery of a hint as a state table: (delivery state, reply) -> delivery state.

A hint is sent at most once per attempt. The eviction state on the pod is written *before* the hint
is sent. An operator that finds such a state after a restart does not know whether the workload
received the hint: it polls before it sends.

An answer without a request id belongs to the last request that the workload received. It counts
only if the workload is known to have received this request. Without this, a checkpoint that was
saved for a cancelled eviction would end the next eviction, hours of work later.
"""

from enum import Enum, auto

from reprieve_policy.lifecycle.eviction import Eviction

from .transport import ReplyKind


class DeliveryState(Enum):
    """What this process knows about the current attempt."""

    UNSENT = auto()
    """The workload has certainly not received the hint: send it."""
    OUTCOME_UNKNOWN = auto()
    """The hint was sent, the outcome is unknown: poll."""
    INHERITED = auto()
    """An earlier process was about to send the hint: poll."""
    ANSWERED = auto()
    """The workload answered: poll its progress."""
    RECHECKING = auto()
    """The workload answered, and then reported the request as unknown once: poll again, as that
    may be a race."""
    FORGOTTEN = auto()
    """The workload answered, and then reported the request as unknown twice: it was restarted, and
    needs another attempt."""
    UNATTRIBUTED = auto()
    """The hint was sent, the outcome is unknown, and the workload's answer names no request: it
    needs another attempt."""
    CANNOT_POLL = auto()
    """The workload cannot be polled, and may or may not have received the hint: wait for the
    deadline or an answer in the annotation."""
    LOST = auto()
    """The hint of an earlier process was not received: the lifecycle table decides about another
    attempt."""


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
        # Not UNSENT: the answer may belong to this attempt, which must not be hinted twice.
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
    """Return the delivery state of a hint that an earlier process recorded."""
    return DeliveryState.INHERITED if state.answered_at is None else DeliveryState.ANSWERED


def state_without_attempts(current: DeliveryState) -> DeliveryState:
    """Return the state that follows when no further attempt is allowed.

    A workload that has answered this attempt is still polled for progress. Only answers that name
    this request count: a workload that has forgotten the request may answer about an earlier one.
    """
    return (
        DeliveryState.RECHECKING
        if current is DeliveryState.FORGOTTEN
        else DeliveryState.CANNOT_POLL
    )


def next_state(current: DeliveryState, reply: ReplyKind) -> DeliveryState:
    """Return the state after a reply; a reply that is not in the table changes nothing."""
    return _TRANSITIONS[current].get(reply, current)

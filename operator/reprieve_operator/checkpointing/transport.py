"""The interface of all transports: request a checkpoint, poll its progress, cancel the request.

Each kind of endpoint has one implementation (`http_transport`, `grpc_transport`,
`signal_transport`). Workloads are not trusted: a transport resolves no names, follows no redirects
and sends no credentials to a workload, and bounds size and time. `delivery` decides what follows
from a reply.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeVar

from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest


class ReplyKind(Enum):
    """The outcome of one call."""

    ANSWER = auto()
    UNATTRIBUTED = auto()
    """An answer to a poll that names no request: it belongs to the last one received."""
    UNKNOWN_REQUEST = auto()
    """The workload reports that it has no such request."""
    UNSUPPORTED = auto()
    """The workload cannot be polled."""
    NOT_RECEIVED = auto()
    """The workload has certainly not accepted the request: no connection, or it was rejected."""
    DELIVERED = auto()
    """The workload has certainly received the request; it answers in another way."""
    UNDELIVERABLE = auto()
    """This transport cannot deliver the request: no permission, or no program to deliver it."""
    OUTCOME_UNKNOWN = auto()
    """The workload may have received the request: a timeout, a broken connection, an error."""


@dataclass(frozen=True, slots=True)
class WorkloadReply:
    """The result of one call."""

    kind: ReplyKind
    answer: CheckpointAnswer | None = None
    detail: str = ""
    """What went wrong in transport, for the log."""
    answer_error: str = ""
    """What is wrong with an invalid answer, for its author."""


def reply_to_request(answer: CheckpointAnswer, request: CheckpointRequest) -> WorkloadReply:
    """Return the reply for an answer to a checkpoint request."""
    if _is_about(answer, request.eviction_id):
        return WorkloadReply(ReplyKind.ANSWER, answer)
    return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail="answered another request")


def reply_to_poll(answer: CheckpointAnswer, eviction_id: str) -> WorkloadReply:
    """Return the reply for an answer to a poll."""
    if not _is_about(answer, eviction_id):
        return WorkloadReply(ReplyKind.UNKNOWN_REQUEST)
    return WorkloadReply(
        ReplyKind.UNATTRIBUTED if answer.eviction_id is None else ReplyKind.ANSWER, answer
    )


def _is_about(answer: CheckpointAnswer, eviction_id: str) -> bool:
    return answer.state is not AnswerState.IDLE and answer.may_belong_to(eviction_id)


T_contra = TypeVar("T_contra", contravariant=True)


class Transport(Protocol[T_contra]):
    """A way to call workloads. No call raises: every failure is a reply."""

    async def request_checkpoint(
        self, endpoint: T_contra, request: CheckpointRequest, timeout_seconds: float
    ) -> WorkloadReply:
        """Send a checkpoint request."""

    async def poll(
        self, endpoint: T_contra, eviction_id: str, timeout_seconds: float
    ) -> WorkloadReply:
        """Ask for the progress of the checkpoint; has no effect on the workload."""

    async def cancel(self, endpoint: T_contra, eviction_id: str, timeout_seconds: float) -> None:
        """Cancel the request, where the transport supports it; the reply is ignored."""

    async def close(self) -> None:
        """Close the connections."""

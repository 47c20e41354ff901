"""What every way to a workload has in common: it is asked for a checkpoint, then how far it is, and a reply comes; or it is told to stay.

One implementation a carrier (`http_line`, `grpc_line`, `signal_line`), each for one kind of target. A workload is not trusted by any: no name is
resolved, no redirect followed, no credential sent; size and time are bounded. What a reply means is `dialogue`'s business.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeVar

from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest


class ReplyKind(Enum):
    """What came back."""

    ANSWER = auto()
    UNATTRIBUTED = auto()
    """An answer to a question that does not say which request it is about: whichever the workload heard last."""
    UNKNOWN_REQUEST = auto()
    """The workload says that it has no such request."""
    UNSUPPORTED = auto()
    """It cannot be asked how far it is."""
    NOT_RECEIVED = auto()
    """No connection, or the request was refused: it was certainly not accepted."""
    DELIVERED = auto()
    """The request has certainly arrived; answers come another way."""
    UNDELIVERABLE = auto()
    """Nothing was received, and nothing will be on this line: no right, no program to deliver it."""
    OUTCOME_UNKNOWN = auto()
    """The request may have been received: a time-out, a broken connection, a server's error."""


@dataclass(frozen=True, slots=True)
class WorkloadReply:
    """One call's result."""

    kind: ReplyKind
    answer: CheckpointAnswer | None = None
    detail: str = ""
    """What went wrong on the way, for the log."""
    answer_error: str = ""
    """What is wrong with a document that was meant as an answer, for its author."""


def reply_to_request(answer: CheckpointAnswer, request: CheckpointRequest) -> WorkloadReply:
    """Return what it means that a request was answered with this document."""
    if _is_about(answer, request.eviction_id):
        return WorkloadReply(ReplyKind.ANSWER, answer)
    return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail="answered for another request")


def reply_to_poll(answer: CheckpointAnswer, eviction_id: str) -> WorkloadReply:
    """Return what it means that a question was answered with this document."""
    if not _is_about(answer, eviction_id):
        return WorkloadReply(ReplyKind.UNKNOWN_REQUEST)
    return WorkloadReply(
        ReplyKind.UNATTRIBUTED if answer.eviction_id is None else ReplyKind.ANSWER, answer
    )


def _is_about(answer: CheckpointAnswer, eviction_id: str) -> bool:
    return answer.state is not AnswerState.IDLE and answer.may_belong_to(eviction_id)


T_contra = TypeVar("T_contra", contravariant=True)


class Transport(Protocol[T_contra]):
    """A way to workloads. No call raises: whatever goes wrong is a reply."""

    async def request_checkpoint(
        self, endpoint: T_contra, request: CheckpointRequest, timeout_seconds: float
    ) -> WorkloadReply:
        """Ask for a checkpoint."""

    async def poll(
        self, endpoint: T_contra, eviction_id: str, timeout_seconds: float
    ) -> WorkloadReply:
        """Ask how far it is; without effect on the workload."""

    async def cancel(self, endpoint: T_contra, eviction_id: str, timeout_seconds: float) -> None:
        """Say that the request is taken back, where the carrier has a word for it; nothing follows from what comes back."""

    async def close(self) -> None:
        """Close the connections."""

"""What every way to a workload has in common: it is asked for a checkpoint, then how far it is, and a reply comes; or it is told to stay.

One implementation a carrier (`http_line`, `grpc_line`, `signal_line`), each for one kind of target. A workload is not trusted by any: no name is
resolved, no redirect followed, no credential sent; size and time are bounded. What a reply means is `dialogue`'s business.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeVar

from reprieve_policy.checkpointing.contract import Answer, AnswerState, Request


class Heard(Enum):
    """What came back."""

    ANSWER = auto()
    UNNAMED = auto()
    """An answer to a question that does not say which request it is about: whichever the workload heard last."""
    UNKNOWN_THERE = auto()
    """The workload says that it has no such request."""
    UNSUPPORTED = auto()
    """It cannot be asked how far it is."""
    NOT_RECEIVED = auto()
    """No connection, or the request was refused: it was certainly not accepted."""
    DELIVERED = auto()
    """The request has certainly arrived; answers come another way."""
    BARRED = auto()
    """Nothing was received, and nothing will be on this line: no right, no program to deliver it."""
    UNSURE = auto()
    """The request may have been received: a time-out, a broken connection, a server's error."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One call's result."""

    heard: Heard
    answer: Answer | None = None
    detail: str = ""
    """What went wrong on the way, for the log."""
    complaint: str = ""
    """What is wrong with a document that was meant as an answer, for its author."""


def heard_of_asking(answer: Answer, request: Request) -> Reply:
    """Return what it means that a request was answered with this document."""
    if _is_about(answer, request.eviction_id):
        return Reply(Heard.ANSWER, answer)
    return Reply(Heard.UNSURE, detail="answered for another request")


def heard_of_looking(answer: Answer, eviction_id: str) -> Reply:
    """Return what it means that a question was answered with this document."""
    if not _is_about(answer, eviction_id):
        return Reply(Heard.UNKNOWN_THERE)
    return Reply(Heard.UNNAMED if answer.eviction_id is None else Heard.ANSWER, answer)


def _is_about(answer: Answer, eviction_id: str) -> bool:
    return answer.state is not AnswerState.IDLE and answer.is_about(eviction_id)


T_contra = TypeVar("T_contra", contravariant=True)


class Line(Protocol[T_contra]):
    """A way to workloads. No call raises: whatever goes wrong is a reply."""

    async def ask(self, target: T_contra, request: Request, timeout_seconds: float) -> Reply:
        """Ask for a checkpoint."""

    async def look(self, target: T_contra, eviction_id: str, timeout_seconds: float) -> Reply:
        """Ask how far it is; without effect on the workload."""

    async def take_back(self, target: T_contra, eviction_id: str, timeout_seconds: float) -> None:
        """Say that the request is taken back, where the carrier has a word for it; nothing follows from what comes back."""

    async def close(self) -> None:
        """Close the connections."""

"""The line over gRPC: the service `reprieve.checkpoint.v1.Checkpoint` (`proto/`), in plaintext, to an address.

A connection serves one call, as over HTTP; it names no compression, follows nothing and has no credentials.
"""

from google.protobuf.message import DecodeError

from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import Answer, Request
from reprieve_policy.verdict import Kind, Violation

from . import checkpoint_pb2 as wire
from . import grpc_call
from .endpoints import GrpcTarget
from .grpc_call import Broken, NotSent, Status
from .transport import Heard, Reply, heard_of_asking, heard_of_looking

_SERVICE = "/reprieve.checkpoint.v1.Checkpoint"

_REFUSED = {
    Status.UNIMPLEMENTED,
    Status.INVALID_ARGUMENT,
    Status.NOT_FOUND,
    Status.ALREADY_EXISTS,
    Status.PERMISSION_DENIED,
    Status.UNAUTHENTICATED,
    Status.FAILED_PRECONDITION,
    Status.OUT_OF_RANGE,
}
"""What HTTP says with 4xx: read, and not accepted. Every other word may come after it has begun to save."""

_STATES = {number: name.removeprefix("STATE_").lower() for name, number in wire.Answer.State.items()}


class GrpcLine:
    """Calls to workloads that serve gRPC."""

    async def ask(self, target: GrpcTarget, request: Request, timeout_seconds: float) -> Reply:
        """Ask for a checkpoint."""
        said = await _call(target, "Ask", _render(request), timeout_seconds)
        if isinstance(said, Reply):
            return said
        if isinstance(said, Status):
            return Reply(Heard.NOT_RECEIVED if said in _REFUSED else Heard.UNSURE, detail=f"answered {said.name}")
        answer = _parse(said)
        if isinstance(answer, Violation):
            return Reply(Heard.ANSWER, contract.BARE_ACCEPTANCE, complaint=f"{answer.path}: {answer.detail}")
        return heard_of_asking(answer or contract.BARE_ACCEPTANCE, request)

    async def look(self, target: GrpcTarget, eviction_id: str, timeout_seconds: float) -> Reply:
        """Ask how far it is; without effect on the workload."""
        question = wire.LookRequest(id=eviction_id).SerializeToString()
        said = await _call(target, "Look", question, timeout_seconds)
        if isinstance(said, Reply):
            return said
        if said is Status.NOT_FOUND:
            return Reply(Heard.UNKNOWN_THERE)
        if isinstance(said, Status):
            return Reply(Heard.UNSUPPORTED if said in _REFUSED else Heard.UNSURE, detail=f"answered {said.name}")
        answer = _parse(said)
        if isinstance(answer, Violation):
            return Reply(Heard.UNSUPPORTED, complaint=f"{answer.path}: {answer.detail}")
        return Reply(Heard.UNSUPPORTED) if answer is None else heard_of_looking(answer, eviction_id)

    async def take_back(self, target: GrpcTarget, eviction_id: str, timeout_seconds: float) -> None:
        """Say that the request is taken back. A service may have no such method, and says so: that is no matter."""
        message = wire.CancelRequest(id=eviction_id).SerializeToString()
        await _call(target, "Cancel", message, timeout_seconds)

    async def close(self) -> None:
        """Do nothing: no connection outlives its call."""


async def _call(target: GrpcTarget, method: str, message: bytes, timeout_seconds: float) -> bytes | Status | Reply:
    try:
        return await grpc_call.call(str(target.address), target.port, f"{_SERVICE}/{method}", message, timeout_seconds)
    except NotSent as error:
        return Reply(Heard.NOT_RECEIVED, detail=str(error))
    except Broken as error:
        return Reply(Heard.UNSURE, detail=str(error))


def _render(request: Request) -> bytes:
    message = wire.Request(
        version=contract.VERSION,
        id=request.eviction_id,
        attempt=request.attempt,
        deadline=request.deadline,
        reason=request.reason,
        preemption_class=request.preemption_class,
        may_extend=request.may_extend,
    )
    return message.SerializeToString()


def _parse(data: bytes) -> Answer | Violation | None:
    """Read an answer; `None` for one that says no more than that it was heard."""
    if len(data) > contract.MAX_ANSWER:
        return Violation("answer", Kind.INVALID, "", f"must be at most {contract.MAX_ANSWER} bytes")
    try:
        message = wire.Answer.FromString(data)
    except DecodeError:
        return Violation("answer", Kind.INVALID, "", "must be a reprieve.checkpoint.v1.Answer")
    return contract.read_answer(_document(message), "answer") if message.state else None


def _document(message: wire.Answer) -> dict[str, object]:
    """Return the answer in the words of the JSON document, so that one place says what is right."""
    optional = {"step": "step", "progress": "progress", "defer_seconds": "deferSeconds"}
    said = {name: getattr(message, field) for field, name in optional.items() if message.HasField(field)}
    texts = {"id": message.id or None, "path": message.path or None, "message": message.message}
    return {"state": _STATES.get(message.state, str(message.state)), **texts, **said}

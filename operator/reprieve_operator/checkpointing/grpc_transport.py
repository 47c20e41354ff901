"""The gRPC transport: the service `reprieve.checkpoint.v1.Checkpoint` (`proto/`) in plaintext.

It connects to an IP address. Each connection serves one call, as with HTTP; it offers no
compression, follows no redirects and has no credentials.
"""

from google.protobuf.message import DecodeError

from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import CheckpointAnswer, CheckpointRequest
from reprieve_policy.verdict import Violation, ViolationKind

from . import checkpoint_pb2 as wire
from . import grpc_call
from .endpoints import GrpcEndpoint
from .grpc_call import ConnectionBroken, GrpcStatusCode, NotSent
from .transport import ReplyKind, WorkloadReply, reply_to_poll, reply_to_request

_SERVICE = "/reprieve.checkpoint.v1.Checkpoint"

_REJECTED_CODES = {
    GrpcStatusCode.UNIMPLEMENTED,
    GrpcStatusCode.INVALID_ARGUMENT,
    GrpcStatusCode.NOT_FOUND,
    GrpcStatusCode.ALREADY_EXISTS,
    GrpcStatusCode.PERMISSION_DENIED,
    GrpcStatusCode.UNAUTHENTICATED,
    GrpcStatusCode.FAILED_PRECONDITION,
    GrpcStatusCode.OUT_OF_RANGE,
}
"""The counterpart of HTTP's 4xx: the workload read the request and rejected it.

With any other code, the workload may already have begun to save.
"""

_STATES = {
    number: name.removeprefix("STATE_").lower() for name, number in wire.Answer.State.items()
}


class GrpcTransport:
    """Calls to workloads that serve gRPC."""

    async def request_checkpoint(
        self, endpoint: GrpcEndpoint, request: CheckpointRequest, timeout_seconds: float
    ) -> WorkloadReply:
        """Send a checkpoint request."""
        reply = await _call(endpoint, "Ask", _encode_request(request), timeout_seconds)
        if isinstance(reply, WorkloadReply):
            return reply
        if isinstance(reply, GrpcStatusCode):
            return WorkloadReply(
                ReplyKind.NOT_RECEIVED if reply in _REJECTED_CODES else ReplyKind.OUTCOME_UNKNOWN,
                detail=f"answered {reply.name}",
            )
        answer = _decode_answer(reply)
        if isinstance(answer, Violation):
            return WorkloadReply(
                ReplyKind.ANSWER,
                contract.ACCEPTED_WITHOUT_DOCUMENT,
                answer_error=f"{answer.path}: {answer.detail}",
            )
        return reply_to_request(answer or contract.ACCEPTED_WITHOUT_DOCUMENT, request)

    async def poll(
        self, endpoint: GrpcEndpoint, eviction_id: str, timeout_seconds: float
    ) -> WorkloadReply:
        """Ask for the progress of the checkpoint; has no effect on the workload."""
        message = wire.LookRequest(id=eviction_id).SerializeToString()
        reply = await _call(endpoint, "Look", message, timeout_seconds)
        if isinstance(reply, WorkloadReply):
            return reply
        if reply is GrpcStatusCode.NOT_FOUND:
            return WorkloadReply(ReplyKind.UNKNOWN_REQUEST)
        if isinstance(reply, GrpcStatusCode):
            return WorkloadReply(
                ReplyKind.UNSUPPORTED if reply in _REJECTED_CODES else ReplyKind.OUTCOME_UNKNOWN,
                detail=f"answered {reply.name}",
            )
        answer = _decode_answer(reply)
        if isinstance(answer, Violation):
            return WorkloadReply(
                ReplyKind.UNSUPPORTED, answer_error=f"{answer.path}: {answer.detail}"
            )
        return (
            WorkloadReply(ReplyKind.UNSUPPORTED)
            if answer is None
            else reply_to_poll(answer, eviction_id)
        )

    async def cancel(
        self, endpoint: GrpcEndpoint, eviction_id: str, timeout_seconds: float
    ) -> None:
        """Cancel the request; the reply is ignored, as a service need not implement `Cancel`."""
        message = wire.CancelRequest(id=eviction_id).SerializeToString()
        await _call(endpoint, "Cancel", message, timeout_seconds)

    async def close(self) -> None:
        """Do nothing: no connection outlives its call."""


async def _call(
    target: GrpcEndpoint, method: str, message: bytes, timeout_seconds: float
) -> bytes | GrpcStatusCode | WorkloadReply:
    try:
        return await grpc_call.call(
            str(target.address), target.port, f"{_SERVICE}/{method}", message, timeout_seconds
        )
    except NotSent as error:
        return WorkloadReply(ReplyKind.NOT_RECEIVED, detail=str(error))
    except ConnectionBroken as error:
        return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=str(error))


def _encode_request(request: CheckpointRequest) -> bytes:
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


def _decode_answer(data: bytes) -> CheckpointAnswer | Violation | None:
    """Decode an answer; `None` for an answer without a state, which only confirms receipt."""
    if len(data) > contract.MAX_ANSWER:
        return Violation(
            "answer", ViolationKind.INVALID, "", f"must be at most {contract.MAX_ANSWER} bytes"
        )
    try:
        message = wire.Answer.FromString(data)
    except DecodeError:
        return Violation(
            "answer", ViolationKind.INVALID, "", "must be a reprieve.checkpoint.v1.Answer"
        )
    return contract.read_answer(_to_document(message), "answer") if message.state else None


def _to_document(message: wire.Answer) -> dict[str, object]:
    """Return the answer as the JSON document, so that both transports share one validation."""
    optional = {"step": "step", "progress": "progress", "defer_seconds": "deferSeconds"}
    present = {
        name: getattr(message, field) for field, name in optional.items() if message.HasField(field)
    }
    texts = {"id": message.id or None, "path": message.path or None, "message": message.message}
    return {"state": _STATES.get(message.state, str(message.state)), **texts, **present}

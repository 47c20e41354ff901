"""The signal transport: runs `kill` in the declared container through `pods/exec`.

The operator needs permission for `pods/exec`. A signal carries no request and no answer: the
operator writes the request to an annotation before it sends the signal, and the workload writes
its answer to another annotation. The signal is delivered if `kill` exits with 0. A signal whose
outcome is unknown is never repeated within an attempt.
"""

import asyncio
from http import HTTPStatus
from typing import Final

from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority
from reprieve_operator.cluster.pods import VersionedObject
from reprieve_policy.checkpointing.contract import CheckpointRequest
from reprieve_runtime.client.api import METADATA_ONLY, Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.podexec import ExecResult, execute

from .endpoints import SignalEndpoint
from .transport import ReplyKind, WorkloadReply

_MAX_CALLS: Final = 32
"""Concurrent commands: each takes two connections of the API server and a process on a node."""
_REJECTED = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
)
"""With these answers, the API server has not started the command."""
_NOT_FOUND_MESSAGES = ("executable file not found", "no such file or directory")
"""Parts of a container runtime's message that the command could not be started."""
_NOT_EXECUTED_CODES = (126, 127)
"""Exit codes with which a shell reports the same."""
_NOT_RUNNING_MESSAGES = ("container not found", "container not running", "not in running state")


class SignalTransport:
    """Sends signals to the first process of containers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._limiter = CallLimiter(_MAX_CALLS, keeps_share_free=True)

    async def request_checkpoint(
        self,
        endpoint: SignalEndpoint,
        request: CheckpointRequest,  # noqa: ARG002 - the annotation carries it
        timeout_seconds: float,
    ) -> WorkloadReply:
        """Send the signal."""
        if_late = ReplyKind.NOT_RECEIVED
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                self._limiter.acquire(CallPriority.NOTIFY, endpoint.namespace),
            ):
                if not await self._is_same_pod(endpoint):
                    return WorkloadReply(ReplyKind.NOT_RECEIVED, detail="the pod is gone")
                if_late = ReplyKind.OUTCOME_UNKNOWN
                return await self._send_signal(endpoint)
        except TimeoutError:
            return WorkloadReply(if_late, detail="the command did not end in time")
        except ApiError as error:
            return _reply_for_error(error, if_late)

    async def poll(
        self,
        endpoint: SignalEndpoint,  # noqa: ARG002 - part of the protocol
        eviction_id: str,  # noqa: ARG002
        timeout_seconds: float,  # noqa: ARG002
    ) -> WorkloadReply:
        """Reply that polling is not supported: a signal has no answer."""
        return WorkloadReply(ReplyKind.UNSUPPORTED)

    async def cancel(
        self, endpoint: SignalEndpoint, eviction_id: str, timeout_seconds: float
    ) -> None:
        """Do nothing: a second signal would be a second request.

        The annotation with the request tells the workload that it is cancelled.
        """

    async def close(self) -> None:
        """Do nothing: the connection belongs to the leader's term."""

    async def _is_same_pod(self, endpoint: SignalEndpoint) -> bool:
        """True if the pod with this name still has this uid.

        Without this, a new pod of the same name might get a signal that it never declared.
        """
        path = object_path("pods", endpoint.namespace, endpoint.name)
        metadata = (await self._api.get(path, VersionedObject, accept=METADATA_ONLY)).metadata
        return metadata.uid == endpoint.uid and metadata.deletionTimestamp is None

    async def _send_signal(self, endpoint: SignalEndpoint) -> WorkloadReply:
        reply = WorkloadReply(ReplyKind.UNDELIVERABLE)
        for command in _commands(endpoint.signal):
            reply = _reply_for_exit(
                await execute(
                    self._api, endpoint.namespace, endpoint.name, endpoint.container, command
                )
            )
            if reply.kind is not ReplyKind.UNDELIVERABLE:
                break
        return reply


def _commands(signal: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands to try: most images without `kill` have a shell with a built-in one."""
    return ("kill", f"-{signal}", "1"), ("/bin/sh", "-c", f"kill -{signal} 1")


def _reply_for_exit(result: ExecResult) -> WorkloadReply:
    if result.exit_code == 0:
        return WorkloadReply(ReplyKind.DELIVERED)
    if result.exit_code in _NOT_EXECUTED_CODES or any(
        words in result.message for words in _NOT_FOUND_MESSAGES
    ):
        return WorkloadReply(
            ReplyKind.UNDELIVERABLE, detail="the container has neither kill nor /bin/sh"
        )
    if result.exit_code is not None:
        return WorkloadReply(
            ReplyKind.UNDELIVERABLE, detail=f"kill in the container ended with {result.exit_code}"
        )
    if any(words in result.message for words in _NOT_RUNNING_MESSAGES):
        return WorkloadReply(ReplyKind.NOT_RECEIVED, detail="the container is not running")
    return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=result.message)


def _reply_for_error(error: ApiError, otherwise: ReplyKind) -> WorkloadReply:
    if error.is_forbidden:
        return WorkloadReply(
            ReplyKind.UNDELIVERABLE, detail="the operator may not use pods/exec in this namespace"
        )
    if error.status in _REJECTED:
        return WorkloadReply(ReplyKind.NOT_RECEIVED, detail=str(error))
    return WorkloadReply(otherwise, detail=str(error))

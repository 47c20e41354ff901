"""The line of signals: `kill` in the declared container, through `pods/exec`, where the operator was given that right.

A signal carries no request and no answer: the request is in the annotation before it is sent, the answer comes into the other
annotation. Delivery is the end of `kill` with 0; what is not certain is never repeated within an attempt.
"""

import asyncio
from typing import Final

from reprieve_operator.cluster.pods import VersionedObject
from reprieve_policy.checkpointing.contract import CheckpointRequest
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.podexec import ExecResult, execute

from .endpoints import SignalEndpoint
from .transport import ReplyKind, WorkloadReply

_MAX_CALLS: Final = 32
"""Commands at once: each is two connections of the API server, and a process on a node."""
_NO_RIGHT, _GONE, _REFUSED = 403, 404, (400, 409, 422, 429)
_NOT_FOUND_MESSAGES = ("executable file not found", "no such file or directory")
"""How container runtimes say that a command could not be started."""
_NOT_EXECUTED_CODES = (126, 127)
"""How a shell says so."""
_NOT_RUNNING_MESSAGES = ("container not found", "container not running", "not in running state")


class SignalTransport:
    """Signals to the first process of containers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._semaphore = asyncio.Semaphore(_MAX_CALLS)

    async def request_checkpoint(
        self, endpoint: SignalEndpoint, request: CheckpointRequest, timeout_seconds: float
    ) -> WorkloadReply:
        """Send the signal."""
        if_late = ReplyKind.NOT_RECEIVED
        try:
            async with asyncio.timeout(timeout_seconds), self._semaphore:
                if not await self._is_same_pod(endpoint):
                    return WorkloadReply(ReplyKind.NOT_RECEIVED, detail="the pod is gone")
                if_late = ReplyKind.OUTCOME_UNKNOWN
                return await self._send_signal(endpoint)
        except TimeoutError:
            return WorkloadReply(if_late, detail="no end of the command")
        except ApiError as error:
            return _reply_for_error(error, if_late)

    async def poll(
        self, endpoint: SignalEndpoint, eviction_id: str, timeout_seconds: float
    ) -> WorkloadReply:  # noqa: ARG002 - as every line's
        """Say that a signal is not answered."""
        return WorkloadReply(ReplyKind.UNSUPPORTED)

    async def cancel(
        self, endpoint: SignalEndpoint, eviction_id: str, timeout_seconds: float
    ) -> None:
        """Do nothing: a second signal would be a second request. The annotation that carried the first says it."""

    async def close(self) -> None:
        """Do nothing: the connection is the term's."""

    async def _is_same_pod(self, target: SignalEndpoint) -> bool:
        """True where it is this very pod. Without this, the next one of its name might get a signal that it never declared."""
        path = object_path("pods", target.namespace, target.name)
        metadata = (await self._api.get(path, VersionedObject)).metadata
        return metadata.uid == target.uid and metadata.deletionTimestamp is None

    async def _send_signal(self, target: SignalEndpoint) -> WorkloadReply:
        reply = WorkloadReply(ReplyKind.UNDELIVERABLE)
        for command in _commands(target.signal):
            reply = _reply_for_exit(
                await execute(self._api, target.namespace, target.name, target.container, command)
            )
            if reply.kind is not ReplyKind.UNDELIVERABLE:
                break
        return reply


def _commands(signal: str) -> tuple[tuple[str, ...], ...]:
    """Return how to send it: images without `kill` mostly have a shell, which has one of its own."""
    return ("kill", f"-{signal}", "1"), ("/bin/sh", "-c", f"kill -{signal} 1")


def _reply_for_exit(ended: ExecResult) -> WorkloadReply:
    if ended.exit_code == 0:
        return WorkloadReply(ReplyKind.DELIVERED)
    if ended.exit_code in _NOT_EXECUTED_CODES or any(
        words in ended.message for words in _NOT_FOUND_MESSAGES
    ):
        return WorkloadReply(
            ReplyKind.UNDELIVERABLE, detail="the container has neither kill nor /bin/sh"
        )
    if ended.exit_code is not None:
        return WorkloadReply(
            ReplyKind.UNDELIVERABLE, detail=f"kill in the container ended with {ended.exit_code}"
        )
    if any(words in ended.message for words in _NOT_RUNNING_MESSAGES):
        return WorkloadReply(ReplyKind.NOT_RECEIVED, detail="the container is not running")
    return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=ended.message)


def _reply_for_error(error: ApiError, otherwise: ReplyKind) -> WorkloadReply:
    if error.status == _NO_RIGHT:
        return WorkloadReply(
            ReplyKind.UNDELIVERABLE, detail="the operator may not use pods/exec in this namespace"
        )
    if error.status == _GONE or error.status in _REFUSED:
        return WorkloadReply(ReplyKind.NOT_RECEIVED, detail=str(error))
    return WorkloadReply(otherwise, detail=str(error))

"""The line of signals: `kill` in the declared container, through `pods/exec`, where the operator was given that right.

A signal carries no request and no answer: the request is in the annotation before it is sent, the answer comes into the other
annotation. Delivery is the end of `kill` with 0; what is not certain is never repeated within an attempt.
"""

import asyncio
from typing import Final

from reprieve_operator.cluster.pods import Versioned
from reprieve_policy.checkpointing.contract import Request
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.podexec import Ended, execute

from .endpoints import SignalTarget
from .transport import Heard, Reply

_MAX_CALLS: Final = 32
"""Commands at once: each is two connections of the API server, and a process on a node."""
_NO_RIGHT, _GONE, _REFUSED = 403, 404, (400, 409, 422, 429)
_NOT_THERE = ("executable file not found", "no such file or directory")
"""How container runtimes say that a command could not be started."""
_NOT_RUN = (126, 127)
"""How a shell says so."""
_NOT_RUNNING = ("container not found", "container not running", "not in running state")


class SignalLine:
    """Signals to the first process of containers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._calls = asyncio.Semaphore(_MAX_CALLS)

    async def ask(self, target: SignalTarget, request: Request, timeout_seconds: float) -> Reply:  # noqa: ARG002 - it is in the annotation
        """Send the signal."""
        if_late = Heard.NOT_RECEIVED
        try:
            async with asyncio.timeout(timeout_seconds), self._calls:
                if not await self._is_there(target):
                    return Reply(Heard.NOT_RECEIVED, detail="the pod is gone")
                if_late = Heard.UNSURE
                return await self._send(target)
        except TimeoutError:
            return Reply(if_late, detail="no end of the command")
        except ApiError as error:
            return _refusal(error, if_late)

    async def look(self, target: SignalTarget, eviction_id: str, timeout_seconds: float) -> Reply:  # noqa: ARG002 - as every line's
        """Say that a signal is not answered."""
        return Reply(Heard.UNSUPPORTED)

    async def take_back(self, target: SignalTarget, eviction_id: str, timeout_seconds: float) -> None:
        """Do nothing: a second signal would be a second request. The annotation that carried the first says it."""

    async def close(self) -> None:
        """Do nothing: the connection is the term's."""

    async def _is_there(self, target: SignalTarget) -> bool:
        """True where it is this very pod. Without this, the next one of its name might get a signal that it never declared."""
        path = object_path("pods", target.namespace, target.name)
        metadata = (await self._api.get(path, Versioned)).metadata
        return metadata.uid == target.uid and metadata.deletionTimestamp is None

    async def _send(self, target: SignalTarget) -> Reply:
        reply = Reply(Heard.BARRED)
        for command in _commands(target.signal):
            reply = _meaning(await execute(self._api, target.namespace, target.name, target.container, command))
            if reply.heard is not Heard.BARRED:
                break
        return reply


def _commands(signal: str) -> tuple[tuple[str, ...], ...]:
    """Return how to send it: images without `kill` mostly have a shell, which has one of its own."""
    return ("kill", f"-{signal}", "1"), ("/bin/sh", "-c", f"kill -{signal} 1")


def _meaning(ended: Ended) -> Reply:
    if ended.exit_code == 0:
        return Reply(Heard.DELIVERED)
    if ended.exit_code in _NOT_RUN or any(words in ended.message for words in _NOT_THERE):
        return Reply(Heard.BARRED, detail="the container has neither kill nor /bin/sh")
    if ended.exit_code is not None:
        return Reply(Heard.BARRED, detail=f"kill in the container ended with {ended.exit_code}")
    if any(words in ended.message for words in _NOT_RUNNING):
        return Reply(Heard.NOT_RECEIVED, detail="the container is not running")
    return Reply(Heard.UNSURE, detail=ended.message)


def _refusal(error: ApiError, otherwise: Heard) -> Reply:
    if error.status == _NO_RIGHT:
        return Reply(Heard.BARRED, detail="the operator may not use pods/exec in this namespace")
    if error.status == _GONE or error.status in _REFUSED:
        return Reply(Heard.NOT_RECEIVED, detail=str(error))
    return Reply(otherwise, detail=str(error))

"""The ways to workloads as one: which carrier a target needs, and how many calls may be under way."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from reprieve_operator.cluster.call_limiter import Slots, Urgency
from reprieve_policy.checkpointing.contract import Request
from reprieve_runtime.client.api import Api

from .endpoints import GrpcTarget, HttpTarget, SignalTarget, Target
from .http_transport import HttpLine
from .signal_transport import SignalLine
from .transport import Heard, Line, Reply

_MAX_CALLS: Final = 200
"""Calls at once, half of them to the pods of one Namespace. Without a limit, a thousand victims that time out together use up the file descriptors."""


def _grpc_line() -> Line[GrpcTarget]:
    # Imported when the first such victim comes: without this, every operator would be 3 MB larger.
    from .grpc_transport import GrpcLine  # noqa: PLC0415

    return GrpcLine()


Lines = Mapping[type[Target], Callable[[], Line[Any]]]


def lines_of(api: Api) -> Lines:
    """Return how each kind of target is called; `api` is for what only the API server reaches."""
    return {HttpTarget: HttpLine, GrpcTarget: _grpc_line, SignalTarget: lambda: SignalLine(api)}


class Switchboard:
    """All lines of a term. A line is made when its first target comes; none that leads to an address knows a credential."""

    def __init__(self, lines: Lines, max_calls: int = _MAX_CALLS) -> None:
        self._makers = lines
        self._lines: dict[type[Target], Line[Any]] = {}
        self._slots = Slots(max_calls, share=max(1, max_calls // 2))

    async def ask(self, target: Target, request: Request, timeout_seconds: float, *, tenant: str = "") -> Reply:
        """Ask for a checkpoint."""
        line, slot = self._line(target), self._slots.hold(Urgency.TELL, tenant)
        return await _call(
            slot, lambda: line.ask(target, request, timeout_seconds), timeout_seconds, Heard.NOT_RECEIVED
        )

    async def look(self, target: Target, eviction_id: str, timeout_seconds: float, *, tenant: str = "") -> Reply:
        """Ask how far it is; without effect on the workload."""
        line, slot = self._line(target), self._slots.hold(Urgency.NOTE, tenant)
        return await _call(slot, lambda: line.look(target, eviction_id, timeout_seconds), timeout_seconds, Heard.UNSURE)

    async def take_back(self, target: Target, eviction_id: str, timeout_seconds: float, *, tenant: str = "") -> None:
        """Say that the request is taken back, where the carrier has a word for it."""
        line = self._line(target)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds), self._slots.hold(Urgency.END, tenant):
                await line.take_back(target, eviction_id, timeout_seconds)

    async def close(self) -> None:
        """Close all lines."""
        for line in self._lines.values():
            await line.close()

    def _line(self, target: Target) -> Line[Any]:
        kind = type(target)
        if kind not in self._lines:
            self._lines[kind] = self._makers[kind]()
        return self._lines[kind]


async def _call(
    slot: AbstractAsyncContextManager[None],
    call: Callable[[], Awaitable[Reply]],
    timeout_seconds: float,
    if_busy: Heard,
) -> Reply:
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(timeout_seconds):
                await stack.enter_async_context(slot)
        except TimeoutError:
            # Without this, workloads that hang would keep the others from their deadlines, not only from their hints.
            return Reply(if_busy, detail="too many calls are under way")
        return await call()

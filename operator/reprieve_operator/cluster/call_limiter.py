"""Limits concurrent calls: by priority, then round-robin between namespaces.

A semaphore would serve in the order of arrival. The second and third writes for the victims that
were marked first would then delay the notice of the others, and ten thousand victims of one
namespace would delay those of all other namespaces.
"""

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from weakref import WeakValueDictionary


class CallPriority(IntEnum):
    """What a call is for; the lowest number is served first."""

    NOTIFY = 0
    """The workload can be notified only after this read or write: its time to save begins then."""
    TERMINATE = 1
    """A preemptor waits for the capacity that the victim frees."""
    RECORD = 2
    """Only records or reads what has happened already."""
    EVENT = 3
    """Events."""


@dataclass(order=True, slots=True)
class _Waiter:
    priority: CallPriority
    round_number: int
    arrival: int
    """Decides between waiters of the same priority and round."""
    granted: "asyncio.Future[None]" = field(compare=False)


class CallLimiter:
    """A number of slots; a call holds one of them.

    With `limit_per_namespace`, a namespace has at most so many.
    """

    def __init__(self, limit: int, limit_per_namespace: int | None = None) -> None:
        self._free = limit
        self._busy_at = limit // 2
        self._limit_per_namespace = limit_per_namespace
        self._namespace_semaphores: WeakValueDictionary[str, asyncio.Semaphore] = (
            WeakValueDictionary()
        )
        self._waiters: list[_Waiter] = []
        self._arrivals = count()
        self._served_round = dict.fromkeys(CallPriority, 0)
        """Of the last waiter that was served."""
        self._namespace_rounds: dict[tuple[CallPriority, str], int] = {}
        """Of the last waiter of each namespace."""

    @property
    def is_busy(self) -> bool:
        """True if half of the slots are taken: calls that can wait would delay the others."""
        return self._free <= self._busy_at

    @contextlib.asynccontextmanager
    async def acquire(self, priority: CallPriority, namespace: str) -> AsyncIterator[None]:
        """Wait for a slot; it is free again at the end of the block."""
        async with self._namespace_slot(namespace):
            await self._acquire_slot(priority, namespace)
            try:
                yield
            finally:
                self._release_slot()

    def _namespace_slot(self, namespace: str) -> AbstractAsyncContextManager[object]:
        """Return the limit of one namespace.

        Without this, a namespace whose calls hang would hold all slots.
        """
        if self._limit_per_namespace is None:
            return nullcontext()
        return self._namespace_semaphores.setdefault(
            namespace, asyncio.Semaphore(self._limit_per_namespace)
        )

    async def _acquire_slot(self, priority: CallPriority, namespace: str) -> None:
        if self._free:
            self._free -= 1
            return
        # Each namespace has one waiter in a round: of n namespaces, each gets every n-th slot.
        round_number = (
            max(self._served_round[priority], self._namespace_rounds.get((priority, namespace), 0))
            + 1
        )
        self._namespace_rounds[priority, namespace] = round_number
        waiter = _Waiter(
            priority, round_number, next(self._arrivals), asyncio.get_running_loop().create_future()
        )
        heapq.heappush(self._waiters, waiter)
        try:
            await waiter.granted
        except asyncio.CancelledError:
            # Without this, a slot that was granted at the same moment would be lost.
            if waiter.granted.done() and not waiter.granted.cancelled():
                self._release_slot()
            raise

    def _release_slot(self) -> None:
        while self._waiters:
            waiter = heapq.heappop(self._waiters)
            if not waiter.granted.done():
                self._served_round[waiter.priority] = waiter.round_number
                waiter.granted.set_result(None)
                return
        self._free += 1
        self._namespace_rounds.clear()

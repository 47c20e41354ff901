"""So many calls at once, and who is next: the most urgent first, and among them the tenants by turns.

A semaphore would serve in the order of arrival: the second and third writes of the victims that were marked first would
keep the others from being told, and one tenant's ten thousand victims those of all others.
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
    """What a call is for; the lowest goes first."""

    NOTIFY = 0
    """The workload can only be told after it, be it read or written: its time to save begins then."""
    TERMINATE = 1
    """Somebody waits for what the victim will leave."""
    RECORD = 2
    """It only writes down, or looks at, what is so already."""
    EVENT = 3
    """Events."""


@dataclass(order=True, slots=True)
class _Waiter:
    priority: CallPriority
    round_number: int
    arrival: int
    """In the order of arrival."""
    granted: "asyncio.Future[None]" = field(compare=False)


class CallLimiter:
    """A number of slots; `hold` one for the time of a call. A tenant has `share` of them at most, where that is said."""

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
        """Of the last that was served."""
        self._namespace_rounds: dict[tuple[CallPriority, str], int] = {}
        """Of the last of each tenant that waits."""

    @property
    def is_busy(self) -> bool:
        """True where half of them are taken: what can wait would hold up what cannot."""
        return self._free <= self._busy_at

    @contextlib.asynccontextmanager
    async def acquire(self, priority: CallPriority, namespace: str) -> AsyncIterator[None]:
        """Wait for a slot, and free it with the block."""
        async with self._namespace_slot(namespace):
            await self._acquire_slot(priority, namespace)
            try:
                yield
            finally:
                self._release_slot()

    def _namespace_slot(self, namespace: str) -> AbstractAsyncContextManager[object]:
        """Return what keeps a tenant within its share. Without this, one whose calls hang would hold all slots."""
        if self._limit_per_namespace is None:
            return nullcontext()
        return self._namespace_semaphores.setdefault(
            namespace, asyncio.Semaphore(self._limit_per_namespace)
        )

    async def _acquire_slot(self, priority: CallPriority, namespace: str) -> None:
        if self._free:
            self._free -= 1
            return
        # A tenant that waits with more than one gets every n-th slot, as one of n.
        turn = (
            max(self._served_round[priority], self._namespace_rounds.get((priority, namespace), 0))
            + 1
        )
        self._namespace_rounds[priority, namespace] = turn
        mine = _Waiter(
            priority, turn, next(self._arrivals), asyncio.get_running_loop().create_future()
        )
        heapq.heappush(self._waiters, mine)
        try:
            await mine.granted
        except asyncio.CancelledError:
            # Without this, a slot that was handed over in the same moment would be lost.
            if mine.granted.done() and not mine.granted.cancelled():
                self._release_slot()
            raise

    def _release_slot(self) -> None:
        while self._waiters:
            waiting = heapq.heappop(self._waiters)
            if not waiting.granted.done():
                self._served_round[waiting.priority] = waiting.round_number
                waiting.granted.set_result(None)
                return
        self._free += 1
        self._namespace_rounds.clear()

"""Limits concurrent calls: by priority, then round-robin between namespaces.

A semaphore would serve in the order of arrival. The second and third writes for the victims that
were marked first would then delay the notice of the others, and ten thousand victims of one
namespace would delay those of all other namespaces.
"""

import asyncio
import contextlib
import heapq
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count

from . import namespace_slots
from .namespace_slots import NamespaceSlots


class CallPriority(IntEnum):
    """What a call is for; the lowest number is served first."""

    OVERDUE = 0
    """The victim's ceiling is near: it must go, whatever others wait for."""
    NOTIFY = 1
    """The workload can be notified only after this read or write: its time to save begins then."""
    TERMINATE = 2
    """A preemptor waits for the capacity that the victim frees."""
    RECORD = 3
    """Only records or reads what has happened already."""
    EVENT = 4
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

    A namespace whose caller notes how its calls end has fewer slots while the API server does not
    answer them in time, as with TCP. Without this, all calls of a large gang would time out, and be
    made again, all at once. The other namespaces keep theirs: it may be a webhook of that one
    namespace that does not answer.

    With `limit_per_namespace`, a namespace has at most so many. With `keeps_share_free`, it has at
    most its fair share, and a share is left for a namespace that begins to call.
    """

    def __init__(
        self,
        limit: int,
        limit_per_namespace: int | None = None,
        *,
        keeps_share_free: bool = False,
        first: int | None = None,
    ) -> None:
        """`first`: slots that a namespace begins with, where a share is kept free."""
        self._free = limit
        self._namespace_slots = NamespaceSlots(
            limit,
            namespace_slots.fair_share(limit, first)
            if keeps_share_free
            else namespace_slots.fixed(limit_per_namespace or sys.maxsize),
        )
        self._waiters: list[_Waiter] = []
        self._arrivals = count()
        self._served_round = dict.fromkeys(CallPriority, 0)
        """Of the last waiter that was served."""
        self._namespace_rounds: dict[tuple[CallPriority, str], int] = {}
        """Of the last waiter of each namespace."""

    def is_busy(self, namespace: str) -> bool:
        """True if calls of the namespace wait, or several namespaces have taken half of the slots.

        More calls of the namespace would then delay others. One whose calls hang delays no other.
        """
        slots = self._namespace_slots
        return slots.is_waiting(namespace) or slots.is_half_taken

    def count(self, namespace: str) -> int:
        """Return how many calls of the namespace are in progress or wait."""
        return self._namespace_slots.count(namespace)

    def note_overload(self, namespace: str) -> None:
        """Note that a call in progress was not answered in time, or refused as one too many."""
        self._namespace_slots.note_overload(namespace)

    def note_success(self, namespace: str) -> None:
        """Note that a call in progress has succeeded."""
        self._namespace_slots.note_success(namespace)

    @contextlib.asynccontextmanager
    async def acquire(self, priority: CallPriority, namespace: str) -> AsyncIterator[None]:
        """Wait for a slot; it is free again at the end of the block."""
        await self.wait(priority, namespace)
        try:
            yield
        finally:
            self.release(namespace)

    def try_acquire(self, namespace: str) -> bool:
        """Take a slot if one is free now; `release` returns it."""
        if self._free <= 0 or not self._namespace_slots.try_take(namespace):
            return False
        self._free -= 1
        return True

    async def wait(self, priority: CallPriority, namespace: str) -> None:
        """Wait for a slot and take it; `release` returns it."""
        # Without a limit for each namespace, one whose calls hang would hold all slots.
        await self._namespace_slots.take(priority, namespace)
        try:
            await self._acquire_slot(priority, namespace)
        except asyncio.CancelledError:
            self._namespace_slots.give_back(namespace)
            raise

    def release(self, namespace: str) -> None:
        """Return a slot."""
        self._release_slot()
        self._namespace_slots.give_back(namespace)

    async def _acquire_slot(self, priority: CallPriority, namespace: str) -> None:
        if self._free > 0:
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
        self._free += 1
        self._serve_waiters()

    def _serve_waiters(self) -> None:
        while self._free > 0 and self._waiters:
            waiter = heapq.heappop(self._waiters)
            if not waiter.granted.done():
                self._served_round[waiter.priority] = waiter.round_number
                self._free -= 1
                waiter.granted.set_result(None)
        if self._free > 0:
            self._namespace_rounds.clear()


class CallTicket:
    """A slot for one call, or a place in the queue for it.

    So a victim waits for its call before its time begins, and keeps its place meanwhile.
    """

    def __init__(
        self,
        limiter: CallLimiter,
        priority: CallPriority,
        namespace: str,
        on_granted: Callable[[], None],
    ) -> None:
        self._limiter, self._namespace, self._on_granted = limiter, namespace, on_granted
        self.is_granted = limiter.try_acquire(namespace)
        self._waiting = None if self.is_granted else asyncio.create_task(self._wait(priority))

    def release(self) -> None:
        """Return the slot, or leave the queue; the second time, nothing happens."""
        if self.is_granted:
            self.is_granted = False
            self._limiter.release(self._namespace)
        elif self._waiting is not None:
            self._waiting.cancel()

    async def _wait(self, priority: CallPriority) -> None:
        await self._limiter.wait(priority, self._namespace)
        self.is_granted = True
        self._on_granted()

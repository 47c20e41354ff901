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


class Urgency(IntEnum):
    """What a call is for; the lowest goes first."""

    TELL = 0
    """The workload can only be told after it, be it read or written: its time to save begins then."""
    END = 1
    """Somebody waits for what the victim will leave."""
    NOTE = 2
    """It only writes down, or looks at, what is so already."""
    STORY = 3
    """Events."""


@dataclass(order=True, slots=True)
class _Waiting:
    urgency: Urgency
    turn: int
    number: int
    """In the order of arrival."""
    is_next: "asyncio.Future[None]" = field(compare=False)


class Slots:
    """A number of slots; `hold` one for the time of a call. A tenant has `share` of them at most, where that is said."""

    def __init__(self, limit: int, share: int | None = None) -> None:
        self._free = limit
        self._many = limit // 2
        self._share = share
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._waiting: list[_Waiting] = []
        self._numbers = count()
        self._turn = dict.fromkeys(Urgency, 0)
        """Of the last that was served."""
        self._turns: dict[tuple[Urgency, str], int] = {}
        """Of the last of each tenant that waits."""

    @property
    def are_scarce(self) -> bool:
        """True where half of them are taken: what can wait would hold up what cannot."""
        return self._free <= self._many

    @contextlib.asynccontextmanager
    async def hold(self, urgency: Urgency, tenant: str) -> AsyncIterator[None]:
        """Wait for a slot, and free it with the block."""
        async with self._shared(tenant):
            await self._take(urgency, tenant)
            try:
                yield
            finally:
                self._give_back()

    def _shared(self, tenant: str) -> AbstractAsyncContextManager[object]:
        """Return what keeps a tenant within its share. Without this, one whose calls hang would hold all slots."""
        if self._share is None:
            return nullcontext()
        return self._own.setdefault(tenant, asyncio.Semaphore(self._share))

    async def _take(self, urgency: Urgency, tenant: str) -> None:
        if self._free:
            self._free -= 1
            return
        # A tenant that waits with more than one gets every n-th slot, as one of n.
        turn = max(self._turn[urgency], self._turns.get((urgency, tenant), 0)) + 1
        self._turns[urgency, tenant] = turn
        mine = _Waiting(urgency, turn, next(self._numbers), asyncio.get_running_loop().create_future())
        heapq.heappush(self._waiting, mine)
        try:
            await mine.is_next
        except asyncio.CancelledError:
            # Without this, a slot that was handed over in the same moment would be lost.
            if mine.is_next.done() and not mine.is_next.cancelled():
                self._give_back()
            raise

    def _give_back(self) -> None:
        while self._waiting:
            waiting = heapq.heappop(self._waiting)
            if not waiting.is_next.done():
                self._turn[waiting.urgency] = waiting.turn
                waiting.is_next.set_result(None)
                return
        self._free += 1
        self._turns.clear()

"""How many slots of a `CallLimiter` each namespace may have, and which of its calls wait."""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

FIRST_SHARE = 16
"""A namespace begins with one slot in so many."""

LimitOf = Callable[[int, int], int]
"""The limit of one namespace, by the number of namespaces that are calling, this one included, and
by how many of its calls have ended since it began to call."""


def fixed(limit: int) -> LimitOf:
    """Return a limit that is the same at any time."""
    return lambda _namespaces, _ended: limit


def fair_share(slots: int) -> LimitOf:
    """Return a limit that leaves a share free: of n namespaces, each has at most 1/(n+1).

    So a namespace that begins to call finds a slot at once, also where all calls of the others
    hang. A namespace begins with a small part, and gets one slot more for each call that ends: of
    calls that hang, the time-out decides how fast. Without this, a namespace that calls alone, and
    hangs, would have half of all slots before the next one comes, and a few such namespaces all.
    """
    return lambda namespaces, ended: max(
        1, min(slots // FIRST_SHARE + ended, slots // (namespaces + 1))
    )


@dataclass(order=True, slots=True)
class _SlotRequest:
    priority: int
    arrival: int
    granted: "asyncio.Future[None]" = field(compare=False)


@dataclass(slots=True)
class _NamespaceUsage:
    taken: int = 0
    ended: int = 0
    waiters: list[_SlotRequest] = field(default_factory=list)


class NamespaceSlots:
    """Counts what each namespace has; its waiters are served by priority, then by arrival."""

    def __init__(self, limit_of: LimitOf) -> None:
        self._limit_of = limit_of
        self._namespaces: dict[str, _NamespaceUsage] = {}
        """Those that call, or wait to."""
        self._arrivals = count()
        self._waiting = 0
        """Requests of all namespaces that wait."""

    def try_take(self, name: str) -> bool:
        """Take a slot, if the namespace may have one more now."""
        namespace = self._namespaces.setdefault(name, _NamespaceUsage())
        if self._has_room(namespace):
            namespace.taken += 1
            return True
        return False

    async def take(self, priority: int, name: str) -> None:
        """Wait until the namespace may have one more slot, and take it."""
        if self.try_take(name):
            return
        waiter = _SlotRequest(
            priority, next(self._arrivals), asyncio.get_running_loop().create_future()
        )
        heapq.heappush(self._namespaces[name].waiters, waiter)
        self._waiting += 1
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self.give_back(name)
            elif waiter in self._namespaces[name].waiters:
                self._drop_waiter(name, waiter)
            raise

    def give_back(self, name: str) -> None:
        """Return a slot; the next waiter gets it."""
        namespace = self._namespaces[name]
        namespace.taken -= 1
        namespace.ended += 1
        self._serve(namespace)
        self._forget_if_idle(name)

    def _drop_waiter(self, name: str, waiter: _SlotRequest) -> None:
        namespace = self._namespaces[name]
        namespace.waiters.remove(waiter)
        self._waiting -= 1
        heapq.heapify(namespace.waiters)
        self._forget_if_idle(name)

    def _forget_if_idle(self, name: str) -> None:
        namespace = self._namespaces[name]
        if namespace.taken or namespace.waiters:
            return
        del self._namespaces[name]
        # The others share what it had.
        for other in self._namespaces.values() if self._waiting else ():
            self._serve(other)

    def _serve(self, namespace: _NamespaceUsage) -> None:
        while namespace.waiters and self._has_room(namespace):
            waiter = heapq.heappop(namespace.waiters)
            self._waiting -= 1
            if not waiter.granted.done():
                namespace.taken += 1
                waiter.granted.set_result(None)

    def _has_room(self, namespace: _NamespaceUsage) -> bool:
        return namespace.taken < self._limit_of(len(self._namespaces), namespace.ended)

"""How many slots of a `CallLimiter` each namespace may have, and which of its calls wait."""

import asyncio
import heapq
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

FIRST_SHARE = 16
"""A namespace begins with one slot in so many."""
MIN_CALLS = 4
"""Calls of a namespace that are made at a time, however slow the API server is to answer them."""
_COUNTED_PART = 4
"""Of one namespace, one slot in so many counts as taken at most: two of them make half."""
_MIN_KEPT_REQUESTS = 16
"""Requests that were given up are removed once they are more than these, and most of all."""

LimitOf = Callable[[int, int, int], int]
"""The limit of one namespace, by the number of namespaces that are calling, this one included, by
how many of its calls have ended since it began to call, and by how many slots are free."""


def fixed(limit: int) -> LimitOf:
    """Return a limit that is the same at any time."""
    return lambda _namespaces, _ended, _free: limit


def fair_share(slots: int, first: int | None = None) -> LimitOf:
    """Return a limit that leaves a share free: of n namespaces, each has at most 1/(n+1).

    So a namespace that begins to call finds a slot at once, also where all calls of the others
    hang. A namespace begins with a small part (`first` slots), and gets one slot more for each call
    that ends: of calls that hang, the time-out decides how fast. It never has more than it leaves
    free. Without these two, a namespace that calls alone, and hangs, would have half of all slots
    before the next one comes, and a few such namespaces all.
    """
    begins_with = slots // FIRST_SHARE if first is None else first
    return lambda namespaces, ended, free: max(
        1, min(begins_with + ended, slots // (namespaces + 1), free)
    )


@dataclass(order=True, slots=True)
class _SlotRequest:
    priority: int
    arrival: int
    granted: "asyncio.Future[None]" = field(compare=False)


@dataclass(slots=True)
class _NamespaceUsage:
    name: str
    taken: int = 0
    ended: int = 0
    waiting: int = 0
    most: int = sys.maxsize
    """Calls at a time, since some of them were not answered in time."""
    ignored: int = 0
    """Calls in progress that were so already as one was not answered: they tell nothing new."""
    succeeded: int = 0
    """Since `most` has changed."""
    requests: list[_SlotRequest] = field(default_factory=list)
    """A heap; some of its requests may have been given up."""
    queued_with: int | None = None
    """How many slots it has, while requests of it wait."""

    def remove_given_up(self) -> None:
        if len(self.requests) > _MIN_KEPT_REQUESTS + 2 * self.waiting:
            self.requests = [request for request in self.requests if not request.granted.done()]
            heapq.heapify(self.requests)


class NamespaceSlots:
    """Counts what each namespace has; its requests are granted by priority, then by arrival."""

    def __init__(self, slots: int, limit_of: LimitOf) -> None:
        self._slots = self._free = slots
        self._limit_of = limit_of
        self._namespaces: dict[str, _NamespaceUsage] = {}
        """Those that call, or wait to."""
        self._waiting: dict[int, dict[str, _NamespaceUsage]] = {}
        """Those of which requests wait, by how many slots they have. Without this, each slot that
        is returned would be offered to all: with a thousand namespaces, most of them wait."""
        self._counted = 0
        """Slots that are taken, as `is_half_taken` counts them."""
        self._arrivals = count()

    def count(self, name: str) -> int:
        """Return how many slots the namespace has or waits for."""
        namespace = self._namespaces.get(name)
        return 0 if namespace is None else namespace.taken + namespace.waiting

    def is_waiting(self, name: str) -> bool:
        """True if the namespace waits for a slot of its own."""
        namespace = self._namespaces.get(name)
        return namespace is not None and namespace.waiting > 0

    @property
    def is_half_taken(self) -> bool:
        """True if at least two namespaces have taken half of the slots."""
        return self._counted >= self._slots // 2

    def note_overload(self, name: str) -> None:
        """Halve the namespace's calls: one was not answered in time, or refused as one too many.

        Those that are in progress at that moment tell the same, so their results do not count.
        """
        namespace = self._namespaces[name]
        if namespace.ignored:
            return
        namespace.ignored, namespace.succeeded = namespace.taken, 0
        namespace.most = max(MIN_CALLS, min(namespace.most, namespace.taken) // 2)

    def note_success(self, name: str) -> None:
        """Allow one call more, once as many as are made at a time have succeeded."""
        namespace = self._namespaces[name]
        if namespace.ignored or namespace.most >= self._slots:
            return
        namespace.succeeded += 1
        if namespace.succeeded >= namespace.most:
            namespace.most, namespace.succeeded = namespace.most + 1, 0

    def try_take(self, name: str) -> bool:
        """Take a slot, if the namespace may have one more now."""
        namespace = self._namespaces.setdefault(name, _NamespaceUsage(name))
        if not self._has_room(namespace):
            return False
        self._change(namespace, taken=1)
        return True

    async def take(self, priority: int, name: str) -> None:
        """Wait until the namespace may have one more slot, and take it."""
        if self.try_take(name):
            return
        namespace = self._namespaces[name]
        request = _SlotRequest(
            priority, next(self._arrivals), asyncio.get_running_loop().create_future()
        )
        heapq.heappush(namespace.requests, request)
        self._change(namespace, waiting=1)
        try:
            await request.granted
        except asyncio.CancelledError:
            if request.granted.cancelled():
                self._change(namespace, waiting=-1)
                namespace.remove_given_up()
                self._forget_if_idle(name)
            else:
                self.give_back(name)
            raise

    def give_back(self, name: str) -> None:
        """Return a slot; requests that waited for it are granted."""
        namespace = self._namespaces[name]
        self._change(namespace, taken=-1)
        namespace.ended += 1
        namespace.ignored = max(0, namespace.ignored - 1)
        self._forget_if_idle(name)
        for one in self._waiting_below(self._limit(sys.maxsize)):
            self._grant(one)

    def _waiting_below(self, taken: int) -> list[_NamespaceUsage]:
        """Return those that wait and have fewer slots; those that have least come first."""
        below = sorted(number for number in self._waiting if number < taken)
        return [one for number in below for one in self._waiting[number].values()]

    def _forget_if_idle(self, name: str) -> None:
        namespace = self._namespaces[name]
        if not (namespace.taken or namespace.waiting):
            del self._namespaces[name]

    def _grant(self, namespace: _NamespaceUsage) -> None:
        while namespace.requests and self._has_room(namespace):
            request = heapq.heappop(namespace.requests)
            if not request.granted.done():
                self._change(namespace, taken=1, waiting=-1)
                request.granted.set_result(None)

    def _change(self, namespace: _NamespaceUsage, *, taken: int = 0, waiting: int = 0) -> None:
        counted = self._counted_of(namespace)
        namespace.taken += taken
        namespace.waiting += waiting
        self._counted += self._counted_of(namespace) - counted
        self._free -= taken
        queued_with = namespace.taken if namespace.waiting else None
        if queued_with != namespace.queued_with:
            self._requeue(namespace, queued_with)

    def _counted_of(self, namespace: _NamespaceUsage) -> int:
        return min(namespace.taken, self._slots // _COUNTED_PART)

    def _requeue(self, namespace: _NamespaceUsage, queued_with: int | None) -> None:
        if namespace.queued_with is not None:
            others = self._waiting[namespace.queued_with]
            del others[namespace.name]
            if not others:
                del self._waiting[namespace.queued_with]
        if queued_with is not None:
            self._waiting.setdefault(queued_with, {})[namespace.name] = namespace
        namespace.queued_with = queued_with

    def _has_room(self, namespace: _NamespaceUsage) -> bool:
        return namespace.taken < min(self._limit(namespace.ended), namespace.most)

    def _limit(self, ended: int) -> int:
        return self._limit_of(len(self._namespaces), ended, self._free)

"""Bounds the bytes of large request bodies that are under way, in all and per peer.

A body is under way from the first byte that is read until its response. One that does not fit waits
unread, in its connection: those of trusted clients go first, then the smallest. A body of
`SMALL_BYTES` or less never waits; the number of connections bounds these.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Hashable
from itertools import count
from typing import NamedTuple

SMALL_BYTES = 64 * 1024
"""The usual review of a pod has 4 to 30 KB."""


class Client(NamedTuple):
    """Who sends a body."""

    connection: Hashable
    peer: str
    is_trusted: bool = False


class _Waiting(NamedTuple):
    """One body that waits; the least goes first."""

    is_untrusted: bool
    size: int
    order: int
    client: Client
    granted: "asyncio.Future[None]"


class BodyBudget:
    """The bytes under way, by connection and peer, and the bodies that wait for room."""

    def __init__(self, *, in_all: int, per_peer: int) -> None:
        self._in_all, self._per_peer = in_all, per_peer
        self._held: dict[Hashable, tuple[str, int]] = {}
        self._used = 0
        self._used_by: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []
        self._order = count()

    async def reserve(self, client: Client, size: int) -> None:
        """Wait until a body of this size fits; cancel to give up."""
        granted = asyncio.get_running_loop().create_future()
        heapq.heappush(
            self._waiting,
            _Waiting(not client.is_trusted, size, next(self._order), client, granted),
        )
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            self.release(client.connection)
            raise

    def release(self, connection: Hashable) -> None:
        """Give back what a connection holds, if anything, and let bodies that wait have it."""
        peer, size = self._held.pop(connection, ("", 0))
        if size:
            self._count(peer, -size)
            self._grant()

    def is_used_by(self, peer: str) -> bool:
        """Return whether bodies of this peer are under way."""
        return self._used_by[peer] > 0

    def _grant(self) -> None:
        """Grant what fits, in order. A peer whose share is used up holds up no other."""
        kept = []
        while self._waiting:
            first = heapq.heappop(self._waiting)
            if first.granted.done():  # it gave up
                continue
            if self._used + first.size > self._in_all:
                kept.append(first)
                break
            if self._fits_share(first):
                self._held[first.client.connection] = (first.client.peer, first.size)
                self._count(first.client.peer, first.size)
                first.granted.set_result(None)
            else:
                kept.append(first)
        for waiting in kept:
            heapq.heappush(self._waiting, waiting)

    def _fits_share(self, body: _Waiting) -> bool:
        return (
            body.client.is_trusted or self._used_by[body.client.peer] + body.size <= self._per_peer
        )

    def _count(self, peer: str, size: int) -> None:
        self._used += size
        self._used_by[peer] += size
        if not self._used_by[peer]:
            del self._used_by[peer]

"""Bounds the bytes of large request bodies that are under way, in all and per peer.

Another budget bounds in the same way what they decode to (`decoded_size`).

A body is under way from the first byte that is read until its response. One that does not fit waits
unread, in its connection: those of trusted clients go first. The others go in the order in which
they would end if all peers were served at the same rate (self-clocked fair queueing): so a small
body goes before large ones, and a peer that sends many does not hold up one that sends few. A body
of `SMALL_BYTES` or less never waits; the number of connections bounds these.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Hashable
from itertools import count
from typing import NamedTuple

SMALL_BYTES = 64 * 1024
"""The usual review of a pod has 4 to 30 KB."""
HURRIED_SECONDS = 1.0
"""For a body to come, once its room is taken and others wait for it. API servers give up a review
after 3 s. Without this, two clients that send bodies without their last byte would keep all room
for the whole time of a body."""


class Client(NamedTuple):
    """Who sends a body."""

    connection: Hashable
    peer: str
    is_trusted: bool = False


class _Waiting(NamedTuple):
    """One body that waits; the least goes first."""

    is_untrusted: bool
    turn: int
    """Its size, added to the turn of the body before it: of the last one that found room, or of the
    same peer, if that is later."""
    order: int
    client: Client
    size: int
    limit: asyncio.Timeout | None
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
        self._turn = 0
        """The turn of the last body that found room."""
        self._turns: dict[str, int] = {}
        """The last turn of each peer that is ahead of it."""
        self._unhurried: dict[Hashable, tuple[asyncio.Timeout, float]] = {}
        """The limits of the bodies that are being read, and when they found room."""

    def try_reserve(self, client: Client, size: int) -> bool:
        """Take room if there is some and no other body waits; return whether it is taken."""
        fits = not self._waiting and self._used + size <= self._in_all
        if not fits or not self._fits_share(client, size):
            return False
        self._hold(client, size)
        return True

    async def reserve(
        self, client: Client, size: int, limit: asyncio.Timeout | None = None
    ) -> None:
        """Wait until a body of this size fits; cancel to give up.

        The limit of the time in which the body is read ends early while others wait, unless the
        client is trusted, until `finish_reading`.
        """
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        self._turns = {peer: turn for peer, turn in self._turns.items() if turn > self._turn}
        turn = self._turns.get(client.peer, self._turn) + size
        self._turns[client.peer] = turn
        heapq.heappush(
            self._waiting,
            _Waiting(not client.is_trusted, turn, next(self._order), client, size, limit, granted),
        )
        self._grant(loop.time())
        try:
            await granted
        except asyncio.CancelledError:
            self.give_up(client.connection)
            self.release(client.connection)
            raise

    def release(self, connection: Hashable) -> None:
        """Give back what a connection holds, if anything, and let bodies that wait have it."""
        self._unhurried.pop(connection, None)
        peer, size = self._held.pop(connection, ("", 0))
        if size:
            self._count(peer, -size)
            self._grant(asyncio.get_running_loop().time())

    def give_up(self, connection: Hashable) -> None:
        """Have a connection that is gone wait no longer; it keeps what it holds until `release`."""
        gone = [each for each in self._waiting if each.client.connection is connection]
        for waiting in gone:
            waiting.granted.cancel()
            self._waiting.remove(waiting)
        if gone:
            heapq.heapify(self._waiting)
            # Those behind it may fit.
            self._grant(asyncio.get_running_loop().time())

    def finish_reading(self, connection: Hashable) -> None:
        """Note that the body of a connection has come; it keeps its room until `release`."""
        self._unhurried.pop(connection, None)

    def is_used_by(self, peer: str) -> bool:
        """Return whether bodies of this peer are under way."""
        return self._used_by[peer] > 0

    def _grant(self, now: float) -> None:
        """Grant what fits, in order. A peer whose share is used up holds up no other."""
        kept = []
        while self._waiting:
            first = heapq.heappop(self._waiting)
            if first.granted.done():  # it gave up
                continue
            if self._used + first.size > self._in_all:
                kept.append(first)
                self._hurry()
                break
            if self._fits_share(first.client, first.size):
                self._hold(first.client, first.size)
                self._turn = max(self._turn, first.turn)
                if first.limit is not None and first.is_untrusted:
                    self._unhurried[first.client.connection] = (first.limit, now)
                first.granted.set_result(None)
            else:
                kept.append(first)
        for waiting in kept:
            heapq.heappush(self._waiting, waiting)

    def _hurry(self) -> None:
        for limit, since in self._unhurried.values():
            until, hurried = limit.when(), since + HURRIED_SECONDS
            if not limit.expired() and (until is None or until > hurried):
                limit.reschedule(hurried)
        self._unhurried.clear()

    def _fits_share(self, client: Client, size: int) -> bool:
        return client.is_trusted or self._used_by[client.peer] + size <= self._per_peer

    def _hold(self, client: Client, size: int) -> None:
        self._held[client.connection] = (client.peer, size)
        self._count(client.peer, size)

    def _count(self, peer: str, size: int) -> None:
        self._used += size
        self._used_by[peer] += size
        if not self._used_by[peer]:
            del self._used_by[peer]

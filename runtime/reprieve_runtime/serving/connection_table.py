"""Which connections a port holds, and which of them makes room where there are too many."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")
_RECENT_SECONDS = 1.0
"""Clients use the connection again that they used last: one that is unused for longer is hardly
used at the moment when it is closed."""


@dataclass(slots=True)
class _Connection:
    peer: str
    used_at: float
    is_asking: bool = False
    """A request has begun to come, and is not answered."""
    is_busy: bool = False
    """Its whole request has come: the server owes the response."""


class ConnectionTable(Generic[K]):
    """The connections of a port, by last use: the first was unused for longest.

    A connection waits for its client until a whole request has come on it: for TLS, for a request,
    or for the rest of a body. Of those that wait, the one that was unused for longest makes room,
    whosever it is: so clients with many addresses cannot crowd out one that uses its connections.
    Where none was unused for more than a second, an address that has more than half of all makes
    room: so one that opens thousands in a second closes its own.
    """

    def __init__(self, *, most: int, most_of_peer: int, now: Callable[[], float]) -> None:
        self._most, self._most_of_peer, self._now = most, most_of_peer, now
        self._connections: dict[K, _Connection] = {}
        self._counts: Counter[str] = Counter()

    def add(self, key: K, peer: str) -> K | None:
        """Count a new connection; return the one to close, which no longer counts."""
        self._connections[key] = _Connection(peer, self._now())
        self._counts[peer] += 1
        chosen = None
        if self._counts[peer] > self._most_of_peer:
            own = [each for each, of in self._connections.items() if of.peer == peer]
            chosen = self._one_to_close(own)
        elif len(self._connections) > self._most:
            chosen = self._one_to_close(self._connections)
        if chosen is not None:
            self.discard(chosen)
        return chosen

    def discard(self, key: K) -> None:
        """Forget a connection, if it counts."""
        connection = self._connections.pop(key, None)
        if connection is not None:
            self._counts[connection.peer] -= 1
            if not self._counts[connection.peer]:
                del self._counts[connection.peer]

    def begin_request(self, key: K, *, is_whole: bool) -> None:
        """Note that the head of a request has come, and whether its body has, too."""
        self._use(key, is_asking=True, is_busy=is_whole)

    def has_whole_request(self, key: K) -> None:
        """Note that the body has come, too; nothing if the request was answered before."""
        connection = self._connections.get(key)
        if connection is not None:
            connection.is_busy = connection.is_asking

    def end_request(self, key: K) -> None:
        """Note that a request is answered, also one that was answered as soon as it came."""
        self._use(key, is_asking=False, is_busy=False)

    def _use(self, key: K, *, is_asking: bool, is_busy: bool) -> None:
        connection = self._connections.pop(key, None)
        if connection is not None:
            connection.is_asking, connection.is_busy = is_asking, is_busy
            connection.used_at = self._now()
            self._connections[key] = connection

    def _one_to_close(self, among: Collection[K]) -> K:
        # Never empty: the new connection waits.
        waiting = [key for key in among if not self._connections[key].is_busy]
        longest = waiting[0]
        if self._now() - self._connections[longest].used_at > _RECENT_SECONDS:
            return longest
        crowd, size = self._counts.most_common(1)[0]
        if 2 * size <= len(self._connections):
            return longest
        return next((key for key in waiting if self._connections[key].peer == crowd), longest)

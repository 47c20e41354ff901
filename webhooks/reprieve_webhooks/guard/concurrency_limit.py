"""Limits how many calls are under way at once, in all and for each namespace."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class TooManyCallsError(Exception):
    """The limit leaves no place for a call of this namespace now."""


class ConcurrencyLimiter:
    """Counts the calls that are under way; none waits for a place.

    A namespace may take a place while it has fewer than are free: one that is alone gets half of
    them at most, a second one a quarter, and so on. Without this, a namespace whose calls hang
    would leave none to the others.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place(self, namespace: str) -> Iterator[None]:
        """Hold a place during a call, however the call ends; raise `TooManyCallsError`."""
        if self._taken[namespace] >= self._free:
            raise TooManyCallsError
        self._free -= 1
        self._taken[namespace] += 1
        try:
            yield
        finally:
            self._free += 1
            # Also forgets a namespace that has none any more.
            self._taken -= Counter((namespace,))

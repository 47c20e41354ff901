"""Of which nodes a scheduler was told that they have room for its preemptor.

A pod may have ended since it looked: it looks again, and finds the room. Where it asks for victims there all the same, it knows of
limits that are not judged here. Known to the replica that was asked and no other: where it is missing, it is told once more.
"""

import time
from collections.abc import Callable, Iterable

REMEMBERED_SECONDS = 600.0
"""A scheduler tries a pod again after five minutes at the latest, and may have others to try before."""
_MOST = 50_000
"""In all; some 12 MB."""
_MOST_OF_ONE = 50
"""Nodes of one preemptor, by name, so that they are the same each time: enough to choose from."""


class RoomsTold:
    """What was told, as long as it can matter."""

    def __init__(self, *, most: int = _MOST, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most, self._monotonic = most, monotonic
        self._told: dict[tuple[str, str], float] = {}
        """By preemptor and node, when; what was told last is last."""

    def remember(self, preemptor_uid: str, nodes: Iterable[str]) -> None:
        """Take in what was just told of these nodes."""
        now = self._monotonic()
        for node in sorted(nodes)[:_MOST_OF_ONE]:
            self._told.pop((preemptor_uid, node), None)
            self._told[preemptor_uid, node] = now
        self._expire()

    def of(self, preemptor_uid: str, nodes: Iterable[str]) -> frozenset[str]:
        """Return those of the nodes that have room for this preemptor, as its scheduler was told."""
        self._expire()
        return frozenset(node for node in nodes if (preemptor_uid, node) in self._told)

    def _expire(self) -> None:
        """Forget what is old, and the oldest of what is too much."""
        oldest_allowed = self._monotonic() - REMEMBERED_SECONDS
        while self._told:
            oldest = next(iter(self._told))
            if self._told[oldest] > oldest_allowed and len(self._told) <= self._most:
                return
            del self._told[oldest]

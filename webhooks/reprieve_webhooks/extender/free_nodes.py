"""Of which nodes a scheduler was told that they have room for its preemptor.

A pod may have ended since it looked: it looks again, and finds the room. Where it asks for victims there all the same, it knows of
limits that are not judged here. Known to the replica that was asked and no other: where it is missing, it is told once more.
"""

import time
from collections.abc import Callable, Iterable

TTL_SECONDS = 600.0
"""A scheduler tries a pod again after five minutes at the latest, and may have others to try before."""
_MAX_ENTRIES = 50_000
"""In all; some 12 MB."""
_MAX_NODES_PER_PREEMPTOR = 50
"""Nodes of one preemptor, by name, so that they are the same each time: enough to choose from."""


class ReportedFreeNodes:
    """What was told, as long as it can matter."""

    def __init__(
        self, *, max_entries: int = _MAX_ENTRIES, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_entries, self._monotonic = max_entries, monotonic
        self._reported_at: dict[tuple[str, str], float] = {}
        """By preemptor and node, when; what was told last is last."""

    def record(self, preemptor_uid: str, nodes: Iterable[str]) -> None:
        """Take in what was just told of these nodes."""
        now = self._monotonic()
        for node in sorted(nodes)[:_MAX_NODES_PER_PREEMPTOR]:
            self._reported_at.pop((preemptor_uid, node), None)
            self._reported_at[preemptor_uid, node] = now
        self._expire()

    def filter(self, preemptor_uid: str, nodes: Iterable[str]) -> frozenset[str]:
        """Return those of the nodes that have room for this preemptor, as its scheduler was told."""
        self._expire()
        return frozenset(node for node in nodes if (preemptor_uid, node) in self._reported_at)

    def _expire(self) -> None:
        """Forget what is old, and the oldest of what is too much."""
        oldest_allowed = self._monotonic() - TTL_SECONDS
        while self._reported_at:
            oldest = next(iter(self._reported_at))
            if (
                self._reported_at[oldest] > oldest_allowed
                and len(self._reported_at) <= self._max_entries
            ):
                return
            del self._reported_at[oldest]

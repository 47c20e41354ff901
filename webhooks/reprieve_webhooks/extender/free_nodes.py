"""The nodes that the extender reported as having room for a preemptor without any victim.

A pod may have ended since the scheduler looked: it looks again, and finds the room. If it asks for
victims there again, it knows of limits that the extender does not check. Only the replica that
answered knows what it reported: another replica reports the node once more.
"""

import time
from collections.abc import Callable, Iterable

from reprieve_runtime.bounded_dict import BoundedDict

TTL_SECONDS = 600.0
"""A scheduler retries a pod after at most five minutes, and may have other pods to try before."""
_MAX_ENTRIES = 50_000
"""Pairs of preemptor and node; some 12 MB."""
_MAX_NODES_PER_PREEMPTOR = 50
"""Nodes of one preemptor, the first by name, so that they are the same each time: enough to choose
from."""


class ReportedFreeNodes:
    """The reports of the last `TTL_SECONDS`."""

    def __init__(
        self, *, max_entries: int = _MAX_ENTRIES, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._reported_at: BoundedDict[tuple[str, str], float] = BoundedDict(max_entries)
        """When, by preemptor and node; the latest report is last."""

    def record(self, preemptor_uid: str, nodes: Iterable[str]) -> None:
        """Remember the nodes that were just reported."""
        now = self._monotonic()
        for node in sorted(nodes)[:_MAX_NODES_PER_PREEMPTOR]:
            self._reported_at[preemptor_uid, node] = now
        self._expire()

    def filter(self, preemptor_uid: str, nodes: Iterable[str]) -> frozenset[str]:
        """Return those of the nodes that were reported as free for this preemptor."""
        self._expire()
        return frozenset(node for node in nodes if (preemptor_uid, node) in self._reported_at)

    def _expire(self) -> None:
        """Forget reports older than `TTL_SECONDS`; the oldest come first."""
        oldest_allowed = self._monotonic() - TTL_SECONDS
        while self._reported_at:
            oldest = next(iter(self._reported_at))
            if self._reported_at[oldest] > oldest_allowed:
                return
            del self._reported_at[oldest]

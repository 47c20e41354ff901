"""The walltimes of Jobs as they were seen first: whoever lengthens one gains nothing by it, until this process ends."""

from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Walltime

_MOST = 20_000
"""Jobs; those that were seen longest ago go first where there are more."""


class Walltimes:
    """By a Job's uid."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._first: dict[str, Walltime] = {}

    def take(self, uid: str, found: Walltime | None) -> Walltime | None:
        """Return how long a Job runs, as far as it counts; `found`: as it says now."""
        first = self._first.pop(uid, None)
        counts = walltime.as_known(first, found)
        # Also one that says nothing any more: it would say something else next.
        known = counts or first
        if known is not None:
            self._first[uid] = known
        while len(self._first) > self._most:
            del self._first[next(iter(self._first))]
        return counts

    def forget(self, uid: str) -> None:
        """Drop a Job that is gone."""
        self._first.pop(uid, None)

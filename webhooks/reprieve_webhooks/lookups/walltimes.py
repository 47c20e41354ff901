"""The walltimes of Jobs as they were seen first: whoever lengthens one gains nothing by it, until this process ends."""

from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Walltime

_MAX_JOBS = 20_000
"""Jobs; those that were seen longest ago go first where there are more."""


class FirstSeenWalltimes:
    """By a Job's uid."""

    def __init__(self, max_entries: int = _MAX_JOBS) -> None:
        self._max_entries = max_entries
        self._first_seen: dict[str, Walltime] = {}

    def observe(self, uid: str, found: Walltime | None) -> Walltime | None:
        """Return how long a Job runs, as far as it counts; `found`: as it says now."""
        first = self._first_seen.pop(uid, None)
        counts = walltime.as_known(first, found)
        # Also one that says nothing any more: it would say something else next.
        known = counts or first
        if known is not None:
            self._first_seen[uid] = known
        while len(self._first_seen) > self._max_entries:
            del self._first_seen[next(iter(self._first_seen))]
        return counts

    def forget(self, uid: str) -> None:
        """Drop a Job that is gone."""
        self._first_seen.pop(uid, None)

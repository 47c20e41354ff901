"""The walltimes of Jobs as first seen: to lengthen one gains nothing until this process ends."""

from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Walltime
from reprieve_runtime.bounded_dict import BoundedDict

_MAX_JOBS = 20_000
"""Jobs; beyond that, those seen longest ago are forgotten."""


class FirstSeenWalltimes:
    """By a Job's uid."""

    def __init__(self, max_entries: int = _MAX_JOBS) -> None:
        self._first_seen: BoundedDict[str, Walltime] = BoundedDict(max_entries)

    def observe(self, uid: str, current: Walltime | None) -> Walltime | None:
        """Return the walltime of a Job that counts; `current`: the one that it states now."""
        first = self._first_seen.get(uid)
        effective = walltime.as_known(first, current)
        # Also kept for a Job that states none any more: it could state a longer one next.
        known = effective or first
        if known is not None:
            self._first_seen[uid] = known
        return effective

    def forget(self, uid: str) -> None:
        """Drop a Job that no longer exists."""
        self._first_seen.pop(uid, None)

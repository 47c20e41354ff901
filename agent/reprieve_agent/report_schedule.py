"""When the agent reports that the workload saved: no files, no sockets, no clocks.

A save is known by the moment at which its file was written. The newest one is reported, at most one
in ten seconds; after a failure later and later.
"""

from collections.abc import Callable

MIN_INTERVAL_SECONDS = 10.0
_FIRST_RETRY_SECONDS = 20.0
"""Shortened by at most half, so that it is never less than the interval."""
_LONGEST_RETRY_SECONDS = 600.0
_LONGEST_WAIT_SECONDS = 3600.0
"""The longest wait that the service may ask for."""


class ReportSchedule:
    """What was reported, and when the next report may start; times are monotonic seconds."""

    def __init__(self, random_share: Callable[[], float]) -> None:
        """`random_share` returns a number from 0 to 1.

        Without it, the pods of a gang, which save together, would also retry together.
        """
        self._random_share = random_share
        self._reported: int | None = None
        self._not_before = 0.0
        self._retry_seconds = _FIRST_RETRY_SECONDS

    def is_due(self, saved_at: int | None, now: float) -> bool:
        """True if this save is to be reported now; `None`: the workload has not saved."""
        return saved_at is not None and saved_at != self._reported and now >= self._not_before

    def succeeded(self, saved_at: int, now: float) -> None:
        """Record that this save is known to Reprieve."""
        self._reported = saved_at
        self._retry_seconds = _FIRST_RETRY_SECONDS
        self._not_before = now + MIN_INTERVAL_SECONDS

    def failed(self, now: float, at_least_seconds: float = 0.0) -> None:
        """Wait before the next report; `at_least_seconds`: as the service asked."""
        delay = self._retry_seconds * (1 - self._random_share() / 2)
        self._not_before = now + max(delay, min(at_least_seconds, _LONGEST_WAIT_SECONDS))
        self._retry_seconds = min(2 * self._retry_seconds, _LONGEST_RETRY_SECONDS)

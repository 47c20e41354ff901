"""Retry delays: one exponential back-off with jitter, and its extension for watches."""

import random

from .client.api_error import ApiError

_FIRST_SECONDS = 0.2
_LAST_SECONDS = 15.0
_RELIST_STATUSES = frozenset({400, 404, 410})
"""The resource version is too old or invalid for this collection: a retry would fail again."""
_TOO_LARGE = "ResourceVersionTooLarge"
"""A status cause: etcd was restored to a version before the one that the watch starts from."""
_FAILURES_BEFORE_RELIST = 10
"""Errors in a row, about two minutes: the API server may fail because of this resource version."""


def jittered(seconds: float, share: float) -> float:
    """Return `seconds`, shortened at random by at most `share` of it."""
    return seconds * random.uniform(1 - share, 1.0)  # noqa: S311 - jitter, no secret


class Backoff:
    """Delays that double with each failure up to a longest one, each shortened at random.

    Without the jitter, all programs that lost the same API server would reconnect at once.
    """

    def __init__(
        self, first_seconds: float, longest_seconds: float, *, jitter: float = 0.5
    ) -> None:
        self._first_seconds, self._longest_seconds = first_seconds, longest_seconds
        self._jitter = jitter
        self._seconds = first_seconds

    def reset(self) -> None:
        """Start from the first delay again, after a success."""
        self._seconds = self._first_seconds

    def next_delay(self, at_least_seconds: float = 0.0) -> float:
        """Return how many seconds to wait now; the next delay is twice as long.

        `at_least_seconds` is what the server asked for; it never exceeds the longest delay.
        """
        seconds = jittered(self._seconds, self._jitter)
        self._seconds = min(self._seconds * 2, self._longest_seconds)
        return max(seconds, min(at_least_seconds, self._longest_seconds))


class WatchBackoff(Backoff):
    """The back-off of one watched collection, which also decides when to list it again.

    A temporary failure of the API server (no answer, 429, 5xx) is no reason to list again: after
    its recovery, all programs would list at once.
    """

    def __init__(self) -> None:
        super().__init__(_FIRST_SECONDS, _LAST_SECONDS)
        self._failures = 0

    def reset(self) -> None:
        """Start from the first delay again: the watch has delivered an event."""
        super().reset()
        self._failures = 0

    def must_relist(self, error: ApiError) -> bool:
        """Count a failure; return whether the watch cannot be resumed."""
        self._failures += error.status != 0
        causes = {reason for reason, _ in error.causes}
        return (
            error.status in _RELIST_STATUSES
            or _TOO_LARGE in causes
            or self._failures % _FAILURES_BEFORE_RELIST == _FAILURES_BEFORE_RELIST - 1
        )

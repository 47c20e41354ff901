"""How long to wait before something that failed is tried again: one back-off, with jitter."""

import random

from .client.api_error import ApiError

_FIRST_SECONDS = 0.2
_LAST_SECONDS = 15.0
_RELIST_STATUSES = frozenset({400, 404, 410})
"""The version is too old, or no version of this collection: no later try will be answered otherwise."""
_TOO_LARGE = "ResourceVersionTooLarge"
"""A cause: etcd was restored, and its versions are behind the one that is watched from."""
_FAILURES_BEFORE_RELIST = 10
"""Refusals in a row, some two minutes: some version may be what the API server stumbles over."""


class Backoff:
    """Delays that double with each failure up to a longest one, each shortened at random.

    Without the jitter, all programs that lost the same API server would return at once.
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
        share = random.uniform(1 - self._jitter, 1.0)  # noqa: S311 - jitter, no secret
        seconds = self._seconds * share
        self._seconds = min(self._seconds * 2, self._longest_seconds)
        return max(seconds, min(at_least_seconds, self._longest_seconds))


class WatchBackoff(Backoff):
    """The back-off of one watched collection, which also decides when to list it again.

    What is merely in the API server's way (no answer, 429, 5xx) is no reason to list all anew: once it is back, every
    program would do so at once.
    """

    def __init__(self) -> None:
        super().__init__(_FIRST_SECONDS, _LAST_SECONDS)
        self._failures = 0

    def reset(self) -> None:
        """Start again from the first delay: the watch has delivered something."""
        super().reset()
        self._failures = 0

    def must_relist(self, error: ApiError) -> bool:
        """Note a failure; true where its watch cannot be gone on with."""
        self._failures += error.status != 0
        causes = {reason for reason, _ in error.causes}
        return (
            error.status in _RELIST_STATUSES
            or _TOO_LARGE in causes
            or self._failures % _FAILURES_BEFORE_RELIST == _FAILURES_BEFORE_RELIST - 1
        )

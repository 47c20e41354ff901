"""Retry delays: one exponential back-off, with jitter."""

import random


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

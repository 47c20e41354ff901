"""The time in the cluster: this machine's clock, unless the API server's answers contradict it.

Pods hold deadlines as absolute times. The clock of a machine may be stepped: after a start with a
wrong clock, or when a virtual machine is moved. Its operator would then delete all victims at once,
or keep them an hour too long, and its successor on another machine would do the opposite. Each
answer of the API server has a `Date` in whole seconds: it bounds the server's clock relative to a
steady clock that cannot be set.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

_TOLERANCE_SECONDS = 5.0
"""While the two clocks differ by less, this machine's clock counts: it is more precise."""
_RESOLUTION_SECONDS = 1.0
_STEADY_CLOCK_ID = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Unlike the monotonic clock, it includes the time in which the machine is suspended."""


def _steady() -> float:
    return time.clock_gettime(_STEADY_CLOCK_ID)


def _wall() -> float:
    return time.time()


@lru_cache(maxsize=8)
def _seconds_of(date: str) -> float:
    """Return a `Date` as seconds since the epoch; all answers of one second have the same."""
    return parsedate_to_datetime(date).timestamp()


class ServerTime:
    """Bounds on the server's clock minus the steady clock; unbounded before the first answer."""

    def __init__(
        self, steady: Callable[[], float] = _steady, wall: Callable[[], float] = _wall
    ) -> None:
        self._steady = steady
        self._wall = wall
        self._min_offset, self._max_offset = float("-inf"), float("inf")

    def request_started(self) -> float:
        """Return the start time of a request, for `response_received`."""
        return self._steady()

    def response_received(self, date: str | None, started_at: float) -> None:
        """Update the bounds from the `Date` of a response; an unreadable date is ignored."""
        try:
            server_seconds = _seconds_of(date or "")
        except ValueError:
            return
        # The date was true at an instant between request and response, and for up to a second more.
        least = server_seconds - self._steady()
        most = server_seconds + _RESOLUTION_SECONDS - started_at
        if least > self._max_offset or most < self._min_offset:
            # The server's clock was set, or another server answers: the old bounds are invalid.
            self._min_offset, self._max_offset = least, most
        else:
            self._min_offset, self._max_offset = (
                max(least, self._min_offset),
                min(most, self._max_offset),
            )

    def now(self) -> datetime:
        """Return the time; if the clocks disagree, a time that the server's has surely reached."""
        steady, wall = self._steady(), self._wall()
        is_plausible = (
            self._min_offset - _TOLERANCE_SECONDS
            <= wall - steady
            <= self._max_offset + _TOLERANCE_SECONDS
        )
        return datetime.fromtimestamp(wall if is_plausible else steady + self._min_offset, UTC)

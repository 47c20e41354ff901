"""What time it is in the cluster: this machine's clock, unless the API server's answers say that it is wrong.

Deadlines stand on pods as absolute times, so an operator whose clock is stepped (a machine that starts with a wrong one
and is corrected, a virtual machine that is moved) would delete all victims at once, or keep them an hour too long, and
its successor on another machine would do the opposite. Each answer of the API server has a `Date` of whole seconds: it
bounds what its clock says against a clock that nobody can set.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_TOLERANCE_SECONDS = 5.0
"""As long as the two agree that well, this machine's clock counts: it has more than whole seconds."""
_RESOLUTION_SECONDS = 1.0
_STEADY_CLOCK_ID = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Unlike the monotonic one, it goes on while the machine is suspended, as deadlines do."""


def _steady() -> float:
    return time.clock_gettime(_STEADY_CLOCK_ID)


def _wall() -> float:
    return time.time()


class ServerTime:
    """Bounds of the difference between the API server's clock and the steady one; none before the first answer."""

    def __init__(
        self, steady: Callable[[], float] = _steady, wall: Callable[[], float] = _wall
    ) -> None:
        self._steady = steady
        self._wall = wall
        self._min_offset, self._max_offset = float("-inf"), float("inf")

    def request_started(self) -> float:
        """Return what `hear` wants to know of the moment before a question."""
        return self._steady()

    def response_received(self, date: str | None, asked_at: float) -> None:
        """Take in the `Date` of an answer; one that cannot be read says nothing."""
        try:
            said = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        # It was true at some instant between question and answer, and for up to a second after.
        least, most = said - self._steady(), said + _RESOLUTION_SECONDS - asked_at
        if least > self._max_offset or most < self._min_offset:
            # That clock was set, or another server answers: what was known of it is no longer so.
            self._min_offset, self._max_offset = least, most
        else:
            self._min_offset, self._max_offset = (
                max(least, self._min_offset),
                min(most, self._max_offset),
            )

    def now(self) -> datetime:
        """Return the time; where the clocks disagree, one that the API server's has certainly reached."""
        steady, wall = self._steady(), self._wall()
        is_good = (
            self._min_offset - _TOLERANCE_SECONDS
            <= wall - steady
            <= self._max_offset + _TOLERANCE_SECONDS
        )
        return datetime.fromtimestamp(wall if is_good else steady + self._min_offset, UTC)

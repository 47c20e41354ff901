"""Time, handed in: `now` for what is written down, `elapsed` for how long this process has waited."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Clock:
    """The machine's clocks, unless a test hands in others."""

    now: Callable[[], datetime] = _now
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment on both clocks."""

    monotonic: float
    wall: float

    @classmethod
    def now(cls, clock: Clock) -> "Instant":
        """Return the present."""
        return cls(clock.monotonic(), clock.wall())

    def elapsed_seconds(self, clock: Clock) -> float:
        """Return the seconds since, by the clock that says more.

        A machine that was suspended shows it on the wall clock only, a clock that was set back on the other only.
        """
        return max(clock.monotonic() - self.monotonic, clock.wall() - self.wall)

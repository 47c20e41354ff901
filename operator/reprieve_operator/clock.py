"""Time as an argument: `now` for what is written, `monotonic` for how long this process waited."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Clock:
    """The machine's clocks; tests pass others."""

    now: Callable[[], datetime] = _now
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment on the monotonic and on the wall clock."""

    monotonic: float
    wall: float

    @classmethod
    def now(cls, clock: Clock) -> "Instant":
        """Return the present."""
        return cls(clock.monotonic(), clock.wall())

    def elapsed_seconds(self, clock: Clock) -> float:
        """Return the seconds since then, by the clock that shows more.

        Only the wall clock shows that the machine was suspended, and only the monotonic clock is
        right after the wall clock was set back.
        """
        return max(clock.monotonic() - self.monotonic, clock.wall() - self.wall)

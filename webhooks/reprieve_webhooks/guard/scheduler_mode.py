"""Whether a scheduler goes on while it waits for a victim: as an admin says, or as its preemptors show.

A time to come back is told only to one that does: the loop of another would stand still for as long. Each replica knows what
it has seen itself.
"""

import time
from collections.abc import Callable, Sequence
from enum import IntEnum

from reprieve_policy.config.settings import ASYNCHRONOUS, AUTO
from reprieve_policy.preemption.nominated_pods import Nominee

_MOST = 5000
"""Preemptors; the oldest go first where there are more."""
_BELIEVED_SECONDS = 60.0
"""What was only concluded has to show again after that."""


class Pace(IntEnum):
    """How a scheduler preempts, as far as anybody knows."""

    UNKNOWN = 0
    """Or synchronously: it is told no time."""
    PROBABLY_ASYNCHRONOUS = 1
    """It asks as only such a one should: the time that it is told had better be short."""
    ASYNCHRONOUS = 2


class Paces:
    """What preemptors have shown of their schedulers."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._shown: dict[str, tuple[Pace, float]] = {}

    def show(self, nominees: Sequence[Nominee], pace: Pace) -> None:
        """Take note of how these were seen to be preempted for."""
        for one in nominees:
            known = max(pace, self._of(one.uid))
            self._shown.pop(one.uid, None)
            self._shown[one.uid] = (known, self._monotonic())
        while len(self._shown) > _MOST:
            del self._shown[next(iter(self._shown))]

    def of(self, nominees: Sequence[Nominee], said: str) -> Pace:
        """Return the pace of a scheduler that preempts for one of these pods; `said`: the policy's `schedulerPreemption`."""
        if said != AUTO:
            return Pace.ASYNCHRONOUS if said == ASYNCHRONOUS else Pace.UNKNOWN
        return max((self._of(one.uid) for one in nominees), default=Pace.UNKNOWN)

    def _of(self, uid: str) -> Pace:
        pace, at = self._shown.get(uid, (Pace.UNKNOWN, 0.0))
        is_over = pace is Pace.PROBABLY_ASYNCHRONOUS and self._monotonic() - at >= _BELIEVED_SECONDS
        return Pace.UNKNOWN if is_over else pace

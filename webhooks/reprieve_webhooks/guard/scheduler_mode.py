"""Whether a scheduler goes on while it waits for a victim: as an admin says, or as its preemptors show.

A time to come back is told only to one that does: the loop of another would stand still for as long. Each replica knows what
it has seen itself.
"""

import time
from collections.abc import Callable, Sequence
from enum import IntEnum

from reprieve_policy.config.settings import ASYNCHRONOUS, AUTO
from reprieve_policy.preemption.nominated_pods import NominatedPod

_MAX_PREEMPTORS = 5000
"""Preemptors; the oldest go first where there are more."""
_INFERENCE_TTL_SECONDS = 60.0
"""What was only concluded has to show again after that."""


class SchedulerMode(IntEnum):
    """How a scheduler preempts, as far as anybody knows."""

    UNKNOWN = 0
    """Or synchronously: it is told no time."""
    PROBABLY_ASYNCHRONOUS = 1
    """It asks as only such a one should: the time that it is told had better be short."""
    ASYNCHRONOUS = 2


class SchedulerModes:
    """What preemptors have shown of their schedulers."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._observed: dict[str, tuple[SchedulerMode, float]] = {}

    def observe(self, nominees: Sequence[NominatedPod], mode: SchedulerMode) -> None:
        """Take note of how these were seen to be preempted for."""
        for one in nominees:
            known = max(mode, self._observed_mode(one.uid))
            self._observed.pop(one.uid, None)
            self._observed[one.uid] = (known, self._monotonic())
        while len(self._observed) > _MAX_PREEMPTORS:
            del self._observed[next(iter(self._observed))]

    def mode_for(self, nominees: Sequence[NominatedPod], said: str) -> SchedulerMode:
        """Return the pace of a scheduler that preempts for one of these pods; `said`: the policy's `schedulerPreemption`."""
        if said != AUTO:
            return SchedulerMode.ASYNCHRONOUS if said == ASYNCHRONOUS else SchedulerMode.UNKNOWN
        return max(
            (self._observed_mode(one.uid) for one in nominees), default=SchedulerMode.UNKNOWN
        )

    def _observed_mode(self, uid: str) -> SchedulerMode:
        pace, at = self._observed.get(uid, (SchedulerMode.UNKNOWN, 0.0))
        is_over = (
            pace is SchedulerMode.PROBABLY_ASYNCHRONOUS
            and self._monotonic() - at >= _INFERENCE_TTL_SECONDS
        )
        return SchedulerMode.UNKNOWN if is_over else pace

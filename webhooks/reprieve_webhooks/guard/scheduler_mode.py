"""Whether a scheduler preempts asynchronously: as the policy states, or as its preemptors show.

Only a scheduler that does gets a `retryAfterSeconds`: the scheduling loop of another would stand
still for that time. Each replica knows only what it has observed itself.
"""

import time
from collections.abc import Callable, Sequence
from enum import IntEnum

from reprieve_policy.config.settings import ASYNCHRONOUS, AUTO
from reprieve_policy.preemption.nominated_pods import NominatedPod
from reprieve_runtime.bounded_dict import BoundedDict

_MAX_PREEMPTORS = 5000
"""Preemptors; beyond that, the oldest are forgotten."""
_INFERENCE_TTL_SECONDS = 60.0
"""A mode that was only inferred expires after this time, unless it is inferred again."""


class SchedulerMode(IntEnum):
    """How a scheduler preempts, as far as this replica knows."""

    UNKNOWN = 0
    """Or synchronous: it gets no `retryAfterSeconds`."""
    PROBABLY_ASYNCHRONOUS = 1
    """It retries as only an asynchronous one should: its `retryAfterSeconds` is short."""
    ASYNCHRONOUS = 2


class SchedulerModes:
    """The modes of schedulers, observed by preemptor."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._observed: BoundedDict[str, tuple[SchedulerMode, float]] = BoundedDict(_MAX_PREEMPTORS)

    def observe(self, nominees: Sequence[NominatedPod], mode: SchedulerMode) -> None:
        """Record the mode in which a scheduler preempts for these pods."""
        for nominee in nominees:
            known = max(mode, self._observed_mode(nominee.uid))
            self._observed[nominee.uid] = (known, self._monotonic())

    def mode_for(self, nominees: Sequence[NominatedPod], configured: str) -> SchedulerMode:
        """Return the mode of a scheduler that preempts for one of these pods.

        `configured`: the policy's `schedulerPreemption`.
        """
        if configured != AUTO:
            return (
                SchedulerMode.ASYNCHRONOUS if configured == ASYNCHRONOUS else SchedulerMode.UNKNOWN
            )
        return max(
            (self._observed_mode(nominee.uid) for nominee in nominees),
            default=SchedulerMode.UNKNOWN,
        )

    def _observed_mode(self, uid: str) -> SchedulerMode:
        mode, at = self._observed.get(uid, (SchedulerMode.UNKNOWN, 0.0))
        is_expired = (
            mode is SchedulerMode.PROBABLY_ASYNCHRONOUS
            and self._monotonic() - at >= _INFERENCE_TTL_SECONDS
        )
        return SchedulerMode.UNKNOWN if is_expired else mode

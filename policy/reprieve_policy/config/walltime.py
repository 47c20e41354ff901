"""How long something may run: `activeDeadlineSeconds` of a pod or Job, from its `status.startTime`.

This is the specification's walltime (document 001). When it is used up, Kubernetes ends the pod or
Job, whatever Reprieve decides.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import ObjectMeta


class Walltime(NamedTuple):
    """A bounded run. The seconds may be any number: Kubernetes bounds a pod's, but not a Job's."""

    started_at: datetime
    seconds: int

    def left(self, now: datetime) -> float:
        """Return the seconds that are left; negative once the time is over."""
        return self.seconds - self.used(now)

    def used(self, now: datetime) -> float:
        """Return the seconds that have passed; 0 if the start is ahead of our clock."""
        return max(0.0, (now - self.started_at).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobSpec:
    activeDeadlineSeconds: int | None = None  # noqa: N815 - the API's own name, for the decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobStatus:
    startTime: str | None = None  # noqa: N815 - the API's own name, for the decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A batch Job: the fields that bound how long its pods run."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _JobSpec = field(default_factory=_JobSpec)
    status: _JobStatus = field(default_factory=_JobStatus)

    @property
    def walltime(self) -> Walltime | None:
        """How long its pods may run, all of them together; `None`: no bound, or not started."""
        return read(self.status.startTime, self.spec.activeDeadlineSeconds)


def read(started_at: str | None, seconds: int | None) -> Walltime | None:
    """Return a walltime, `None` if there is none or the run has not begun."""
    moment = timestamp.parse(started_at)
    return None if moment is None or seconds is None else Walltime(moment, seconds)


def as_known(first: Walltime | None, current: Walltime | None) -> Walltime | None:
    """Return the walltime that counts for a run first seen as `first` and now seen as `current`.

    For the same run, the one that ends first counts. Without this, a user who moves a Job's
    deadline every few minutes would keep its pods almost complete for ever.
    """
    if first is None or current is None or first.started_at != current.started_at:
        return current
    return min(first, current, key=lambda walltime: walltime.seconds)


def tightest(walltimes: Iterable[Walltime | None], now: datetime) -> Walltime | None:
    """Return the walltime that ends first, `None` if there is none."""
    known = [walltime for walltime in walltimes if walltime is not None]
    return min(known, key=lambda walltime: walltime.left(now), default=None)

"""How long something may run: `activeDeadlineSeconds` of a pod or Job, from its `status.startTime`.

This is the specification's walltime (document 001). When it is used up, Kubernetes ends the pod or
Job, whatever Reprieve decides.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, Protocol

from reprieve_policy.kube.values import timestamp


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


class _BoundedSpec(Protocol):
    @property
    def activeDeadlineSeconds(self) -> int | None: ...  # noqa: N802 - the API's own name


class _StartedStatus(Protocol):
    @property
    def startTime(self) -> str | None: ...  # noqa: N802 - the API's own name


class BoundedRun(Protocol):
    """A decoded pod, or a decoded Job, which bounds all its pods together."""

    @property
    def spec(self) -> _BoundedSpec: ...  # noqa: D102 - the API's own name
    @property
    def status(self) -> _StartedStatus: ...  # noqa: D102


def read(run: BoundedRun) -> Walltime | None:
    """Return how long a pod or the pods of a Job may run; `None`: no bound, or not started."""
    started_at, seconds = timestamp.parse(run.status.startTime), run.spec.activeDeadlineSeconds
    return None if started_at is None or seconds is None else Walltime(started_at, seconds)


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

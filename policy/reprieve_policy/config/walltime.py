"""How long something may run: a pod's and a Job's `activeDeadlineSeconds`, each from its own `status.startTime`.

It is the specification's walltime (document 001). Kubernetes ends whoever has used it up, whatever anybody decides here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import ObjectMeta


class Walltime(NamedTuple):
    """A bounded run. Its seconds may be any number: Kubernetes bounds a pod's, not a Job's."""

    started_at: datetime
    seconds: int

    def left(self, now: datetime) -> float:
        """Return the seconds that are left; negative once it is over."""
        return self.seconds - self.used(now)

    def used(self, now: datetime) -> float:
        """Return the seconds that have passed; a start that lies ahead of our clock has not come yet."""
        return max(0.0, (now - self.started_at).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobSpec:
    activeDeadlineSeconds: int | None = None  # noqa: N815 - the API's own name, so that JSON decodes into it


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobStatus:
    startTime: str | None = None  # noqa: N815 - the API's own name, so that JSON decodes into it


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A batch Job, as far as it bounds how long its pods run."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _JobSpec = field(default_factory=_JobSpec)
    status: _JobStatus = field(default_factory=_JobStatus)

    @property
    def walltime(self) -> Walltime | None:
        """How long its pods may run, all of them together."""
        return read(self.status.startTime, self.spec.activeDeadlineSeconds)


def read(started_at: str | None, seconds: int | None) -> Walltime | None:
    """Return a walltime, `None` where there is none or it has not begun."""
    moment = timestamp.parse(started_at)
    return None if moment is None or seconds is None else Walltime(moment, seconds)


def as_known(first: Walltime | None, found: Walltime | None) -> Walltime | None:
    """Return what counts of a run that was seen as `first`, and is `found` now: of one and the same, what ends first.

    Without this, whoever moves a Job's deadline every few minutes would be almost complete for ever.
    """
    if first is None or found is None or first.started_at != found.started_at:
        return found
    return min(first, found, key=lambda one: one.seconds)


def tightest(walltimes: Iterable[Walltime | None], now: datetime) -> Walltime | None:
    """Return the one that ends first, `None` where none does."""
    known = [walltime for walltime in walltimes if walltime is not None]
    return min(known, key=lambda walltime: walltime.left(now), default=None)

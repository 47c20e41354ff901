"""One pod from its workload's side: work, saves, signals, the end. No I/O, no clock.

A checkpoint keeps the work that was done when its save began. All other time on a node is wasted
when the pod is preempted: the work since the last checkpoint, the time spent on saving instead of
working, and the time spent on restoring what a predecessor had saved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from .trace import GRACE_SECONDS, Job

_BY_SIGTERM, _BY_SIGKILL = 143, 137
"""Exit codes of a container that a signal ended."""


class Action(Enum):
    """A workload's next action, unless something happens first."""

    SAVED = "saved"  # a save that was requested, or that SIGTERM began
    CHECKPOINT = "checkpoint"  # a save at its interval
    EXIT = "exit"


class End(Enum):
    """How a pod ended; None while it runs."""

    FINISHED = "finished"
    PREEMPTED = "preempted"
    FAILED = "failed"  # ended without a deletion: an error of the benchmark


@dataclass
class PodRun:
    """One pod; times are seconds of the benchmark's clock."""

    job: Job
    index: int
    name: str
    uid: str
    created_at: float
    left: float  # seconds of work that no earlier pod in its place kept
    restart_seconds: float = 0.0
    """Time after its start in which it restores its predecessor's work, and does not work."""
    grace_seconds: float = GRACE_SECONDS
    """Time from SIGTERM to SIGKILL."""
    publishes: bool = False
    """Each save at its interval is an action: the workload publishes when it was."""
    node: str = ""
    """The node that it was bound to; "" before that, and in a simulation."""
    nominated_at: float | None = None
    started_at: float | None = None
    hinted_at: float | None = None
    terminated_at: float | None = None
    """When it was deleted, and therefore got SIGTERM."""
    ended_at: float | None = None
    end: End | None = None
    _worked: float = 0.0
    _noticed: float = 0.0  # work that was saved on demand
    _working_since: float | None = field(default=None, repr=False)
    _saving_since: float | None = field(default=None, repr=False)
    _request: str | None = None
    _published: int = 0  # saves at their interval
    _is_exiting: bool = False

    def start(self, now: float) -> None:
        """Begin to work."""
        if self.started_at is None:
            self.started_at, self._working_since = now, now + self.restart_seconds

    def hint(self, request: str, now: float) -> None:
        """Begin a requested save; a repeated request changes nothing."""
        is_alive = (
            self.started_at is not None and self.terminated_at is None and self.ended_at is None
        )
        if is_alive and self._request != request:
            self._request = request
            self.hinted_at = self.hinted_at or now
            self._begin_to_save(now)

    def says(self) -> str:
        """Return the workload's answer, in the contract's words."""
        if self._request is None:
            return "idle"
        return "saved" if self._saving_since is None else "saving"

    def terminate(self, now: float) -> None:
        """Handle SIGTERM; a workload that saves on SIGTERM continues a save that has begun."""
        if self.terminated_at is None:
            self.terminated_at = now
            checkpoints, is_idle = self.job.checkpoints, self.started_at is None
            if (
                checkpoints is not None
                and checkpoints.on_sigterm
                and not is_idle
                and self.says() != "saved"
            ):
                self._begin_to_save(now)

    def next(self) -> tuple[float, Action] | None:
        """Return its next action and its time; `None` if it only waits."""
        if self._is_exiting or self.ended_at is not None:
            return None
        if self._saving_since is not None:
            assert self.job.checkpoints is not None
            saved_at = self._saving_since + self.job.checkpoints.save_seconds
            # The kubelet's SIGKILL ends a save that takes longer than the grace period.
            killed_at = math.inf
            if self.terminated_at is not None:
                killed_at = self.terminated_at + self.grace_seconds
            return (saved_at, Action.SAVED) if saved_at <= killed_at else (killed_at, Action.EXIT)
        if self.terminated_at is not None:
            return self.terminated_at, Action.EXIT
        if self._working_since is None:
            return None
        began = self._working_since - self._worked
        return min((began + self.left, Action.EXIT), self._next_checkpoint(began), key=_time_of)

    def save(self, now: float) -> None:
        """Finish a save: keep the work that was done when it began, and continue."""
        if self._saving_since is not None:
            assert self.started_at is not None
            self._noticed, self._saving_since = self._worked, None
            self._working_since = max(now, self.started_at + self.restart_seconds)

    def exit(self) -> int:
        """Exit, with 0 if all its work is done; return the code."""
        self._is_exiting = True
        if self.terminated_at is None:
            return 0
        return _BY_SIGTERM if self._saving_since is None else _BY_SIGKILL

    def checkpoint(self) -> None:
        """Finish a save at its interval."""
        self._published += 1

    def close(self, now: float, *, succeeded: bool) -> None:
        """End the pod."""
        if self.ended_at is None:
            self._worked, self._working_since, self._saving_since = self.work_by(now), None, None
            self.ended_at = now
            unsuccessful = End.FAILED if self.terminated_at is None else End.PREEMPTED
            self.end = End.FINISHED if succeeded else unsuccessful

    def occupied(self, now: float) -> float:
        """Return the seconds that it spent on a node."""
        return (
            0.0
            if self.started_at is None
            else (now if self.ended_at is None else self.ended_at) - self.started_at
        )

    def kept(self, now: float) -> float:
        """Return how much of its work the next pod in its place need not repeat."""
        if self.end is End.FINISHED:
            return self.left
        checkpoints = self.job.checkpoints
        if checkpoints is None:
            return 0.0
        in_time = (
            math.floor(self.work_by(now) / checkpoints.interval_seconds)
            * checkpoints.interval_seconds
        )
        return max(in_time, self._noticed)

    def wasted(self, now: float) -> float:
        """Return the seconds on a node that were wasted, or would be if it were killed now."""
        return max(0.0, self.occupied(now) - self.kept(now))

    def work_by(self, now: float) -> float:
        """Return the seconds that it has worked."""
        since = now if self._working_since is None else self._working_since
        return self._worked + max(0.0, now - since)

    def _next_checkpoint(self, began: float) -> tuple[float, Action]:
        """Return the next save at its interval of a pod that has worked since `began`."""
        checkpoints = self.job.checkpoints
        if checkpoints is None or not self.publishes:
            return math.inf, Action.CHECKPOINT
        return began + (self._published + 1) * checkpoints.interval_seconds, Action.CHECKPOINT

    def _begin_to_save(self, now: float) -> None:
        if self._saving_since is None:
            self._worked, self._working_since, self._saving_since = self.work_by(now), None, now


def _time_of(due: tuple[float, Action]) -> float:
    return due[0]

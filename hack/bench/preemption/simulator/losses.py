"""What a victim's preemption is expected to cost [pod-seconds], and whether notice pays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from bench.preemption.trace import GRACE_SECONDS

from .contenders import Contender, Knowledge, NoticePolicy
from .model import DELETE_SECONDS, GONE_SECONDS, MARK_SECONDS, Pod


class Way(Enum):
    """How a victim is made to leave its node."""

    AT_ONCE = "SIGTERM"
    HINT = "a hint, then SIGTERM when it has saved"
    LONG_GRACE = "SIGTERM, with a grace period in which it can save"


@dataclass(frozen=True)
class Losses:
    """A contender's estimates."""

    contender: Contender

    def expected(self, pod: Pod, now: float) -> float:
        """Return the expected loss, by the way that the contender would choose; 0 if it leaves."""
        if pod.is_leaving or pod.run.started_at is None:
            return 0.0
        gentle = self._gentle_way(pod)
        at_once = self.at_once(pod, now)
        if gentle is None:
            loss = at_once
        elif self.contender.notice is NoticePolicy.ALWAYS:
            loss = self.by_save(pod, now)
        else:
            loss = min(at_once, self.by_save(pod, now))
        return loss * pod.cpus if self.contender.weighs_devices else loss

    def way(self, pod: Pod, now: float) -> Way:
        """Return how a victim is made to leave."""
        gentle = self._gentle_way(pod)
        if gentle is None or pod.run.started_at is None:
            return Way.AT_ONCE
        if self.contender.notice is NoticePolicy.WHERE_IT_PAYS and self.by_save(
            pod, now
        ) >= self.at_once(pod, now):
            return Way.AT_ONCE
        return gentle

    def at_once(self, pod: Pod, now: float) -> float:
        """Return the loss of a pod that gets SIGTERM now, with the usual grace period."""
        run, checkpoints = pod.run, pod.run.job.checkpoints
        if self.contender.knowledge is Knowledge.DECLARED:
            return run.occupied(now)
        loss = run.wasted(now)
        if (
            checkpoints is not None
            and checkpoints.on_sigterm
            and checkpoints.save_seconds <= GRACE_SECONDS
        ):
            loss = min(loss, self._without_work(pod, now) + checkpoints.save_seconds)
        return loss + GONE_SECONDS

    def by_save(self, pod: Pod, now: float) -> float:
        """Return the loss of a pod that saves first: the save and its overhead."""
        overhead = MARK_SECONDS + self.contender.poll_seconds / 2 + DELETE_SECONDS + GONE_SECONDS
        return self._without_work(pod, now) + self.save_seconds(pod) + overhead

    def save_seconds(self, pod: Pod) -> float:
        """Return how long a save takes; declared times are whole seconds."""
        assert pod.run.job.checkpoints is not None
        seconds = pod.run.job.checkpoints.save_seconds
        is_declared = self.contender.knowledge is Knowledge.DECLARED
        return math.ceil(seconds) if is_declared else seconds

    def _gentle_way(self, pod: Pod) -> Way | None:
        checkpoints = pod.run.job.checkpoints
        if self.contender.notice is NoticePolicy.NEVER or checkpoints is None:
            return None
        if checkpoints.takes_hints:
            return Way.HINT
        if self.contender.saves_on_sigterm and checkpoints.on_sigterm:
            return Way.LONG_GRACE
        return None

    def _without_work(self, pod: Pod, now: float) -> float:
        """Return the time on its node that was no work: earlier saves, and restoring [s]."""
        if self.contender.knowledge is Knowledge.DECLARED:
            return 0.0
        return pod.run.occupied(now) - pod.run.work_by(now)

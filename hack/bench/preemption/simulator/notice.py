"""What happens to victims after they were chosen: at once, refused with 429, or held."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .contenders import Contender, Mechanism, Rules
from .losses import Losses, Way
from .model import (
    DELETE_SECONDS,
    MARK_SECONDS,
    Clock,
    Notice,
    Pod,
    Sleep,
    give_notice,
    reprieve,
)
from .rules import may_preempt
from .workloads import Kubelets

_RETRY_SECONDS = 5.0
"""Between two DELETEs of a victim that the guard refuses (`Retry-After`)."""
_RETRIES = 10
"""The client of kube-scheduler repeats a refused request ten times."""
_GIVES_UP_SECONDS = (_RETRIES + 1) * _RETRY_SECONDS
_SLEEP_SECONDS = 330.0
"""The longest sleep of a preemptor: the scheduler's flush of unschedulable pods, five minutes."""


@dataclass
class Counts:
    """What a contender did."""

    deletions: int = 0
    """DELETEs of the scheduler that were carried out, or answered with 404."""
    refusals: int = 0
    """DELETEs of the scheduler that were refused with 429."""
    notices: int = 0
    reprieves: int = 0


class VictimHandler:
    """Makes victims leave as one contender does."""

    def __init__(
        self,
        contender: Contender,
        losses: Losses,
        clock: Clock,
        kubelets: Kubelets,
        wake: Callable[[], None],
    ) -> None:
        self.counts = Counts()
        self._contender = contender
        self._losses = losses
        self._clock = clock
        self._kubelets = kubelets
        self._wake = wake

    def loss_without_save(self, victims: Sequence[Pod]) -> float:
        """Return what those of the victims lose that leave without a save."""
        now = self._clock.now
        return sum(
            self._losses.expected(pod, now)
            for pod in victims
            if self._losses.way(pod, now) is Way.AT_ONCE
        )

    def preempt(self, preemptor: Pod, victims: Sequence[Pod]) -> None:
        """Begin to remove a preemptor's victims."""
        preemptor.victims = list(victims)
        living = [pod for pod in victims if not pod.is_leaving]
        if not living:
            return
        if self._contender.mechanism is Mechanism.GUARD_ONLY:
            self._ask_guard(preemptor, living)
            return
        ways = {pod: self._losses.way(pod, self._clock.now) for pod in living}
        waits_for_fellows = self._contender.goes_together and Way.HINT in ways.values()
        for pod, way in ways.items():
            if way is Way.AT_ONCE and waits_for_fellows:
                give_notice(pod, preemptor, self._clock.now, is_asked=False)
                self.counts.deletions += 1
            else:
                self._remove(pod, preemptor, way)
        if self._contender.mechanism is Mechanism.REFUSED:
            preemptor.sleep = Sleep(living[-1], self._clock.now + _SLEEP_SECONDS)

    def placed(self, preemptor: Pod) -> None:
        """Take back the notices of victims that the preemptor no longer needs."""
        if not self._contender.takes_back:
            return
        for pod in preemptor.victims:
            notice = pod.notice
            if (
                notice is not None
                and notice.preemptor is preemptor
                and not (notice.is_saved or pod.is_terminating or pod.is_gone)
                and pod.node is not None
                and pod.node is not preemptor.node
                and not pod.node.nominated  # another preemptor waits for this room
            ):
                reprieve(pod)
                self.counts.reprieves += 1
                self._wake()
        preemptor.victims = []

    def gone(self, pod: Pod) -> None:
        """Note that a pod is gone, with or without a save."""
        if pod.notice is not None:
            pod.notice.is_saved = True
            self._release_fellows(pod.notice.preemptor)

    def is_asleep(self, preemptor: Pod) -> bool:
        """True while the scheduler does not try the preemptor."""
        sleep = preemptor.sleep
        if sleep is None:
            return False
        if self._clock.now >= sleep.until or sleep.victim.is_terminating or sleep.victim.is_gone:
            preemptor.sleep = None
            return False
        return True

    def _remove(self, pod: Pod, preemptor: Pod, way: Way) -> None:
        if way is not Way.HINT:
            self.counts.deletions += 1
            self.counts.notices += way is Way.LONG_GRACE
            self._terminate(pod, way)
            return
        self.counts.notices += 1
        if self._contender.mechanism is Mechanism.HELD:
            self.counts.deletions += 1
        else:
            self.counts.refusals += 1
        notice = give_notice(pod, preemptor, self._clock.now, is_asked=True)
        self._clock.after(MARK_SECONDS, self._hint, pod, notice)

    def _hint(self, pod: Pod, notice: Notice) -> None:
        if pod.notice is not notice or pod.is_gone:
            return
        self._kubelets.hint(pod, f"{notice.since}")
        checkpoints = pod.run.job.checkpoints
        assert checkpoints is not None
        seconds, poll = checkpoints.save_seconds, self._contender.poll_seconds
        heard = math.ceil(seconds / poll - 1e-9) * poll if poll else seconds
        self._clock.after(heard + DELETE_SECONDS, self._saved, pod, notice)

    def _saved(self, pod: Pod, notice: Notice) -> None:
        if pod.notice is not notice or pod.is_gone:
            return
        notice.is_saved = True
        if self._contender.mechanism is not Mechanism.HELD:
            # Meanwhile the scheduler has repeated its DELETE; the last one is carried out.
            self.counts.refusals += int((self._clock.now - notice.since) / _RETRY_SECONDS)
            self.counts.deletions += 1
        self._terminate(pod, Way.HINT)
        self._release_fellows(notice.preemptor)

    def _release_fellows(self, preemptor: Pod) -> None:
        """Once the last of a preemptor's victims has saved, the victims without notice go."""
        if not self._contender.goes_together:
            return
        own = [
            (pod, notice)
            for pod in preemptor.victims
            if (notice := pod.notice) is not None
            and notice.preemptor is preemptor
            and not (pod.is_terminating or pod.is_gone)
        ]
        if not any(notice.is_asked for _, notice in own):
            for pod, _ in own:
                self._terminate(pod, Way.AT_ONCE)

    def _terminate(self, pod: Pod, way: Way) -> None:
        if way is Way.LONG_GRACE:
            # A declared time is whole seconds, no less than the save takes.
            checkpoints = pod.run.job.checkpoints
            assert checkpoints is not None
            self._kubelets.terminate(pod, math.ceil(checkpoints.save_seconds))
        else:
            self._kubelets.terminate(pod)
        self._wake()

    def _ask_guard(self, preemptor: Pod, living: Sequence[Pod]) -> None:
        """Handle the scheduler's own choice: the guard refuses some of the victims."""
        refused = self._remove_allowed(preemptor, living)
        seconds = _GIVES_UP_SECONDS if refused else _SLEEP_SECONDS
        until = self._clock.now + seconds
        preemptor.sleep = Sleep((refused or living)[-1], until)
        if refused:
            self._clock.after(_RETRY_SECONDS, self._ask_again, preemptor, living, preemptor.sleep)
        self._clock.at(until, self._wake)

    def _ask_again(self, preemptor: Pod, victims: Sequence[Pod], sleep: Sleep) -> None:
        """Repeat the DELETEs that were refused."""
        if preemptor.sleep is not sleep or self._clock.now > sleep.until - _RETRY_SECONDS / 2:
            return
        alive = [pod for pod in victims if not pod.is_gone]
        refused = self._remove_allowed(preemptor, [pod for pod in alive if not pod.is_leaving])
        if refused:
            self._clock.after(_RETRY_SECONDS, self._ask_again, preemptor, victims, sleep)
        else:
            preemptor.sleep = Sleep(alive[-1], sleep.until) if alive else None
            self._wake()

    def _remove_allowed(self, preemptor: Pod, victims: Sequence[Pod]) -> list[Pod]:
        """Begin to remove the victims that the guard allows; return the others."""
        now, refused = self._clock.now, []
        for pod in victims:
            if may_preempt(Rules.CLASSES, preemptor, pod, now):
                self._remove(pod, preemptor, self._losses.way(pod, now))
            else:
                refused.append(pod)
        self.counts.refusals += len(refused)
        return refused

"""Pods' processes, kubelets and the Job controller: starts, saves, signals, ends, replacements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bench.preemption.run import Action, End, PodRun
from bench.preemption.trace import GRACE_SECONDS, Job, Trace

from .model import GONE_SECONDS, START_SECONDS, Clock, Pod

JOB_BACKOFF_SECONDS = 10.0
"""The Job controller waits so long before it replaces a pod, and twice as long each next time."""
_LONGEST_BACKOFF_SECONDS = 600.0


class Kubelets:
    """Starts and ends the processes of all pods."""

    def __init__(self, clock: Clock, gone: Callable[[Pod], None]) -> None:
        self._clock = clock
        self._gone = gone
        self._timers: dict[Pod, int] = {}  # an action counts only if it is the last one planned

    def start(self, pod: Pod) -> None:
        """Start a pod that was just bound."""
        self._clock.after(START_SECONDS, self._started, pod)

    def hint(self, pod: Pod, request: str) -> None:
        """Ask a workload to save, and to continue."""
        pod.run.hint(request, self._clock.now)
        self._plan(pod)

    def terminate(self, pod: Pod, grace_seconds: float = GRACE_SECONDS) -> None:
        """Send SIGTERM now, and SIGKILL after the grace period."""
        if pod.is_terminating or pod.is_gone:
            return
        assert pod.node is not None
        if not pod.is_leaving:
            pod.node.leaving += pod.cpus
        pod.node.version += 1
        pod.is_terminating = True
        pod.run.grace_seconds = grace_seconds
        pod.run.terminate(self._clock.now)
        if pod.run.started_at is None:
            grace_seconds = 0.0
        self._plan(pod)
        self._clock.after(grace_seconds + GONE_SECONDS, self._end, pod, None)

    def _started(self, pod: Pod) -> None:
        if not pod.is_gone and not pod.is_terminating:
            pod.run.start(self._clock.now)
            self._plan(pod)

    def _plan(self, pod: Pod) -> None:
        number = self._timers[pod] = self._timers.get(pod, 0) + 1
        if due := pod.run.next():
            time, action = due
            self._clock.at(time, self._act, pod, action, number)

    def _act(self, pod: Pod, action: Action, number: int) -> None:
        if self._timers.get(pod) != number or pod.is_gone:
            return
        if action is Action.EXIT:
            self._clock.after(GONE_SECONDS, self._end, pod, pod.run.exit())
        else:
            pod.run.save(self._clock.now)
            self._plan(pod)

    def _end(self, pod: Pod, exit_code: int | None) -> None:
        """Free the room of a pod; without an exit code it was killed."""
        if not pod.is_gone:
            pod.run.close(self._clock.now, succeeded=exit_code == 0)
            self._timers.pop(pod, None)
            self._gone(pod)


@dataclass
class _JobState:
    """The state of a Job in the Job controller."""

    job: Job
    failures: int = 0  # in a row
    missing: dict[int, float] = field(default_factory=dict)
    """Indexes without a pod, with the seconds that a replacement takes to restore its work."""
    replacement: int = 0  # only the last one planned counts


class JobController:
    """Creates the pods of Jobs, and replaces those that were preempted."""

    def __init__(self, trace: Trace, clock: Clock, created: Callable[[Pod], None]) -> None:
        self._clock = clock
        self._created = created
        self._restart_seconds = trace.restart_seconds
        self._jobs = {job.name: _JobState(job) for job in trace.jobs}
        self._left = {
            (job.name, index): job.seconds for job in trace.jobs for index in range(job.pods)
        }
        self.pods: list[Pod] = []
        """All pods that there ever were."""
        for job in trace.jobs:
            clock.at(job.arrives_at, self._arrive, job)

    def ended(self, pod: Pod) -> None:
        """Count a pod's work; replace it after a back-off, or its fellows now if it succeeded."""
        run, now = pod.run, self._clock.now
        state = self._jobs[run.job.name]
        self._left[run.job.name, run.index] -= run.kept(now)
        state.replacement += 1
        if run.end is End.FINISHED:
            state.failures = 0
            self._replace(state, state.replacement)
            return
        state.failures += 1
        has_run = run.started_at is not None
        state.missing[run.index] = self._restart_seconds if has_run else run.restart_seconds
        backoff = JOB_BACKOFF_SECONDS * 2 ** (state.failures - 1)
        delay = min(backoff, _LONGEST_BACKOFF_SECONDS)
        self._clock.after(delay, self._replace, state, state.replacement)

    def _arrive(self, job: Job) -> None:
        for index in range(job.pods):
            self._create(job, index, 0.0)

    def _replace(self, state: _JobState, replacement: int) -> None:
        if replacement == state.replacement:
            for index in sorted(state.missing):
                self._create(state.job, index, state.missing[index])
            state.missing.clear()

    def _create(self, job: Job, index: int, restart_seconds: float) -> None:
        name, left = f"{job.name}-{index}", self._left[job.name, index]
        run = PodRun(
            job,
            index,
            name,
            uid=f"{len(self.pods)}",
            created_at=self._clock.now,
            left=left,
            restart_seconds=restart_seconds,
        )
        pod = Pod(run)
        self.pods.append(pod)
        self._created(pod)

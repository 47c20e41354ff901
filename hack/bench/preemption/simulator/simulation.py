"""One simulated run: one trace, one contender."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bench.preemption.records import Record, record_of
from bench.preemption.trace import NODE_CPUS, Trace

from .choices import VictimSelector
from .contenders import Contender
from .losses import Losses
from .model import Clock, Node, Pod
from .notice import Counts, VictimHandler
from .scheduler import DecisionTimes, Scheduler
from .workloads import JobController, Kubelets


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of each pod."""

    contender: Contender
    trace: Trace
    records: list[Record]
    counts: Counts


class Simulation:
    """A cluster with one contender, and a trace."""

    def __init__(
        self, trace: Trace, contender: Contender, times: DecisionTimes | None = None
    ) -> None:
        self.clock = Clock()
        self._trace = trace
        self._contender = contender
        random = Random(trace.seed)  # noqa: S311 (a simulation is no secret)
        self.nodes = [Node(NODE_CPUS) for _ in range(trace.nodes)]
        if contender.is_pooled:
            self.nodes = [Node(NODE_CPUS * trace.nodes)]
        losses = Losses(contender)
        selector = VictimSelector(contender, losses, random)
        self._scheduler = Scheduler(
            contender, self.nodes, self.clock, random, selector, times or DecisionTimes()
        )
        kubelets = Kubelets(self.clock, self._gone)
        self._victims = VictimHandler(contender, losses, self.clock, kubelets, self._scheduler.wake)
        self._scheduler.connect(kubelets, self._victims)
        self._jobs = JobController(trace, self.clock, self._scheduler.created)

    @property
    def pods(self) -> list[Pod]:
        """All pods that there were so far."""
        return self._jobs.pods

    def run(self) -> Result:
        """Simulate to the end of the trace."""
        self.clock.run(self._trace.horizon_seconds)
        runs, now = [pod.run for pod in self._jobs.pods], self.clock.now
        return Result(
            contender=self._contender,
            trace=self._trace,
            records=[record_of(run, 0.0, now) for run in runs],
            counts=self._victims.counts,
        )

    def _gone(self, pod: Pod) -> None:
        assert pod.node is not None
        pod.node.release(pod)
        self._jobs.ended(pod)
        self._victims.gone(pod)
        self._scheduler.wake()

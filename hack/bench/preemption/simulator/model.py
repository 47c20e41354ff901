"""The simulated cluster: a clock, pods and nodes. No I/O.

Times are seconds of the benchmark's clock, of which one stands for a minute of a cluster's life
(`bench.preemption.trace`). The delays are those of a real control plane on one machine: with them,
a simulated stock scheduler starts half of its preemptors after as long as the real one (0.3 s).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.preemption.run import PodRun
from bench.preemption.trace import Tier

SEEN_SECONDS = 0.05
"""From a pod's creation until the scheduler tries to place it."""
START_SECONDS = 0.08
"""From a pod's binding until it runs."""
GONE_SECONDS = 0.12
"""From the end of a pod's process until the scheduler sees that its room is free."""
MARK_SECONDS = 0.15
"""From the choice of a victim until its workload has the hint."""
POLL_SECONDS = 0.5
"""How often the operator asks a workload whether it has saved."""
DELETE_SECONDS = 0.1
"""From the answer "saved" until the workload gets SIGTERM."""


class Clock:
    """Calls functions in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()  # calls of the same time keep their order

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function in so many seconds."""
        self.at(self.now + seconds, call, *arguments)

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function at a time, or now if that has passed."""
        heapq.heappush(self._calls, (max(time, self.now), next(self._numbers), call, arguments))

    def run(self, until: float) -> None:
        """Make all calls up to a time."""
        while self._calls and self._calls[0][0] <= until:
            self.now, _, call, arguments = heapq.heappop(self._calls)
            call(*arguments)
        self.now = until


@dataclass(eq=False, repr=False)
class Notice:
    """A victim's notice: it is going to leave its node, and has no SIGTERM yet."""

    preemptor: Pod
    since: float
    is_asked: bool
    """True if it is asked to save; otherwise it waits for the others of its set."""
    is_saved: bool = False


@dataclass(eq=False, repr=False)
class Sleep:
    """A preemptor that the scheduler does not try: its DELETE of a victim is being retried."""

    victim: Pod
    until: float


@dataclass(eq=False, repr=False)
class Pod:
    """A pod as the scheduler sees it; `run` is its workload."""

    run: PodRun
    node: Node | None = None
    bound_at: float = 0.0
    notice: Notice | None = None
    is_terminating: bool = False
    nominated_to: Node | None = None
    victims: list[Pod] = field(default_factory=list)  # of its last preemption
    sleep: Sleep | None = None
    attempts: int = 0
    """Failed attempts to place it."""
    backs_off_until: float = -1.0
    # Copies of what its Job says, for speed.
    priority: int = field(init=False)
    preemption_class: int = field(init=False)
    cpus: int = field(init=False)
    """Its request: devices of the node."""

    def __post_init__(self) -> None:
        job = self.run.job
        self.priority, self.preemption_class = job.tier.priority, job.preemption_class
        self.cpus = job.cpus

    @property
    def tier(self) -> Tier:
        """Its PriorityClass."""
        return self.run.job.tier

    @property
    def is_leaving(self) -> bool:
        """True if it is terminating, or has notice to go."""
        return self.is_terminating or self.notice is not None

    @property
    def is_gone(self) -> bool:
        """True once its room is free."""
        return self.run.ended_at is not None


class Node:
    """A node's room: its pods, and the pods that are nominated to it."""

    def __init__(self, cpus: int) -> None:
        self.cpus = cpus
        self.pods: dict[Pod, None] = {}  # a dictionary keeps the order, so that runs are repeatable
        self.nominated: dict[Pod, None] = {}
        self.used = 0
        self.leaving = 0
        """CPUs of the pods that are leaving."""
        self.version = 0
        """Grows with each change."""

    def bind(self, pod: Pod, now: float) -> None:
        """Take a pod."""
        pod.node, pod.bound_at = self, now
        self.pods[pod] = None
        self.used += pod.cpus
        self.version += 1

    def release(self, pod: Pod) -> None:
        """Free the room of a pod that has ended."""
        del self.pods[pod]
        self.used -= pod.cpus
        self.leaving -= pod.cpus if pod.is_leaving else 0
        self.version += 1

    def free_for(self, pod: Pod) -> int:
        """Return the free CPUs that are not for a nominated pod of the same or higher priority.

        Room that is held for a pod of lower priority is free to this one: kube-scheduler counts
        nominated pods only against those that are not more important
        (`RunFilterPluginsWithNominatedPods`).
        """
        free = self.cpus - self.used
        for other in self.nominated:
            if other is not pod and other.priority >= pod.priority:
                free -= other.cpus
        return free


def nominate(pod: Pod, node: Node, now: float) -> None:
    """Hold the room that a node will have for a pod."""
    withdraw_nomination(pod)
    pod.nominated_to = node
    pod.run.nominated_at = now if pod.run.nominated_at is None else pod.run.nominated_at
    node.nominated[pod] = None
    node.version += 1


def withdraw_nomination(pod: Pod) -> None:
    """Hold no room for a pod any more."""
    if pod.nominated_to is not None:
        del pod.nominated_to.nominated[pod]
        pod.nominated_to.version += 1
        pod.nominated_to = None


def give_notice(pod: Pod, preemptor: Pod, now: float, *, is_asked: bool) -> Notice:
    """Mark a pod as leaving."""
    assert pod.node is not None
    assert not pod.is_leaving
    pod.notice = Notice(preemptor, now, is_asked)
    pod.node.leaving += pod.cpus
    pod.node.version += 1
    return pod.notice


def reprieve(pod: Pod) -> None:
    """Take a notice back: the pod stays."""
    assert pod.node is not None
    assert not pod.is_terminating
    pod.notice = None
    pod.node.leaving -= pod.cpus
    pod.node.version += 1

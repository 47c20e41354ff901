"""The scheduler: it places pods in turn, nominates preemptors and has victims chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from .choices import VictimSelector
from .contenders import Contender, Mechanism, Order, Waiting
from .model import SEEN_SECONDS, Clock, Node, Pod, nominate, withdraw_nomination
from .notice import VictimHandler
from .workloads import Kubelets

_FIRST_BACK_OFF_SECONDS = 1.0
"""`podInitialBackoffSeconds`; it is doubled with each attempt, up to the contender's longest."""


class _Preemption(Enum):
    """What a try to preempt came to."""

    BEGUN = "victims were chosen"
    WAITS = "room is coming"
    IMPOSSIBLE = "no node has victims"


@dataclass(frozen=True, kw_only=True)
class DecisionTimes:
    """How long a scheduler is busy with one pod; it tries one at a time."""

    attempt_seconds: float = 0.0
    """Looking for room, and in vain for victims."""
    call_seconds: float = 0.0
    """Asking the extender."""

    @property
    def is_none(self) -> bool:
        """True where decisions take no time."""
        return not self.attempt_seconds and not self.call_seconds


class Scheduler:
    """Tries all pending pods each time when something changed.

    As kube-scheduler, it tries those first that wait out no back-off, then the others in the order
    in which that ends: in whole seconds, and by priority within one (`lessBackoffCompletedWith-
    Priority`). By default it needs no time for a decision.
    """

    def __init__(
        self,
        contender: Contender,
        nodes: Sequence[Node],
        clock: Clock,
        random: Random,
        selector: VictimSelector,
        times: DecisionTimes,
    ) -> None:
        self._contender = contender
        self._times = times
        self._nodes = nodes
        self._clock = clock
        self._random = random
        self._selector = selector
        self._pending: list[Pod] = []
        self._is_woken = False
        self._queued: list[Pod] = []
        """Pods that were not tried since something changed, where decisions take time."""
        self._is_busy = False

    def connect(self, kubelets: Kubelets, victims: VictimHandler) -> None:
        """Set what the scheduler gives orders to."""
        self._kubelets = kubelets
        self._victims = victims

    def created(self, pod: Pod) -> None:
        """Queue a pod that was just created."""
        self._clock.after(SEEN_SECONDS, self._enqueue, pod)

    def wake(self) -> None:
        """Try all pending pods, after everything else that happens now."""
        if not self._is_woken:
            self._is_woken = True
            self._clock.after(0.0, self._schedule if self._times.is_none else self._requeue)

    def _enqueue(self, pod: Pod) -> None:
        self._pending.append(pod)
        self.wake()

    def _schedule(self) -> None:
        self._is_woken = False
        self._pending.sort(key=self._turn)
        still: list[Pod] = []
        # Pods that are alike share an answer within one round.
        without_room: set[tuple[int, int]] = set()
        without_victims: set[tuple[int, int, int]] = set()
        for pod in self._pending:
            if self._victims.is_asleep(pod):
                still.append(pod)
                continue
            shape = pod.priority, pod.cpus
            is_worth_a_try = shape not in without_room or pod.nominated_to is not None
            node = self._place(pod) if is_worth_a_try else None
            if node is not None:
                self._bind(pod, node)
                continue
            still.append(pod)
            self._back_off(pod)
            if pod.nominated_to is None:
                without_room.add(shape)
            kind = *shape, pod.preemption_class
            if kind not in without_victims and self._preempt(pod) is _Preemption.IMPOSSIBLE:
                without_victims.add(kind)
        self._pending = still

    def _requeue(self) -> None:
        self._is_woken = False
        self._queued = [*self._pending]
        if not self._is_busy:
            self._try_next()

    def _try_next(self) -> None:
        """Try the pod whose turn it is, and the next one when that is done."""
        self._queued = [pod for pod in self._queued if not self._victims.is_asleep(pod)]
        self._is_busy = bool(self._queued)
        if self._queued:
            pod = min(self._queued, key=self._turn)
            self._queued.remove(pod)
            self._clock.after(self._try_one(pod), self._try_next)

    def _try_one(self, pod: Pod) -> float:
        """Try to place a pod; return the seconds that this takes."""
        node = self._place(pod)
        if node is not None:
            self._pending.remove(pod)
            self._bind(pod, node)
            return self._times.attempt_seconds
        self._back_off(pod)
        is_terminating = pod.nominated_to is not None and any(
            other.is_terminating for other in pod.nominated_to.pods
        )
        outcome = self._preempt(pod)
        is_asked = (
            self._contender.asks_extender
            and outcome is not _Preemption.IMPOSSIBLE
            # kube-scheduler does not ask while pods of the nominated node are terminating.
            and not is_terminating
        )
        return self._times.attempt_seconds + (self._times.call_seconds if is_asked else 0.0)

    def _turn(self, pod: Pod) -> tuple[float, int, float]:
        """Return the key by which pending pods are tried, the first with the lowest."""
        is_backing_off = pod.backs_off_until >= math.floor(self._clock.now)
        waits_until = pod.backs_off_until if is_backing_off else 0.0
        return waits_until, -pod.priority, pod.run.created_at

    def _back_off(self, pod: Pod) -> None:
        """Note a failed attempt."""
        seconds = min(
            _FIRST_BACK_OFF_SECONDS * 2.0**pod.attempts, self._contender.longest_back_off_seconds
        )
        pod.attempts = min(pod.attempts + 1, 10)
        pod.backs_off_until = math.floor(self._clock.now + seconds)

    def _place(self, pod: Pod) -> Node | None:
        """Return the nominated node if it has room, else the node with the most free CPUs."""
        nominated = pod.nominated_to
        if nominated is not None and nominated.free_for(pod) >= pod.cpus:
            return nominated
        best, most, cpus = None, -1.0, pod.cpus
        for node in self._nodes:
            free = node.cpus - node.used
            if free < cpus or (node.nominated and node.free_for(pod) < cpus):
                continue
            score = free + self._random.random()
            if score > most:
                best, most = node, score
        return best

    def _bind(self, pod: Pod, node: Node) -> None:
        withdraw_nomination(pod)
        node.bind(pod, self._clock.now)
        self._victims.placed(pod)
        self._kubelets.start(pod)

    def _preempt(self, pod: Pod) -> _Preemption:
        if self._waits_for_its_victims(pod):
            return _Preemption.WAITS
        released = self._released_node(pod)
        if released is not None:
            if self._contender.waiting is Waiting.FOR_UNCLAIMED and pod.nominated_to is None:
                nominate(pod, released, self._clock.now)
            return _Preemption.WAITS
        chosen = self._selector.choose(pod, self._nodes, self._clock.now)
        if chosen is None:
            if self._contender.order is Order.STOCK:
                withdraw_nomination(pod)
            return _Preemption.IMPOSSIBLE
        node, victims = chosen
        if self._is_patient(pod, victims):
            return _Preemption.WAITS
        if not all(victim.is_leaving for victim in victims):
            for other in [other for other in node.nominated if other.priority < pod.priority]:
                withdraw_nomination(other)
        nominate(pod, node, self._clock.now)
        self._victims.preempt(pod, victims)
        return _Preemption.BEGUN

    def _is_patient(self, pod: Pod, victims: Sequence[Pod]) -> bool:
        """True if it waits for a pod that terminates, rather than take victims that lose much."""
        patience, now = self._contender.patience_seconds, self._clock.now
        return (
            now - pod.run.created_at < patience
            and self._victims.loss_without_save(victims) > patience * pod.cpus
            and any(other.is_terminating for node in self._nodes for other in node.pods)
        )

    def _waits_for_its_victims(self, pod: Pod) -> bool:
        if pod.nominated_to is None:
            return False
        # kube-scheduler sees only pods that are terminating (`PodEligibleToPreemptOthers`); the
        # extender, and a mechanism that holds room, also see those that have notice.
        sees_notices = (
            self._contender.mechanism is Mechanism.HELD
            or self._contender.waiting is not Waiting.FOR_ITS_OWN
        )
        return any(
            other.priority < pod.priority
            and (other.is_terminating or (sees_notices and other.is_leaving))
            for other in pod.nominated_to.pods
        )

    def _released_node(self, pod: Pod) -> Node | None:
        """Return a node that will have room for the pod once those are gone that are leaving."""
        if self._contender.waiting is Waiting.FOR_ITS_OWN:
            return None
        is_claimable = self._contender.waiting is Waiting.FOR_ANY
        for node in self._nodes:
            if not node.leaving or (node.nominated and not is_claimable):
                continue
            if node.free_for(pod) + node.leaving >= pod.cpus:
                return node
        return None

"""The choice of victims: on one node, and among nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from random import Random

from bench.preemption.trace import HINTED

from .contenders import Contender, Order
from .losses import Losses
from .model import Node, Pod
from .rules import may_preempt, protected_until

_STOCK_NODES = 100
"""kube-scheduler looks for this many candidate nodes (`minCandidateNodesAbsolute`)."""
_OFFSET = 2**31
"""kube-scheduler adds it to priorities, so that more victims are always worse."""


class VictimSelector:
    """Chooses victims as one contender does."""

    def __init__(self, contender: Contender, losses: Losses, random: Random) -> None:
        self._contender = contender
        self._losses = losses
        self._random = random
        self._barren: dict[tuple[int, int, int], dict[Node, tuple[int, float]]] = {}
        """Nodes without victims, by shape of the preemptor: their version, and until when.

        Most tries find none: without this, a run takes several times as long.
        """

    def choose(
        self, preemptor: Pod, nodes: Sequence[Node], now: float
    ) -> tuple[Node, list[Pod]] | None:
        """Return the best node with its victims, or None if no node has any."""
        shape = preemptor.priority, preemptor.preemption_class, preemptor.cpus
        barren = self._barren.setdefault(shape, {})
        start = self._random.randrange(len(nodes))
        best: tuple[tuple[float, ...], Node, list[Pod]] | None = None
        found = 0
        for node in (*nodes[start:], *nodes[:start]):
            known = barren.get(node)
            if known is not None and known[0] == node.version and now < known[1]:
                continue
            victims = self._victims(preemptor, node, now)
            if not victims:
                barren[node] = node.version, _until(node, now)
                continue
            found += 1
            rank = self._rank(victims, now)
            if best is None or rank < best[0]:
                best = rank, node, victims
            if self._contender.order is Order.STOCK and found == _STOCK_NODES:
                break
        return None if best is None else best[1:]

    def _victims(self, preemptor: Pod, node: Node, now: float) -> list[Pod] | None:
        contender = self._contender
        possible = [pod for pod in node.pods if may_preempt(contender.rules, preemptor, pod, now)]
        free = node.free_for(preemptor)
        if contender.order is not Order.STOCK:
            # Room that is being freed is as good as free; kube-scheduler does not see that.
            free += node.leaving
            possible = [pod for pod in possible if not pod.is_leaving]
        if not possible or free + sum(pod.cpus for pod in possible) < preemptor.cpus:
            return None
        if contender.order in (Order.LOSS, Order.PRIORITY_THEN_LOSS):
            return self._least_loss(possible, preemptor.cpus - free, now)
        surplus = free + sum(pod.cpus for pod in possible) - preemptor.cpus
        victims = self._spared_in_order(possible, surplus, now)
        most = contender.most_victims
        return victims if most is None or len(victims) <= most else None

    def _least_loss(self, possible: Sequence[Pod], need: int, now: float) -> list[Pod] | None:
        most = self._contender.most_victims

        def loss(pod: Pod) -> float:
            return self._losses.expected(pod, now)

        if self._contender.order is Order.LOSS:
            return cheapest(possible, need, loss, most)
        for highest in sorted({pod.priority for pod in possible}):
            allowed = [pod for pod in possible if pod.priority <= highest]
            if victims := cheapest(allowed, need, loss, most):
                return victims
        return None

    def _spared_in_order(self, possible: Sequence[Pod], surplus: int, now: float) -> list[Pod]:
        """Spare as many pods as there is room for, the most important first; return the others."""
        if self._contender.order is Order.STOCK:
            return spare(sorted(possible, key=lambda pod: (-pod.priority, pod.bound_at)), surplus)

        def importance(pod: Pod) -> tuple[int, int]:
            return -pod.priority, -pod.preemption_class

        costly = sorted(
            possible, key=lambda pod: (*importance(pod), -estimated_cost(pod, now), pod.bound_at)
        )
        small = sorted(possible, key=lambda pod: (*importance(pod), pod.cpus, pod.bound_at))
        return min(spare(costly, surplus), spare(small, surplus), key=len)

    def _rank(self, victims: Sequence[Pod], now: float) -> tuple[float, ...]:
        """Return the rank of a set of victims; the set of the lowest rank is preempted."""
        highest = max(pod.priority for pod in victims)
        if self._contender.order in (Order.LOSS, Order.PRIORITY_THEN_LOSS):
            loss = sum(self._losses.expected(pod, now) for pod in victims)
            first = highest if self._contender.order is Order.PRIORITY_THEN_LOSS else 0
            return first, loss, len(victims)
        youngest = -min(pod.bound_at for pod in victims if pod.priority == highest)
        stock = highest, sum(pod.priority + _OFFSET for pod in victims), len(victims)
        if self._contender.order is Order.STOCK:
            return *stock, youngest
        cost = sum(estimated_cost(pod, now) for pod in victims)
        return *stock, max(pod.preemption_class for pod in victims), cost, youngest


def _until(node: Node, now: float) -> float:
    """Return when the next pod of a node loses its protection."""
    ends = [end for pod in node.pods if (end := protected_until(pod)) is not None and end > now]
    return min(ends, default=math.inf)


def spare(possible: Iterable[Pod], surplus: int) -> list[Pod]:
    """Spare pods in this order while `surplus` CPUs are left for them; return the others."""
    victims = []
    for pod in possible:
        if pod.cpus <= surplus:
            surplus -= pod.cpus
        else:
            victims.append(pod)
    return victims


def cheapest(
    possible: Iterable[Pod], need: int, loss: Callable[[Pod], float], most: int | None
) -> list[Pod] | None:
    """Return the pods with the least loss, then the fewest, that free `need` CPUs together.

    Return None if no set of at most `most` pods does, or if none is needed. The search is exact.
    """
    if need <= 0:
        return None
    # Of pods of one size, only those with the least loss can be of the best set.
    by_size: dict[int, list[tuple[float, Pod]]] = {}
    for pod in possible:
        by_size.setdefault(pod.cpus, []).append((loss(pod), pod))
    useful = [
        each
        for size, pods in by_size.items()
        for each in sorted(pods, key=lambda pair: pair[0])[: math.ceil(need / size)]
    ]
    most = need if most is None else most
    # The least loss for each number of freed CPUs and of pods.
    best: dict[tuple[int, int], tuple[float, tuple[Pod, ...]]] = {(0, 0): (0.0, ())}
    for lost, pod in useful:
        for (freed, number), (total, pods) in list(best.items()):
            if number == most or freed == need:
                continue
            key = min(need, freed + pod.cpus), number + 1
            if key not in best or total + lost < best[key][0]:
                best[key] = total + lost, (*pods, pod)
    sets = [(best[key][0], key[1], best[key][1]) for key in best if key[0] == need]
    return list(min(sets, key=lambda each: each[:2])[2]) if sets else None


def estimated_cost(pod: Pod, now: float) -> float:
    """Return the device-seconds that Reprieve 0.1 expects a preemption to cost."""
    checkpoints = pod.run.job.checkpoints
    if pod.run.job.kind == HINTED and checkpoints is not None:
        return math.ceil(checkpoints.save_seconds) * pod.cpus
    return (now - pod.bound_at) * pod.cpus

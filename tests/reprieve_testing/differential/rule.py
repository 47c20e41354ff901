"""Upstream's rule in plain Python, written from its sources, and the named ways in which Reprieve's differs from it.

scheduler-plugins v0.34.7 `pkg/preemptiontoleration` (who may be a victim, and in which order they are spared) and Kubernetes
v1.34 `pkg/scheduler/framework/preemption` (which node). It is no reference by itself: `tests/differential` runs its scenes
through the schedulers too, and all must agree. Nothing of Reprieve's is imported: what is compared must not judge itself.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .scene import MINIMUM, SECONDS, Budget, Node, Outcome, Pod, PriorityClass, Scene

_NANOS = 10**9
_INT32, _INT64 = 1 << 31, 1 << 63
_LOWEST = -(1 << 31)


@dataclass(frozen=True)
class Rule:
    """What a chooser does; each field that is not its default is a difference from upstream."""

    most_victims: int | None = None


UPSTREAM = Rule()


@dataclass(frozen=True)
class _Candidate:
    """A node on which preemption would help, and how."""

    node: str
    victims: tuple[Pod, ...]
    violations: int

    def order(self) -> tuple[int, int, int, int, int]:
        """Return the key by which upstream prefers nodes, least first."""
        highest = max(victim.priority for victim in self.victims)
        longest = max(_age(victim) for victim in self.victims if victim.priority == highest)
        total = sum(victim.priority - _LOWEST for victim in self.victims)
        return self.violations, highest, total, len(self.victims), longest


def decide(scene: Scene, rule: Rule = UPSTREAM) -> Outcome:
    """Return what becomes of the scene."""
    nodes = [node for node in scene.nodes if _admits(node, scene)]
    if scene.preemptor.priority_class and scene.preemptor.priority_class.never_preempts:
        return Outcome()
    if any(_fits(scene.preemptor, node, node.pods) for node in nodes):
        return Outcome()
    found = [candidate for node in nodes for candidate in _candidates(scene, node, rule)]
    if not found:
        return Outcome()
    best = min(found, key=_Candidate.order)
    return Outcome(best.node, frozenset(victim.name for victim in best.victims if not victim.is_going))


def _candidates(scene: Scene, node: Node, rule: Rule) -> Iterator[_Candidate]:
    """Yield what could be done on this node: one thing, or nothing."""
    below = [pod for pod in node.pods if pod.priority < scene.preemptor.priority]
    if any(pod.priority_class and pod.priority_class.is_gone for pod in below):
        return  # upstream: an error about one pod is one about its node
    possible = [pod for pod in below if not tolerates(pod, scene.preemptor)]
    names = {pod.name for pod in possible}
    staying = [pod for pod in node.pods if pod.name not in names]
    if not possible or not _fits(scene.preemptor, node, staying):
        return
    possible.sort(key=lambda pod: (-pod.priority, -_age(pod)))
    violating = {pod.name for pod in _violating(possible, scene.budgets)}
    victims = []
    for pod in sorted(possible, key=lambda pod: pod.name not in violating):
        if _fits(scene.preemptor, node, [*staying, pod]):
            staying.append(pod)
        else:
            victims.append(pod)
    if rule.most_victims is None or len(victims) <= rule.most_victims:
        yield _Candidate(node.name, tuple(victims), sum(pod.name in violating for pod in victims))


def tolerates(victim: Pod, preemptor: Pod) -> bool:
    """Say whether the victim's PriorityClass lets it stay: upstream's `ExemptedFromPreemption`."""
    named = victim.priority_class
    policy = _policy(named) if named else None
    if policy is None:
        return False
    minimum, nanos = policy
    if preemptor.priority >= minimum:
        return False
    if nanos is None or victim.scheduled_ago is None or not victim.is_scheduled:
        return True
    return nanos > victim.scheduled_ago * _NANOS


def _policy(named: PriorityClass) -> tuple[int, int | None] | None:
    """Return the least priority that may preempt, and for how many nanoseconds (`None`: ever); `None`: unreadable."""
    minimum = _parse_int(named.annotations.get(MINIMUM, str(named.value + 1)), _INT32)
    seconds = _parse_int(named.annotations.get(SECONDS, "0"), _INT64)
    if minimum is None or seconds is None:
        return None
    # As Go multiplies: an int64 that overflows comes out as something else, and is not negative for that.
    return minimum, None if seconds < 0 else (seconds * _NANOS + _INT64) % (2 * _INT64) - _INT64


def _parse_int(text: str, limit: int) -> int | None:
    """Read a whole number as `strconv.ParseInt(text, 10, …)` does."""
    number = int(text) if re.fullmatch("[+-]?[0-9]+", text, re.ASCII) else None
    return number if number is not None and -limit <= number < limit else None


def _violating(pods: Iterable[Pod], budgets: Iterable[Budget]) -> list[Pod]:
    """Return those whose disruption a budget does not allow; those before them have used it up."""
    known = tuple(budgets)
    left = [budget.allowed for budget in known]
    found = []
    for pod in pods:
        mine = [number for number, budget in enumerate(known) if budget.concerns(pod)]
        for number in mine:
            left[number] -= 1
        if any(left[number] < 0 for number in mine):
            found.append(pod)
    return found


def _admits(node: Node, scene: Scene) -> bool:
    """Say whether the preemptor could be there at all, whoever goes."""
    return not node.is_cordoned and (scene.tolerates_taint or not node.is_tainted)


def _fits(preemptor: Pod, node: Node, others: Iterable[Pod]) -> bool:
    pods = [preemptor, *others]
    return (
        sum(pod.cpu for pod in pods) <= node.cpu
        and sum(pod.memory for pod in pods) <= node.memory
        and len(pods) <= node.most_pods
        and not any(pod.host_port == preemptor.host_port for pod in pods[1:] if pod.host_port)
    )


def _age(pod: Pod) -> int:
    """Return for how long it has run: one that has not started starts now."""
    return pod.started_ago or 0

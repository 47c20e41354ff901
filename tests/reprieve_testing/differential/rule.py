"""Upstream's rule in plain Python, written from its sources, with Reprieve's differences as
switches.

The sources are scheduler-plugins v0.34.7 `pkg/preemptiontoleration` (which pods may be victims, and
the order in which they are reprieved) and Kubernetes v1.34 `pkg/scheduler/framework/preemption`
(which node). The rule is no reference by itself: `tests/differential` runs its scenarios through
the schedulers too, and all must agree. It imports nothing of Reprieve's: the code under comparison
must not judge itself.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from . import exemption
from .difference import Difference
from .scenario import (
    CAN_PREEMPT,
    CLASS,
    COST,
    GANG,
    PREEMPTIBLE,
    Scenario,
    ScenarioBudget,
    ScenarioNode,
    ScenarioOutcome,
    ScenarioPod,
)

UPSTREAM: frozenset[Difference] = frozenset()
REPRIEVE = frozenset(Difference)

_MOST_VICTIMS = 3
_DEFAULT_CLASS = "4"
_LOWEST = -(1 << 31)


def decide(scenario: Scenario, differing: frozenset[Difference] = UPSTREAM) -> ScenarioOutcome:
    """Return the scenario's outcome by upstream's rule with these differences."""
    return _UpstreamDecision(scenario, differing).decide()


def explain(scenario: Scenario, outcome: ScenarioOutcome) -> frozenset[Difference] | None:
    """Return the smallest set of differences that turns upstream's outcome into this one.

    `None`: no set does.
    """
    sets = (
        frozenset(some)
        for count in range(len(Difference) + 1)
        for some in combinations(Difference, count)
    )
    return next((some for some in sets if decide(scenario, some) == outcome), None)


def with_gangs(scenario: Scenario, outcome: ScenarioOutcome) -> ScenarioOutcome:
    """Return a scheduler's outcome together with the operator's next step.

    The scheduler names one pod of a gang; the operator also evicts the gang's pods on the node.
    """
    on_node = [
        pod
        for node in scenario.nodes
        if node.name == outcome.node
        for pod in node.pods
        if not pod.is_terminating
    ]
    gangs = {_gang(pod) for pod in on_node if pod.name in outcome.victims} - {None}
    return replace(
        outcome, victims=outcome.victims | {pod.name for pod in on_node if _gang(pod) in gangs}
    )


def has_room(scenario: Scenario) -> bool:
    """Return whether the preemptor fits without a victim: then the scheduler preempts nothing."""
    return _UpstreamDecision(scenario, UPSTREAM).has_room()


def is_offered(scenario: Scenario, node: ScenarioNode) -> bool:
    """Return whether kube-scheduler considers preemption on this node, and so calls an extender.

    It removes all pods of lower priority and tries. A pod of the same or a higher priority keeps
    its room there until it is gone, also if it is terminating.
    """
    staying = [pod for pod in node.pods if pod.priority >= scenario.preemptor.priority]
    return _fits(scenario.preemptor, node, staying)


@dataclass(frozen=True)
class _Unit:
    """The pods that are evicted or stay together."""

    on_node: tuple[ScenarioPod, ...]
    all_pods: tuple[ScenarioPod, ...]
    priority: int
    is_gang: bool

    def importance(self) -> tuple[int, int, int]:
        """Return the sort key by which the most important come first."""
        size = len(self.all_pods) if self.is_gang else 0
        return -self.priority, -size, -max(map(_age, self.all_pods))

    def worth(self) -> tuple[int, ...]:
        """Return the sort key by which the highest class, and within a class the highest cost,
        comes first.
        """
        cost = _cost(self.all_pods)
        highest = max(map(_class, self.all_pods))
        return (
            -self.priority,
            -self.is_gang,
            -highest,
            *(-part for part in cost),
            -max(map(_age, self.all_pods)),
        )


@dataclass(frozen=True)
class _Candidate:
    """A node on which preemption would help, and the victims."""

    node: str
    units: tuple[_Unit, ...]
    violations: int

    @property
    def victims(self) -> tuple[ScenarioPod, ...]:
        """All victims, wherever they run."""
        return tuple(pod for unit in self.units for pod in unit.all_pods)


class _UpstreamDecision:
    """One decision."""

    def __init__(self, scenario: Scenario, differing: frozenset[Difference]) -> None:
        self._scene = scenario
        self._preemptor = scenario.preemptor
        self._differing = differing
        self._nodes = [node for node in scenario.nodes if _admits(node, scenario)]

    def decide(self) -> ScenarioOutcome:
        if self._may_not_preempt() or self.has_room():
            return ScenarioOutcome()
        found = [candidate for node in self._nodes for candidate in self._candidates(node)]
        if not found:
            return ScenarioOutcome()
        considers_cost = Difference.COST in self._differing and any(
            _states_preferences(pod) for it in found for pod in it.victims
        )
        best = min(
            found, key=lambda candidate: self._order(candidate, considers_cost=considers_cost)
        )
        on_node = (pod for unit in best.units for pod in unit.on_node)
        return ScenarioOutcome(
            best.node, frozenset(pod.name for pod in on_node if not pod.is_terminating)
        )

    def has_room(self) -> bool:
        return any(_fits(self._preemptor, node, node.pods) for node in self._nodes)

    def _is_rejected(self, pods: Sequence[ScenarioPod]) -> bool:
        """Return whether a node is no candidate: upstream treats an error about a pod as one
        about its node.
        """
        return any(
            pod.lacks_priority_class and self._is_below(pod) and not self._is_in_preemptor_gang(pod)
            for pod in pods
        )

    def _may_not_preempt(self) -> bool:
        named = self._preemptor.priority_class
        is_forbidden = (
            Difference.CAN_PREEMPT in self._differing
            and self._preemptor.labels.get(CAN_PREEMPT) == "false"
        )
        return is_forbidden or (named is not None and named.never_preempts)

    def _candidates(self, node: ScenarioNode) -> Iterator[_Candidate]:
        """Yield the node's candidate, if any."""
        if not self._is_considered(node):
            return
        pods = [pod for pod in node.pods if not self._is_terminating(pod)]
        if self._is_rejected(pods):
            return
        units = list(self._units(pods))
        names = {pod.name for unit in units for pod in unit.on_node}
        staying = [pod for pod in pods if pod.name not in names]
        if not units or not _fits(self._preemptor, node, staying):
            return
        considers_cost = Difference.COST in self._differing and any(
            _states_preferences(pod) for unit in units for pod in unit.on_node
        )
        units.sort(key=_Unit.worth if considers_cost else _Unit.importance)
        victims, violations = self._reprieve(node, staying, units)
        most = _MOST_VICTIMS if Difference.MOST_VICTIMS in self._differing else len(victims)
        if len(victims) > (1 if considers_cost else most):
            fewer, broken = self._reprieve(node, staying, sorted(units, key=self._smallness))
            if len(fewer) < len(victims) and broken <= violations:
                victims, violations = fewer, broken
        if len(victims) > most:
            few = self._few_large(node, staying, units, most)
            if few:
                broken = sum(_budget_violations(few, self._scene.budgets).values())
                victims, violations = few, broken
        if 0 < len(victims) <= most:
            yield _Candidate(node.name, tuple(victims), violations)

    def _is_considered(self, node: ScenarioNode) -> bool:
        """Return whether victims are chosen on a node: one that kube-scheduler offers.

        An extender that is called for another node looks at all of them.
        """
        is_called = Difference.GOING in self._differing and any(
            is_offered(self._scene, other) for other in self._nodes
        )
        return is_called or is_offered(self._scene, node)

    def _reprieve(
        self, node: ScenarioNode, staying: Iterable[ScenarioPod], units: Sequence[_Unit]
    ) -> tuple[list[_Unit], int]:
        """Return the victims, and how many budget violations they cause.

        The units are reprieved in their order while they fit.
        """
        broken, kept, victims = _budget_violations(units, self._scene.budgets), list(staying), []
        for unit in sorted(units, key=lambda unit: not broken[id(unit)]):
            if _fits(self._preemptor, node, [*kept, *unit.on_node]):
                kept.extend(unit.on_node)
            else:
                victims.append(unit)
        return victims, sum(broken[id(unit)] for unit in victims)

    def _smallness(self, unit: _Unit) -> tuple[float, ...]:
        """Return the sort key by which the smallest of a class come first."""
        return (
            -unit.priority,
            -unit.is_gang,
            -max(map(_class, unit.all_pods)),
            self._share(unit),
            -max(map(_age, unit.all_pods)),
        )

    def _few_large(
        self,
        node: ScenarioNode,
        staying: Iterable[ScenarioPod],
        units: Sequence[_Unit],
        most: int,
    ) -> list[_Unit]:
        """Return few victims, of the lowest priority with which that many are enough."""
        by_importance = sorted(units, key=_Unit.importance)
        broken = _budget_violations(by_importance, self._scene.budgets)
        lacking = self._lacking(node, [*staying, *(pod for one in units for pod in one.on_node)])
        by_size = sorted(
            by_importance,
            key=lambda unit: sum(
                sum(amount(pod) / lack for amount, lack in lacking) for pod in unit.on_node
            ),
        )

        def up_to(priority: int, *, are_protected: bool) -> list[_Unit]:
            kept, victims = list(staying), []
            for unit in sorted(
                by_size,
                key=lambda unit: (
                    not (are_protected and broken[id(unit)]),
                    unit.priority <= priority,
                ),
            ):
                if _fits(self._preemptor, node, [*kept, *unit.on_node]):
                    kept.extend(unit.on_node)
                else:
                    victims.append(unit)
            is_within = all(unit.priority <= priority for unit in victims)
            return victims if is_within and len(victims) <= most else []

        for are_protected in (True, False):
            search = partial(up_to, are_protected=are_protected)
            priorities = sorted({unit.priority for unit in units})
            place = bisect_left(priorities, 1, key=lambda priority: bool(search(priority)))
            if place < len(priorities):
                return sorted(search(priorities[place]), key=_Unit.importance)
        return []

    def _lacking(
        self, node: ScenarioNode, pods: Sequence[ScenarioPod]
    ) -> Sequence[tuple[Callable[[ScenarioPod], int], int]]:
        """Return what the preemptor lacks beside these pods: a request, and how much of it."""
        own = self._preemptor
        requests: list[tuple[Callable[[ScenarioPod], int], int]] = [
            (lambda pod: pod.cpu, node.cpu if own.cpu else sum(pod.cpu for pod in pods)),
            (
                lambda pod: pod.memory,
                node.memory if own.memory else sum(pod.memory for pod in pods),
            ),
            (lambda _: 1, node.most_pods),
        ]
        lacking = [
            (amount, sum(map(amount, [own, *pods])) - allocatable)
            for amount, allocatable in requests
        ]
        if own.host_port:
            same = [pod for pod in pods if pod.host_port == own.host_port]
            lacking.append((lambda pod: int(pod.host_port == own.host_port), len(same)))
        return [(amount, lack) for amount, lack in lacking if lack > 0]

    def _share(self, unit: _Unit) -> float:
        """Return how much of what the preemptor requests the unit releases."""
        preemptor = self._preemptor
        requests = [(pod.cpu, preemptor.cpu) for pod in unit.on_node] + [
            (pod.memory, preemptor.memory) for pod in unit.on_node
        ]
        return sum(its / own for its, own in requests if own)

    def _units(self, pods: Sequence[ScenarioPod]) -> Iterator[_Unit]:
        """Yield the units of these pods of one node that may be victims."""
        seen = set()
        for pod in pods:
            is_gang = Difference.GANG in self._differing and _gang(pod) is not None
            all_pods = self._gang_of(pod) if is_gang else (pod,)
            names = frozenset(member.name for member in all_pods)
            if names not in seen and all(map(self._is_eligible, all_pods)):
                on_node = tuple(other for other in pods if other.name in names)
                yield _Unit(on_node, all_pods, max(map(self._priority, all_pods)), is_gang)
            seen.add(names)

    def _is_in_preemptor_gang(self, pod: ScenarioPod) -> bool:
        """Return whether a pod is of the preemptor's own gang: then no other property of it
        matters.
        """
        return (
            Difference.GANG in self._differing
            and _gang(pod) is not None
            and _gang(pod) == _gang(self._preemptor)
        )

    def _is_terminating(self, pod: ScenarioPod) -> bool:
        """Return whether a pod is terminating and therefore no victim.

        Its gang is not evicted for that: the pod is deleted, not marked.
        """
        return Difference.GOING in self._differing and pod.is_terminating

    def _gang_of(self, pod: ScenarioPod) -> tuple[ScenarioPod, ...]:
        all_pods = (
            other for node in self._scene.nodes for other in node.pods if _gang(other) == _gang(pod)
        )
        return tuple(other for other in all_pods if not self._is_terminating(other))

    def _is_eligible(self, pod: ScenarioPod) -> bool:
        """Return whether a pod by itself may be a victim."""
        refused = {
            Difference.GOING: self._is_terminating(pod),
            Difference.PREEMPTIBLE: pod.labels.get(PREEMPTIBLE) == "false",
            Difference.CLASS: not self._is_below_in_class(pod),
            Difference.GANG: self._is_in_preemptor_gang(pod),
        }
        overflows = Difference.OVERFLOW not in self._differing
        return (
            self._is_below(pod)
            and not pod.lacks_priority_class
            and not exemption.tolerates(pod, self._preemptor, overflows=overflows)
            and not any(
                holds for difference, holds in refused.items() if difference in self._differing
            )
        )

    def _is_below(self, pod: ScenarioPod) -> bool:
        return self._priority(pod) < self._preemptor.priority

    def _is_below_in_class(self, pod: ScenarioPod) -> bool:
        preemptor_class, victim_class = (
            int(it.labels.get(CLASS, _DEFAULT_CLASS)) for it in (self._preemptor, pod)
        )
        is_default = victim_class == preemptor_class == int(_DEFAULT_CLASS)
        return victim_class < preemptor_class or is_default

    def _priority(self, pod: ScenarioPod) -> int:
        if pod.defended_as is None or Difference.DEFENCE not in self._differing:
            return pod.priority
        return max(pod.priority, pod.defended_as.value)

    def _order(self, candidate: _Candidate, *, considers_cost: bool) -> tuple[float, ...]:
        """Return the sort key by which the preferred node comes first.

        Upstream's criteria, with the cost before the last one.
        """
        victims = candidate.victims
        priorities = [self._priority(pod) for pod in victims]
        longest = max(_age(pod) for pod in victims if self._priority(pod) == max(priorities))
        total = sum(priority - _LOWEST for priority in priorities)
        cost = (max(map(_class, victims)), *_cost(victims)) if considers_cost else ()
        return candidate.violations, max(priorities), total, len(victims), *cost, longest


def _fits(preemptor: ScenarioPod, node: ScenarioNode, others: Iterable[ScenarioPod]) -> bool:
    there = list(others)
    pods = [preemptor, *there]
    return (
        sum(pod.cpu for pod in pods) <= node.cpu
        and sum(pod.memory for pod in pods) <= node.memory
        and len(pods) <= node.most_pods
        and not any(pod.host_port and pod.host_port == preemptor.host_port for pod in there)
    )


def _budget_violations(units: Iterable[_Unit], budgets: Sequence[ScenarioBudget]) -> dict[int, int]:
    """Return by the unit's id how many of its pods violate a budget.

    The pods before them have used the budget up.
    """
    left = [budget.allowed for budget in budgets]

    def is_too_much(pod: ScenarioPod) -> bool:
        concerned = [number for number, budget in enumerate(budgets) if budget.concerns(pod)]
        for number in concerned:
            left[number] -= 1
        return any(left[number] < 0 for number in concerned)

    return {id(unit): sum([is_too_much(pod) for pod in unit.all_pods]) for unit in units}


def _gang(pod: ScenarioPod) -> tuple[str, str] | None:
    """Return the key of the pod's gang, or `None`."""
    return (pod.namespace, pod.labels[GANG]) if GANG in pod.labels else None


def _admits(node: ScenarioNode, scenario: Scenario) -> bool:
    """Return whether the preemptor could run on the node at all, with any victims."""
    return not node.is_cordoned and (scenario.tolerates_taint or not node.is_tainted)


def _class(pod: ScenarioPod) -> int:
    return int(pod.labels.get(CLASS, _DEFAULT_CLASS))


def _cost(pods: Sequence[ScenarioPod]) -> tuple[int, int]:
    """Return the pods' stated cost, and their work that would be lost."""
    return sum(int(pod.annotations.get(COST, "0")) for pod in pods), sum(
        pod.cpu * _age(pod) for pod in pods
    )


def _states_preferences(pod: ScenarioPod) -> bool:
    """Return whether the pod states a preference about its preemption."""
    return (
        pod.labels.get(CLASS, _DEFAULT_CLASS) != _DEFAULT_CLASS
        or pod.annotations.get(COST, "0") != "0"
    )


def _age(pod: ScenarioPod) -> int:
    """Return how long the pod has run; a pod that has not started starts now."""
    return pod.started_ago or 0

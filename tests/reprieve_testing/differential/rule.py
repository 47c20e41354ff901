"""Upstream's rule in plain Python, written from its sources, and how it reads with Reprieve's differences.

scheduler-plugins v0.34.7 `pkg/preemptiontoleration` (who may be a victim, and in which order they are spared) and Kubernetes
v1.34 `pkg/scheduler/framework/preemption` (which node). It is no reference by itself: `tests/differential` runs its scenarios
through the schedulers too, and all must agree. Nothing of Reprieve's is imported: what is compared must not judge itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    """Return what becomes of the scenario by upstream's rule, with these differences."""
    return _UpstreamDecision(scenario, differing).decide()


def explain(scenario: Scenario, outcome: ScenarioOutcome) -> frozenset[Difference] | None:
    """Return the fewest differences by which upstream's rule comes to this outcome; `None`: none of them explain it."""
    sets = (
        frozenset(some)
        for count in range(len(Difference) + 1)
        for some in combinations(Difference, count)
    )
    return next((some for some in sets if decide(scenario, some) == outcome), None)


def with_gangs(scenario: Scenario, outcome: ScenarioOutcome) -> ScenarioOutcome:
    """Return what a scheduler has done with what the operator does next: of a gang, the scheduler is given one pod.

    The others that are told are those on the node.
    """
    here = [
        pod
        for node in scenario.nodes
        if node.name == outcome.node
        for pod in node.pods
        if not pod.is_terminating
    ]
    gangs = {_gang(pod) for pod in here if pod.name in outcome.victims} - {None}
    return replace(
        outcome, victims=outcome.victims | {pod.name for pod in here if _gang(pod) in gangs}
    )


def has_room(scenario: Scenario) -> bool:
    """Say whether the preemptor has room without anybody's going: then nobody is asked."""
    return _UpstreamDecision(scenario, UPSTREAM).has_room()


@dataclass(frozen=True)
class _Unit:
    """What goes or stays as one."""

    here: tuple[ScenarioPod, ...]
    everyone: tuple[ScenarioPod, ...]
    priority: int
    is_gang: bool

    def importance(self) -> tuple[int, int, int]:
        """Return the key by which the most important come first."""
        size = len(self.everyone) if self.is_gang else 0
        return -self.priority, -size, -max(map(_age, self.everyone))

    def worth(self) -> tuple[int, ...]:
        """Return the key by which the highest class, and of one class the dearest, come first."""
        cost = _cost(self.everyone)
        highest = max(map(_class, self.everyone))
        return (
            -self.priority,
            -self.is_gang,
            -highest,
            *(-part for part in cost),
            -max(map(_age, self.everyone)),
        )


@dataclass(frozen=True)
class _Candidate:
    """A node on which preemption would help, and how."""

    node: str
    units: tuple[_Unit, ...]
    violations: int

    @property
    def victims(self) -> tuple[ScenarioPod, ...]:
        """All who go, wherever they run."""
        return tuple(pod for unit in self.units for pod in unit.everyone)


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
        minds_cost = Difference.COST in self._differing and any(
            _states_preferences(pod) for it in found for pod in it.victims
        )
        best = min(found, key=lambda candidate: self._order(candidate, minds_cost=minds_cost))
        here = (pod for unit in best.units for pod in unit.here)
        return ScenarioOutcome(
            best.node, frozenset(pod.name for pod in here if not pod.is_terminating)
        )

    def has_room(self) -> bool:
        return any(self._fits(node, node.pods) for node in self._nodes)

    def _is_rejected(self, pods: Sequence[ScenarioPod]) -> bool:
        """Say whether a node is no candidate: upstream takes an error about one pod for one about its node."""
        return any(
            pod.lacks_priority_class and self._is_below(pod) and not self._is_in_preemptor_gang(pod)
            for pod in pods
        )

    def _may_not_preempt(self) -> bool:
        named = self._preemptor.priority_class
        is_told = (
            Difference.CAN_PREEMPT in self._differing
            and self._preemptor.labels.get(CAN_PREEMPT) == "false"
        )
        return is_told or (named is not None and named.never_preempts)

    def _candidates(self, node: ScenarioNode) -> Iterator[_Candidate]:
        """Yield what could be done on this node: one thing, or nothing."""
        pods = [pod for pod in node.pods if not self._is_terminating(pod)]
        if self._is_rejected(pods):
            return
        units = list(self._units(pods))
        names = {pod.name for unit in units for pod in unit.here}
        staying = [pod for pod in pods if pod.name not in names]
        if not units or not self._fits(node, staying):
            return
        minds_cost = Difference.COST in self._differing and any(
            _states_preferences(pod) for unit in units for pod in unit.here
        )
        units.sort(key=_Unit.worth if minds_cost else _Unit.importance)
        victims, violations = self._reprieve(node, staying, units)
        most = _MOST_VICTIMS if Difference.MOST_VICTIMS in self._differing else len(victims)
        if len(victims) > (1 if minds_cost else most):
            fewer, broken = self._reprieve(node, staying, sorted(units, key=self._smallness))
            if len(fewer) < len(victims) and broken <= violations:
                victims, violations = fewer, broken
        if 0 < len(victims) <= most:
            yield _Candidate(node.name, tuple(victims), violations)

    def _reprieve(
        self, node: ScenarioNode, staying: Iterable[ScenarioPod], units: Sequence[_Unit]
    ) -> tuple[list[_Unit], int]:
        """Return who must go where these are let back in their order, and how many budgets that breaks."""
        broken, kept, victims = _budget_violations(units, self._scene.budgets), list(staying), []
        for unit in sorted(units, key=lambda unit: not broken[id(unit)]):
            if self._fits(node, [*kept, *unit.here]):
                kept.extend(unit.here)
            else:
                victims.append(unit)
        return victims, sum(broken[id(unit)] for unit in victims)

    def _smallness(self, unit: _Unit) -> tuple[float, ...]:
        """Return the key by which the smallest of a class come first."""
        mine = self._preemptor
        asked = [(pod.cpu, mine.cpu) for pod in unit.here] + [
            (pod.memory, mine.memory) for pod in unit.here
        ]
        share = sum(its / own for its, own in asked if own)
        return (
            -unit.priority,
            -unit.is_gang,
            -max(map(_class, unit.everyone)),
            share,
            -max(map(_age, unit.everyone)),
        )

    def _units(self, pods: Sequence[ScenarioPod]) -> Iterator[_Unit]:
        """Yield what may go of these pods of one node."""
        seen = set()
        for pod in pods:
            is_gang = Difference.GANG in self._differing and _gang(pod) is not None
            everyone = self._gang_of(pod) if is_gang else (pod,)
            names = frozenset(member.name for member in everyone)
            if names not in seen and all(map(self._is_eligible, everyone)):
                here = tuple(other for other in pods if other.name in names)
                yield _Unit(here, everyone, max(map(self._priority, everyone)), is_gang)
            seen.add(names)

    def _is_in_preemptor_gang(self, pod: ScenarioPod) -> bool:
        """Say whether a pod is of the preemptor's own gang: then nothing else of it is looked at."""
        return (
            Difference.GANG in self._differing
            and _gang(pod) is not None
            and _gang(pod) == _gang(self._preemptor)
        )

    def _is_terminating(self, pod: ScenarioPod) -> bool:
        """Say whether a pod goes anyway; its gang does not for that: it is deleted, and nobody has marked it."""
        return Difference.GOING in self._differing and pod.is_terminating

    def _gang_of(self, pod: ScenarioPod) -> tuple[ScenarioPod, ...]:
        everyone = (
            other for node in self._scene.nodes for other in node.pods if _gang(other) == _gang(pod)
        )
        return tuple(other for other in everyone if not self._is_terminating(other))

    def _is_eligible(self, pod: ScenarioPod) -> bool:
        """Say whether a pod by itself may be a victim."""
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
        mine, its = (int(it.labels.get(CLASS, _DEFAULT_CLASS)) for it in (self._preemptor, pod))
        return its < mine or its == mine == int(_DEFAULT_CLASS)

    def _priority(self, pod: ScenarioPod) -> int:
        if pod.defended_as is None or Difference.DEFENCE not in self._differing:
            return pod.priority
        return max(pod.priority, pod.defended_as.value)

    def _order(self, candidate: _Candidate, *, minds_cost: bool) -> tuple[float, ...]:
        """Return the key by which nodes are preferred, least first: upstream's criteria, with the cost before the last."""
        victims = candidate.victims
        priorities = [self._priority(pod) for pod in victims]
        longest = max(_age(pod) for pod in victims if self._priority(pod) == max(priorities))
        total = sum(priority - _LOWEST for priority in priorities)
        cost = (max(map(_class, victims)), *_cost(victims)) if minds_cost else ()
        return candidate.violations, max(priorities), total, len(victims), *cost, longest

    def _fits(self, node: ScenarioNode, others: Iterable[ScenarioPod]) -> bool:
        mine = self._preemptor
        there = list(others)
        pods = [mine, *there]
        return (
            sum(pod.cpu for pod in pods) <= node.cpu
            and sum(pod.memory for pod in pods) <= node.memory
            and len(pods) <= node.most_pods
            and not any(pod.host_port and pod.host_port == mine.host_port for pod in there)
        )


def _budget_violations(units: Iterable[_Unit], budgets: Sequence[ScenarioBudget]) -> dict[int, int]:
    """Return, by the unit's id, how many of its pods a budget does not let go; those before them have used it up."""
    left = [budget.allowed for budget in budgets]

    def is_too_much(pod: ScenarioPod) -> bool:
        mine = [number for number, budget in enumerate(budgets) if budget.concerns(pod)]
        for number in mine:
            left[number] -= 1
        return any(left[number] < 0 for number in mine)

    return {id(unit): sum([is_too_much(pod) for pod in unit.everyone]) for unit in units}


def _gang(pod: ScenarioPod) -> tuple[str, str] | None:
    """Return what tells the pod's gang from others."""
    return (pod.namespace, pod.labels[GANG]) if GANG in pod.labels else None


def _admits(node: ScenarioNode, scenario: Scenario) -> bool:
    """Say whether the preemptor could be there at all, whoever goes."""
    return not node.is_cordoned and (scenario.tolerates_taint or not node.is_tainted)


def _class(pod: ScenarioPod) -> int:
    return int(pod.labels.get(CLASS, _DEFAULT_CLASS))


def _cost(pods: Sequence[ScenarioPod]) -> tuple[int, int]:
    """Return what the pods say of their cost, and what of their work would be lost."""
    return sum(int(pod.annotations.get(COST, "0")) for pod in pods), sum(
        pod.cpu * _age(pod) for pod in pods
    )


def _states_preferences(pod: ScenarioPod) -> bool:
    """Say whether the pod says anything of its preemption."""
    return (
        pod.labels.get(CLASS, _DEFAULT_CLASS) != _DEFAULT_CLASS
        or pod.annotations.get(COST, "0") != "0"
    )


def _age(pod: ScenarioPod) -> int:
    """Return for how long it has run: one that has not started starts now."""
    return pod.started_ago or 0

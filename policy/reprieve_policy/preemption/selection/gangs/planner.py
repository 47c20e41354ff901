"""Plans the victims for a gang: together or not at all, over all nodes (document 000).

Greedy: pod after pod goes to the node with the lowest additional cost, as in Koordinator's job
preemption. The room that an evicted gang leaves on other nodes is free for the next pod. At last,
victims that turned out not to be needed are reprieved. Pods are placed by requests, host ports,
taints and selectors: the affinities of the other members are not evaluated.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from reprieve_policy.preemption.selection import pdb_usage, select_victims, victim_units
from reprieve_policy.preemption.selection.eligibility import Eligibility
from reprieve_policy.preemption.selection.node_dry_run import (
    NO_VICTIMS,
    NodeDryRun,
    VictimRanking,
    is_feasible,
    ranking_for,
)
from reprieve_policy.preemption.selection.node_fit import CombinedDemand
from reprieve_policy.preemption.selection.node_status import DryRunStatus
from reprieve_policy.preemption.selection.select_victims import AlreadySelected
from reprieve_policy.preemption.selection.snapshot import GangKey, PodDemand, ScheduledPod
from reprieve_policy.preemption.selection.victim_units import Selection, SortKey, VictimUnit

MAX_KINDS = 8
"""Distinct demands in one gang: each is evaluated on all nodes, 0.5 s for 5,000."""
_SLACK = 2
"""Factor of `maxVictims` at which a plan is given up: some victims may prove unneeded."""


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """Where a gang would be placed, and its victims."""

    node: str
    """The node of the preemptor."""
    on_node: tuple[VictimUnit, ...]
    """Victims of which some pods are on that node, most important first."""
    elsewhere: tuple[VictimUnit, ...]
    """The victims that the rest of the gang needs on other nodes."""
    violations: int
    """PodDisruptionBudgets that the eviction of all of them violates."""

    @property
    def units(self) -> tuple[VictimUnit, ...]:
        """All victims."""
        return (*self.on_node, *self.elsewhere)


def single_pod_plan(node: str, selection: Selection) -> PreemptionPlan:
    """Return the plan for a pod without a gang to place."""
    return PreemptionPlan(node, selection.units, (), selection.violations)


class GangPlanner:
    """Plans for one preemptor; keeps the dry runs of nodes from plan to plan."""

    def __init__(
        self, dry_run: NodeDryRun, eligibility: Eligibility, is_expired: Callable[[], bool]
    ) -> None:
        """Plan until `is_expired` returns true: no client waits for a plan any more."""
        self._eligibility, self._is_expired = eligibility, is_expired
        self._dry_runs = [dry_run]
        self._kinds = [
            self._dry_run_index(demand) for demand in eligibility.preemptor.pending_members
        ]
        self._rankings: dict[int, tuple[VictimRanking, Sequence[tuple[SortKey, str]]]] = {}

    def plan(self, node: str, selection: Selection | DryRunStatus) -> PreemptionPlan | None:
        """Return a plan that starts with these victims on that node, or with the room there.

        `None` if the rest of the gang cannot be placed.
        """
        preemptor = self._eligibility.preemptor
        if len(self._dry_runs) > MAX_KINDS:
            return None
        # The scheduler's own victims are not reprieved: only the scheduler knows why it needs them.
        is_proposed = selection is not self._dry_runs[0].result_for(node)
        draft = _PlanDraft(self._eligibility, frozenset({node} if is_proposed else ()))
        draft.place(node, preemptor.demand, selection)
        max_victims = _SLACK * self._eligibility.snapshot.settings.max_victims
        for demand, index in zip(preemptor.pending_members, self._kinds, strict=True):
            if (
                self._is_expired()
                or draft.count_victims() > max_victims
                or not self._place(demand, index, draft)
            ):
                return None
        draft.drop_unneeded()
        return draft.plan(node)

    def _place(self, demand: PodDemand, index: int, draft: "_PlanDraft") -> bool:
        ranking, ranked = self._rank_nodes(index)
        untouched = ((rank, node) for rank, node in ranked if node not in draft.changed_nodes)
        tried = draft.rank_changed_nodes(demand, index, self._dry_runs[index], ranking)
        best = min([*tried, *_first(untouched)], default=None)
        if best is None:
            return False
        node = best[1]
        result = (
            draft.dry_run(node, demand)
            if node in draft.changed_nodes
            else self._dry_runs[index].result_for(node)
        )
        draft.place(node, demand, result)
        return True

    def _rank_nodes(self, index: int) -> tuple[VictimRanking, Sequence[tuple[SortKey, str]]]:
        """Return all feasible nodes for pods with one demand, the best first."""
        if index not in self._rankings:
            feasible = self._dry_runs[index].feasible_nodes(self._is_expired)
            ranking = ranking_for(feasible.values(), self._eligibility.snapshot)
            self._rankings[index] = (
                ranking,
                sorted((ranking.rank_result(result), node) for node, result in feasible.items()),
            )
        return self._rankings[index]

    def _dry_run_index(self, demand: PodDemand) -> int:
        for index, dry_run in enumerate(self._dry_runs):
            if dry_run.has_same_demand(demand):
                return index
        # One more than the limit is enough to know.
        if len(self._dry_runs) > MAX_KINDS:
            return MAX_KINDS
        self._dry_runs.append(NodeDryRun(demand, self._eligibility))
        return len(self._dry_runs) - 1


class _PlanDraft:
    """A plan in progress."""

    def __init__(self, eligibility: Eligibility, fixed_nodes: frozenset[str]) -> None:
        self._eligibility = eligibility
        self._fixed_nodes = fixed_nodes
        self._demands: dict[str, CombinedDemand] = {}
        self._gangs: dict[GangKey, VictimUnit] = {}
        self._single_pods: dict[str, tuple[VictimUnit, ...]] = {}
        self.changed_nodes: set[str] = set()
        """Nodes that differ from their dry run: a pod was placed there, or a gang leaves."""
        self._ranks: dict[tuple[int, str], SortKey | None] = {}
        """Rank of the additional victims for one more pod of a kind; `None`: infeasible."""

    def place(self, node: str, demand: PodDemand, result: Selection | DryRunStatus) -> None:
        """Place a pod, and record its victims."""
        self._demands[node] = self._demands.get(node, CombinedDemand()).plus(demand)
        self._record_victims(node, result)
        changed = {node, *(member.node for member in self._gang_members_of(result))}
        self.changed_nodes |= changed
        self._ranks = {key: rank for key, rank in self._ranks.items() if key[1] not in changed}

    def dry_run(self, node: str, demand: PodDemand) -> Selection | DryRunStatus:
        """Return the victims of one more pod on the node."""
        return self._select(
            node, self._demands.get(node, CombinedDemand()).plus(demand), self._gangs
        )

    def rank_changed_nodes(
        self, demand: PodDemand, kind: int, dry_run: NodeDryRun, ranking: VictimRanking
    ) -> Iterator[tuple[SortKey, str]]:
        """Yield the rank of the additional victims on each feasible changed node."""
        # No pod is placed beside the scheduler's own victims: what else fits there is unknown.
        for node in self.changed_nodes - self._fixed_nodes:
            if (kind, node) not in self._ranks:
                result = (
                    self.dry_run(node, demand)
                    if dry_run.satisfies_constraints(node)
                    else DryRunStatus.UNSUITABLE
                )
                self._ranks[kind, node] = (
                    self._rank_added(node, result, ranking) if is_feasible(result) else None
                )
            rank = self._ranks[kind, node]
            if rank is not None:
                yield rank, node

    def count_victims(self) -> int:
        """Count the victims; a gang evicted as a unit is one."""
        return len(self._gangs) + sum(map(len, self._single_pods.values()))

    def drop_unneeded(self) -> None:
        """Reprieve unneeded victims: later victims made room for earlier pods, too."""
        own_nodes = [node for node in self._demands if node not in self._fixed_nodes]
        for node in own_nodes:
            result = self._dry_run_placed(node, self._gangs)
            # Another set may have been missed, now that gangs can spare fewer pods here. The set
            # that was found before is still enough.
            if is_feasible(result):
                self._record_victims(node, result)
        now = self._eligibility.snapshot.now
        for key, unit in sorted(
            self._gangs.items(),
            # With `victimOrder: priority` no unit has a loss.
            key=lambda item: (-item[1].loss, *victim_units.scheduler_order(item[1], now)),
        ):
            without = {other: kept for other, kept in self._gangs.items() if other != key}
            is_fixed = any(member.node in self._fixed_nodes for member in unit.members)
            if not is_fixed and all(self._is_enough(node, without) for node in own_nodes):
                self._gangs = without

    def plan(self, node: str) -> PreemptionPlan:
        gangs = [unit for unit in self._gangs.values() if _is_on(unit, node)]
        gangs_elsewhere = [unit for unit in self._gangs.values() if not _is_on(unit, node)]
        importance = partial(victim_units.scheduler_order, now=self._eligibility.snapshot.now)
        here = [*self._single_pods.get(node, ()), *(_narrowed_to(node, unit) for unit in gangs)]
        others = [
            unit for other, units in self._single_pods.items() if other != node for unit in units
        ]
        elsewhere = (*gangs_elsewhere, *others)
        violations = pdb_usage.violations_of(
            sorted((*here, *elsewhere), key=importance), self._eligibility.budget_uses
        )
        return PreemptionPlan(node, tuple(sorted(here, key=importance)), elsewhere, violations)

    def _record_victims(self, node: str, result: Selection | DryRunStatus) -> None:
        units = result.units if isinstance(result, Selection) else ()
        self._single_pods[node] = tuple(unit for unit in units if unit.gang is None)
        self._gangs |= {unit.gang: unit for unit in units if unit.gang is not None}

    def _gang_members_of(self, result: Selection | DryRunStatus) -> Iterator[ScheduledPod]:
        """Yield all pods of the victims' gangs: they are evicted too, or fewer can be spared."""
        for unit in result.units if isinstance(result, Selection) else ():
            key = unit.members[0].gang
            gang = None if key is None else self._eligibility.snapshot.gangs.get(key)
            yield from () if gang is None else gang.members

    def _rank_added(
        self, node: str, result: Selection | DryRunStatus, ranking: VictimRanking
    ) -> SortKey:
        if not isinstance(result, Selection):
            return NO_VICTIMS
        before = _uids(self._single_pods.get(node, ()))
        return ranking.rank(
            (unit for unit in result.units if unit.on_node[0].uid not in before), result.violations
        )

    def _dry_run_placed(
        self, node: str, gangs: Mapping[GangKey, VictimUnit]
    ) -> Selection | DryRunStatus:
        return self._select(node, self._demands[node], gangs)

    def _is_enough(self, node: str, gangs: Mapping[GangKey, VictimUnit]) -> bool:
        """True if the node needs no victims beside those and its own single pods."""
        result = self._dry_run_placed(node, gangs)
        needed = _uids(result.units) if isinstance(result, Selection) else set()
        return is_feasible(result) and needed <= _uids(self._single_pods[node])

    def _select(
        self, node: str, combined: CombinedDemand, gangs: Mapping[GangKey, VictimUnit]
    ) -> Selection | DryRunStatus:
        singles = (
            pod
            for other, units in self._single_pods.items()
            if other != node
            for pod in _pods(units)
        )
        lost = Counter(pod.gang for pod in singles if pod.gang is not None)
        return select_victims.select(
            self._eligibility.snapshot.nodes[node],
            combined,
            self._eligibility,
            AlreadySelected(frozenset(gangs), lost),
        )


def _first(ranked: Iterator[tuple[SortKey, str]]) -> list[tuple[SortKey, str]]:
    first = next(ranked, None)
    return [] if first is None else [first]


def _uids(units: Iterable[VictimUnit]) -> set[str]:
    """Return what identifies the units on one node."""
    return {unit.on_node[0].uid for unit in units}


def _pods(units: Iterable[VictimUnit]) -> Iterator[ScheduledPod]:
    return (pod for unit in units for pod in unit.members)


def _is_on(unit: VictimUnit, node: str) -> bool:
    return any(member.node == node for member in unit.members)


def _narrowed_to(node: str, unit: VictimUnit) -> VictimUnit:
    return unit._replace(on_node=tuple(member for member in unit.members if member.node == node))

"""A gang's victims are taken together or not at all: where its other pods would go, judged over all nodes (document 000).

Greedy: pod after pod goes to the node that takes the least more for it, as Koordinator's job preemption does. What a gang
that goes as a whole leaves behind on other nodes is free for the next. At last whoever turns out not to be needed is let
back. Pods are placed by requests, host ports, taints and selectors: nothing here sees the affinities of the rest.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from . import select_victims, victim_units
from .eligibility import Eligibility
from .node_capacity import CombinedDemand
from .node_dry_run import NO_VICTIMS, NodeDryRun, VictimRanking, is_feasible, ranking_for
from .node_status import DryRunStatus
from .select_victims import AlreadySelected, Selection
from .snapshot import GangKey, PodDemand, ScheduledPod
from .victim_units import SortKey, VictimUnit

MAX_KINDS = 8
"""Of pods that differ in what they ask for, in one gang: all nodes are looked at for each, 0.5 s of 5,000."""
_SLACK = 2
"""Times `maxVictims` before a plan is given up: some may turn out not to be needed, but not most of them."""


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """Where a gang would go, and at whose cost."""

    node: str
    """The preemptor's."""
    on_node: tuple[VictimUnit, ...]
    """Victims of whom some are on that node, most important first."""
    elsewhere: tuple[VictimUnit, ...]
    """Those that the rest of the gang needs on other nodes."""
    violations: int
    """Of PodDisruptionBudgets, on that node."""

    @property
    def units(self) -> tuple[VictimUnit, ...]:
        """All of them."""
        return (*self.on_node, *self.elsewhere)


def single_pod_plan(node: str, selection: Selection) -> PreemptionPlan:
    """Return the plan for a pod that has no gang to wait for."""
    return PreemptionPlan(node, selection.units, (), selection.violations)


class GangPlanner:
    """Plans for one preemptor. What it has found of the nodes is kept from plan to plan."""

    def __init__(self, survey: NodeDryRun, court: Eligibility, is_over: Callable[[], bool]) -> None:
        """`is_over`: nobody waits for a plan any more."""
        self._court, self._is_expired = court, is_over
        self._dry_runs = [survey]
        self._kinds = [self._dry_run_index(guest) for guest in court.preemptor.pending_members]
        self._rankings: dict[int, tuple[VictimRanking, Sequence[tuple[SortKey, str]]]] = {}

    def plan(self, node: str, selection: Selection) -> PreemptionPlan | None:
        """Return a plan that begins with these victims on that node; `None` where the rest cannot be placed."""
        preemptor = self._court.preemptor
        if len(self._dry_runs) > MAX_KINDS:
            return None
        # The scheduler's own victims are not ours to let back: why they have to go, only it knows.
        is_proposed = selection is not self._dry_runs[0].result_for(node)
        draft = _PlanDraft(self._court, frozenset({node} if is_proposed else ()))
        draft.place(node, preemptor.demand, selection)
        most = _SLACK * self._court.scene.settings.max_victims
        for guest, index in zip(preemptor.pending_members, self._kinds, strict=True):
            if (
                self._is_expired()
                or draft.count_victims() > most
                or not self._place(guest, index, draft)
            ):
                return None
        draft.drop_unneeded()
        return draft.plan(node, selection.violations)

    def _place(self, guest: PodDemand, index: int, draft: "_PlanDraft") -> bool:
        scale, order = self._rank_nodes(index)
        untouched = ((rank, node) for rank, node in order if node not in draft.changed_nodes)
        tried = draft.rank_changed_nodes(guest, index, self._dry_runs[index], scale)
        best = min([*tried, *_first(untouched)], default=None)
        if best is None:
            return False
        node = best[1]
        found = (
            draft.dry_run(node, guest)
            if node in draft.changed_nodes
            else self._dry_runs[index].result_for(node)
        )
        draft.place(node, guest, found)
        return True

    def _rank_nodes(self, index: int) -> tuple[VictimRanking, Sequence[tuple[SortKey, str]]]:
        """Return all nodes that help pods of a kind, the best first."""
        if index not in self._rankings:
            found = self._dry_runs[index].feasible_nodes(self._is_expired)
            scale = ranking_for(found.values(), self._court.scene.now)
            self._rankings[index] = (
                scale,
                sorted((scale.rank_result(one), node) for node, one in found.items()),
            )
        return self._rankings[index]

    def _dry_run_index(self, guest: PodDemand) -> int:
        for index, survey in enumerate(self._dry_runs):
            if survey.has_same_demand(guest):
                return index
        # One more than are looked at is enough to know.
        if len(self._dry_runs) > MAX_KINDS:
            return MAX_KINDS
        self._dry_runs.append(NodeDryRun(guest, self._court))
        return len(self._dry_runs) - 1


class _PlanDraft:
    """A plan in the making."""

    def __init__(self, court: Eligibility, settled: frozenset[str]) -> None:
        self._court = court
        self._fixed_nodes = settled
        self._demands: dict[str, CombinedDemand] = {}
        self._gangs: dict[GangKey, VictimUnit] = {}
        self._single_pods: dict[str, tuple[VictimUnit, ...]] = {}
        self.changed_nodes: set[str] = set()
        """Nodes on which something is no longer as it was found: a pod was placed there, or a gang has gone."""
        self._ranks: dict[tuple[int, str], SortKey | None] = {}
        """What is more to be taken there for one more pod of a kind; `None`: it would not help."""

    def place(self, node: str, guest: PodDemand, found: Selection | DryRunStatus) -> None:
        """Place a pod, and take whom that takes."""
        self._demands[node] = self._demands.get(node, CombinedDemand()).plus(guest)
        self._record_victims(node, found)
        changed = {node, *(member.node for member in self._gang_members_of(found))}
        self.changed_nodes |= changed
        self._ranks = {key: rank for key, rank in self._ranks.items() if key[1] not in changed}

    def dry_run(self, node: str, guest: PodDemand) -> Selection | DryRunStatus:
        """Return whom one more pod on the node would take."""
        return self._select(
            node, self._demands.get(node, CombinedDemand()).plus(guest), self._gangs
        )

    def rank_changed_nodes(
        self, guest: PodDemand, kind: int, survey: NodeDryRun, scale: VictimRanking
    ) -> Iterator[tuple[SortKey, str]]:
        """Yield what is more to be taken on each node that was touched, where a pod would have room then."""
        # Beside the scheduler's own victims nobody is placed: what else fits there is not ours to tell.
        for node in self.changed_nodes - self._fixed_nodes:
            if (kind, node) not in self._ranks:
                found = (
                    self.dry_run(node, guest)
                    if survey.satisfies_constraints(node)
                    else DryRunStatus.UNSUITABLE
                )
                self._ranks[kind, node] = (
                    self._rank_added(node, found, scale) if is_feasible(found) else None
                )
            rank = self._ranks[kind, node]
            if rank is not None:
                yield rank, node

    def count_victims(self) -> int:
        """Count who goes, as a decision counts them."""
        return len(self._gangs) + sum(map(len, self._single_pods.values()))

    def drop_unneeded(self) -> None:
        """Let back whoever is not needed any more: later victims made room for earlier pods, too."""
        ours = [node for node in self._demands if node not in self._fixed_nodes]
        for node in ours:
            self._record_victims(node, self._dry_run_placed(node, self._gangs))
        now = self._court.scene.now
        for key, unit in sorted(
            self._gangs.items(), key=lambda item: victim_units.scheduler_order(item[1], now)
        ):
            without = {other: kept for other, kept in self._gangs.items() if other != key}
            is_settled = any(member.node in self._fixed_nodes for member in unit.members)
            if not is_settled and all(self._is_enough(node, without) for node in ours):
                self._gangs = without

    def plan(self, node: str, violations: int) -> PreemptionPlan:
        wholes = [unit for unit in self._gangs.values() if _is_on(unit, node)]
        far = [unit for unit in self._gangs.values() if not _is_on(unit, node)]
        now = self._court.scene.now
        here = [*self._single_pods.get(node, ()), *(_narrowed_to(node, unit) for unit in wholes)]
        others = [
            unit for other, found in self._single_pods.items() if other != node for unit in found
        ]
        return PreemptionPlan(
            node,
            tuple(sorted(here, key=lambda unit: victim_units.scheduler_order(unit, now))),
            (*far, *others),
            violations,
        )

    def _record_victims(self, node: str, found: Selection | DryRunStatus) -> None:
        taken = found.units if isinstance(found, Selection) else ()
        self._single_pods[node] = tuple(unit for unit in taken if unit.gang is None)
        self._gangs |= {unit.gang: unit for unit in taken if unit.gang is not None}

    def _gang_members_of(self, found: Selection | DryRunStatus) -> Iterator[ScheduledPod]:
        """Yield all pods of the gangs of those who are taken: they go with them, or can be spared less."""
        for unit in found.units if isinstance(found, Selection) else ():
            key = unit.members[0].gang
            group = None if key is None else self._court.scene.gangs.get(key)
            yield from () if group is None else group.members

    def _rank_added(
        self, node: str, found: Selection | DryRunStatus, scale: VictimRanking
    ) -> SortKey:
        if not isinstance(found, Selection):
            return NO_VICTIMS
        before = _uids(self._single_pods.get(node, ()))
        return scale.rank(
            (unit for unit in found.units if unit.on_node[0].uid not in before), found.violations
        )

    def _dry_run_placed(
        self, node: str, wholes: Mapping[GangKey, VictimUnit]
    ) -> Selection | DryRunStatus:
        return self._select(node, self._demands[node], wholes)

    def _is_enough(self, node: str, wholes: Mapping[GangKey, VictimUnit]) -> bool:
        """True where the node needs nobody beside those, and the single pods that are taken there already."""
        found = self._dry_run_placed(node, wholes)
        needed = _uids(found.units) if isinstance(found, Selection) else set()
        return is_feasible(found) and needed <= _uids(self._single_pods[node])

    def _select(
        self, node: str, load: CombinedDemand, wholes: Mapping[GangKey, VictimUnit]
    ) -> Selection | DryRunStatus:
        singles = (
            tenant
            for other, found in self._single_pods.items()
            if other != node
            for tenant in _pods(found)
        )
        lost = Counter(tenant.gang for tenant in singles if tenant.gang is not None)
        return select_victims.select(
            self._court.scene.nodes[node],
            load,
            self._court,
            AlreadySelected(frozenset(wholes), lost),
        )


def _first(found: Iterator[tuple[SortKey, str]]) -> list[tuple[SortKey, str]]:
    first = next(found, None)
    return [] if first is None else [first]


def _uids(found: Iterable[VictimUnit]) -> set[str]:
    """Return what tells units on one node from each other."""
    return {unit.on_node[0].uid for unit in found}


def _pods(found: Iterable[VictimUnit]) -> Iterator[ScheduledPod]:
    return (tenant for unit in found for tenant in unit.members)


def _is_on(unit: VictimUnit, node: str) -> bool:
    return any(member.node == node for member in unit.members)


def _narrowed_to(node: str, unit: VictimUnit) -> VictimUnit:
    return unit._replace(on_node=tuple(member for member in unit.members if member.node == node))

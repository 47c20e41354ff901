"""The victims on one node: remove all possible victims, then reprieve as many as possible.

Mirrors `SelectVictimsOnNode` of scheduler-plugins' PreemptionToleration, and of kube-scheduler 1.37
for gangs evicted as a unit: pods that a budget protects are reprieved first, in each part the most
important first. Linear in the node's pods.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from . import node_fit, victim_units
from .eligibility import Eligibility
from .node_fit import CombinedDemand, RemainingCapacity
from .node_status import DryRunStatus
from .reasons import RefusalReason
from .release import ReleaseCertainty
from .snapshot import DisruptionBudget, GangKey, NodeInfo, ScheduledPod, Snapshot
from .victim_units import SortKey, VictimUnit


@dataclass(frozen=True, slots=True)
class AlreadySelected:
    """The victims that one decision has selected already, on other nodes."""

    gangs: frozenset[GangKey] = frozenset()
    """Gangs evicted as a unit: their pods leave everywhere."""
    lost_members: Mapping[GangKey, int] = field(default_factory=Counter)
    """How many pods each gang that is disrupted one by one loses."""


NOTHING_SELECTED = AlreadySelected()


_rank = itemgetter(0)
# The least certain first: each certainty's pods count as staying, and if the demand then no longer
# fits, their release is waited for.
_STATUS_BY_CERTAINTY = {
    ReleaseCertainty.HELD_BY_BUDGET: DryRunStatus.ROOM_MAY_BE_RELEASED,
    ReleaseCertainty.BEING_DELETED: DryRunStatus.ROOM_MAY_BE_RELEASED,
    ReleaseCertainty.NOTIFIED: DryRunStatus.ROOM_BEING_RELEASED,
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The victims on one node, most important first."""

    units: tuple[VictimUnit, ...]
    violations: int


def select(
    node_info: NodeInfo,
    demand: CombinedDemand,
    eligibility: Eligibility,
    selected: AlreadySelected = NOTHING_SELECTED,
) -> Selection | DryRunStatus:
    """Return the victims that make room for the demand on the node."""
    capacity = RemainingCapacity(node_info, demand, eligibility.preemptor.demand.priority)
    possible: list[ScheduledPod] = []
    leaving: list[tuple[ReleaseCertainty, ScheduledPod]] = []
    for pod in node_info.pods:
        if pod.gang is not None and pod.gang in selected.gangs:
            continue
        reason = eligibility.reason(pod)
        if reason is None:
            possible.append(pod)
        elif reason is RefusalReason.NO_PRIORITY_CLASS:
            return DryRunStatus.NO_PRIORITY_CLASS
        elif (certainty := eligibility.release_certainty(pod)) is ReleaseCertainty.NOT_SOON:
            capacity.add_pod(pod)
        else:
            leaving.append((certainty, pod))
    needed = _needed_by_gangs(possible, eligibility, selected)
    for pod in needed:
        capacity.add_pod(pod)
    possible = [pod for pod in possible if pod not in needed] if needed else possible
    if not capacity.fits:
        return DryRunStatus.TOO_SMALL if possible else DryRunStatus.NO_VICTIMS
    found = _minimize_victims(possible, demand, capacity, eligibility)
    return found if found.units else _status_after_releases(leaving, capacity)


def select_proposed(
    node_info: NodeInfo, uids: Collection[str], eligibility: Eligibility
) -> Selection | DryRunStatus:
    """Return the scheduler's own victims, all or none: only it knows what fits."""
    if is_proposal_outdated(node_info, uids, eligibility):
        return DryRunStatus.PROPOSAL_OUTDATED
    named = [pod for pod in node_info.pods if pod.uid in uids]
    proposed = [
        pod for pod in named if eligibility.reason(pod) is not RefusalReason.ALREADY_LEAVING
    ]
    certainties = [
        eligibility.release_certainty(pod)
        for pod in named
        if eligibility.reason(pod) is RefusalReason.ALREADY_LEAVING
    ]
    is_refused = ReleaseCertainty.NOT_SOON in certainties or any(
        eligibility.reason(pod) is not None for pod in proposed
    )
    if is_refused or _needed_by_gangs(proposed, eligibility, NOTHING_SELECTED):
        return DryRunStatus.PROPOSAL_REJECTED
    if not proposed:
        return _STATUS_BY_CERTAINTY[min(certainties)]
    now = eligibility.snapshot.now
    found = sorted(
        victim_units.units_of(proposed, eligibility),
        key=lambda unit: victim_units.scheduler_order(unit, now),
    )
    usage = _PdbUsage(eligibility.snapshot)
    return Selection(tuple(found), sum(usage.count_violations(unit.members) for unit in found))


def is_proposal_outdated(
    node_info: NodeInfo, uids: Collection[str], eligibility: Eligibility
) -> bool:
    """True if one of these pods has left the node, and the scheduler has not seen that yet.

    Of a native gang evicted as a unit, a scheduler also names the pods on other nodes.
    """
    missing = set(uids).difference(pod.uid for pod in node_info.pods)
    gangs = [
        gang
        for pod in node_info.pods
        if missing and (gang := eligibility.evicted_gang(pod)) is not None
    ]
    return not missing <= {member.uid for gang in gangs for member in gang.members}


def depends_on_other_pods(node_info: NodeInfo, eligibility: Eligibility) -> bool:
    """True if whether the preemptor fits depends on the other pods there."""
    preemptor = eligibility.preemptor
    terms = (one for pod in node_info.pods for one in pod.anti_affinity)
    # Only anti-affinity that matches the preemptor. Without this, any small pod with an
    # anti-affinity to no pod there would end victim selection on its node.
    return preemptor.depends_on_other_pods or any(
        node_fit.anti_affinity_matches(one, preemptor.namespace, preemptor.labels) for one in terms
    )


def _minimize_victims(
    possible: Sequence[ScheduledPod],
    demand: CombinedDemand,
    capacity: RemainingCapacity,
    eligibility: Eligibility,
) -> Selection:
    """Reprieve as many as possible; possibly no victims remain."""
    now, found = eligibility.snapshot.now, victim_units.units_of(possible, eligibility)
    states_preferences = any(pod.states_preferences for pod in possible)
    order = victim_units.costliest_first if states_preferences else victim_units.scheduler_order
    first = _reprieve_units([(order(unit, now), unit) for unit in found], capacity, eligibility)
    # If no pod states preferences, the choice is upstream's within `maxVictims`.
    if len(first.units) <= (1 if states_preferences else eligibility.snapshot.settings.max_victims):
        return first
    gone = {id(unit) for unit in first.units}
    for unit in found:
        if id(unit) not in gone:
            capacity.remove_pods(*unit.on_node)
    fewer = _reprieve_units(
        [(victim_units.smallest_first(unit, demand.amounts, now), unit) for unit in found],
        capacity,
        eligibility,
    )
    is_better = len(fewer.units) < len(first.units) and fewer.violations <= first.violations
    return fewer if is_better else first


def _status_after_releases(
    leaving: Sequence[tuple[ReleaseCertainty, ScheduledPod]], capacity: RemainingCapacity
) -> DryRunStatus:
    """Return which releases to wait for, with all staying pods counted."""
    for certainty, status in _STATUS_BY_CERTAINTY.items():
        for pod in (pod for its, pod in leaving if its is certainty):
            capacity.add_pod(pod)
        if not capacity.fits:
            return status
    return DryRunStatus.HAS_ROOM


def _reprieve_units(
    ranked: list[tuple[SortKey, VictimUnit]], capacity: RemainingCapacity, eligibility: Eligibility
) -> Selection:
    """Reprieve as many as fit, in order of rank, first those whose eviction violates a budget."""
    ranked.sort(key=_rank)
    violations = _pdb_violations(ranked, eligibility.snapshot)
    # Stable: in each part the order of rank holds.
    order = sorted(ranked, key=lambda pair: id(pair[1]) not in violations) if violations else ranked
    victims = [pair for pair in order if not capacity.try_add(pair[1].on_node)]
    victims.sort(key=_rank)
    chosen = tuple(unit for _, unit in victims)
    return Selection(chosen, sum(violations.get(id(unit), 0) for unit in chosen))


def _pdb_violations(ranked: list[tuple[SortKey, VictimUnit]], snapshot: Snapshot) -> dict[int, int]:
    """Return, by the unit's id, how many of its pods violate a budget."""
    if not snapshot.budgets:
        return {}
    usage = _PdbUsage(snapshot)
    return {
        id(unit): count for _, unit in ranked if (count := usage.count_violations(unit.members))
    }


class _PdbUsage:
    """What is left of the budgets during the dry run of one node.

    A budget is a preference, not a veto: pods that violate none are taken first. Mirrors
    `filterPodsWithPDBViolation` of kube-scheduler and of the shipped plugin: budgets are spent in
    the order of the pods, the most important first.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._budgets = snapshot.budgets
        self._left: dict[int, int] = {}

    def count_violations(self, pods: Iterable[ScheduledPod]) -> int:
        """Count the pods whose eviction a budget does not allow, and spend the budgets."""
        return sum(self._breaks_one(pod) for pod in pods)

    def _breaks_one(self, pod: ScheduledPod) -> bool:
        is_broken = False
        for budget in self._budgets.get(pod.namespace, ()):
            if not _covers(budget, pod):
                continue
            left = self._left.get(id(budget), budget.disruptions_allowed) - 1
            self._left[id(budget)] = left
            is_broken = is_broken or left < 0
        return is_broken


def _covers(budget: DisruptionBudget, pod: ScheduledPod) -> bool:
    """True if evicting the pod uses the budget."""
    return (
        bool(pod.labels)
        and bool(budget.requirements)
        and pod.name not in budget.disrupted_pods
        and all(node_fit.satisfies(requirement, pod.labels) for requirement in budget.requirements)
    )


def _needed_by_gangs(
    possible: Sequence[ScheduledPod], eligibility: Eligibility, selected: AlreadySelected
) -> list[ScheduledPod]:
    """Return the most important pods that their gangs need, though each could lose one."""
    by_gang: dict[GangKey, list[ScheduledPod]] = {}
    for pod in possible:
        if pod.gang is not None and eligibility.evicted_gang(pod) is None:
            by_gang.setdefault(pod.gang, []).append(pod)
    needed: list[ScheduledPod] = []
    for key, members in by_gang.items():
        surplus = len(members) - (
            eligibility.spare_members(key) - selected.lost_members.get(key, 0)
        )
        if surplus > 0:
            members.sort(
                key=lambda pod: (
                    -pod.preemption_priority,
                    victim_units.earliest_start((pod,), eligibility.snapshot.now),
                )
            )
            needed.extend(members[:surplus])
    return needed

"""The victims on one node with `victimOrder: priority`: as many as possible are reprieved.

Mirrors `SelectVictimsOnNode` of scheduler-plugins' PreemptionToleration, and of kube-scheduler 1.37
for gangs evicted as a unit: pods that a budget protects are reprieved first, in each part the most
important first. Linear in the node's pods.
"""

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter

from . import victim_units
from .budget_uses import BudgetUses
from .eligibility import Eligibility
from .node_fit import CombinedDemand, RemainingCapacity
from .node_status import DryRunStatus
from .pdb_usage import PdbUsage
from .snapshot import GangKey, ScheduledPod
from .victim_units import Selection, SortKey, VictimUnit

_rank = itemgetter(0)


def select(
    possible: Sequence[ScheduledPod],
    spare: Mapping[GangKey, int],
    demand: CombinedDemand,
    capacity: RemainingCapacity,
    eligibility: Eligibility,
) -> Selection | DryRunStatus | None:
    """Return the victims; `None` if none are needed, with all pods counted in `capacity`.

    No possible victim is counted there yet. `spare`: how many pods each gang can lose.
    """
    now, most = eligibility.snapshot.now, eligibility.snapshot.settings.max_victims
    without_any = capacity.copy() if len(possible) > most else None
    kept = victim_units.keep_needed_members(
        possible,
        spare,
        capacity,
        lambda pod: victim_units.importance_as_member(pod, now),
        # Without this, a gang of a large and a tiny pod that may lose one of them would keep every
        # preemptor from the large one.
        lambda pod: victim_units.size_as_member(pod, demand.amounts, now),
    )
    if kept is None or not capacity.fits:
        may_go = any(pod.gang is None or spare.get(pod.gang, 1) for pod in possible)
        return DryRunStatus.TOO_SMALL if may_go else DryRunStatus.NO_VICTIMS
    found = _minimize_victims(without(possible, kept), demand, capacity, eligibility)
    if without_any is not None and len(found.units) > most:
        # Without this, a few more small pods on a node would keep a preemptor from a large one.
        return _largest_victims(possible, spare, demand, without_any, eligibility) or found
    return found if found.units else None


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
    first = reprieve_units([(order(unit, now), unit) for unit in found], capacity, eligibility)
    # If no pod states preferences, the choice is upstream's within `maxVictims`.
    if len(first.units) <= (1 if states_preferences else eligibility.snapshot.settings.max_victims):
        return first
    gone = {id(unit) for unit in first.units}
    for unit in found:
        if id(unit) not in gone:
            capacity.remove_pods(*unit.on_node)
    fewer = reprieve_units(
        [(victim_units.smallest_first(unit, demand.amounts, now), unit) for unit in found],
        capacity,
        eligibility,
    )
    is_better = len(fewer.units) < len(first.units) and fewer.violations <= first.violations
    return fewer if is_better else first


def _largest_victims(
    possible: Sequence[ScheduledPod],
    spare: Mapping[GangKey, int],
    demand: CombinedDemand,
    capacity: RemainingCapacity,
    eligibility: Eligibility,
) -> Selection | None:
    """Return few large victims, whatever their priority; `None`: more than `maxVictims`."""
    now, most = eligibility.snapshot.now, eligibility.snapshot.settings.max_victims
    kept = victim_units.keep_needed_members(
        possible,
        spare,
        capacity,
        lambda pod: victim_units.size_as_member(pod, demand.amounts, now),
    )
    if kept is None:
        return None
    ranked: list[tuple[SortKey, VictimUnit]] = [
        (
            (
                victim_units.share_of(unit, demand.amounts),
                *victim_units.scheduler_order(unit, now),
            ),
            unit,
        )
        for unit in victim_units.units_of(without(possible, kept), eligibility)
    ]
    found = reprieve_units(ranked, capacity, eligibility)
    return found if len(found.units) <= most else None


def without(pods: Sequence[ScheduledPod], kept: Collection[ScheduledPod]) -> Sequence[ScheduledPod]:
    """Return the pods that are not kept."""
    uids = {pod.uid for pod in kept}
    return [pod for pod in pods if pod.uid not in uids] if uids else pods


def reprieve_units(
    ranked: list[tuple[SortKey, VictimUnit]], capacity: RemainingCapacity, eligibility: Eligibility
) -> Selection:
    """Reprieve as many as fit, in order of rank, first those whose eviction violates a budget."""
    ranked.sort(key=_rank)
    violations = _pdb_violations(ranked, eligibility.budget_uses)
    # Stable: in each part the order of rank holds.
    order = sorted(ranked, key=lambda pair: id(pair[1]) not in violations) if violations else ranked
    victims = [pair for pair in order if not capacity.try_add(pair[1].on_node)]
    victims.sort(key=_rank)
    chosen = tuple(unit for _, unit in victims)
    return Selection(chosen, sum(violations.get(id(unit), 0) for unit in chosen))


def _pdb_violations(ranked: list[tuple[SortKey, VictimUnit]], uses: BudgetUses) -> dict[int, int]:
    """Return, by the unit's id, how many of its pods violate a budget."""
    if uses.are_none:
        return {}
    usage = PdbUsage(uses)
    return {
        id(unit): count for _, unit in ranked if (count := usage.count_violations(unit.members))
    }

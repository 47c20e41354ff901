"""The victims on one node with `victimOrder: priority`: as many as possible are reprieved.

Mirrors `SelectVictimsOnNode` of scheduler-plugins' PreemptionToleration, and of kube-scheduler 1.37
for gangs evicted as a unit: pods that a budget protects are reprieved first, in each part the most
important first. Linear in the node's pods.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter

from . import few_large, pdb_usage, victim_units
from .eligibility import Eligibility
from .node_fit import CombinedDemand, RemainingCapacity
from .node_status import DryRunStatus
from .snapshot import GangKey, ScheduledPod
from .victim_units import Selection, SortKey, VictimUnit

_rank = itemgetter(0)
_priority_of = attrgetter("priority")


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
    most = eligibility.snapshot.settings.max_victims
    empty = capacity.copy() if len(possible) > most else None
    found = choose(possible, spare, demand, capacity, eligibility)
    if empty is None or not isinstance(found, Selection) or len(found.units) <= most:
        return found
    return few_large.select(possible, spare, empty, eligibility, _priority_of) or found


def choose(
    possible: Sequence[ScheduledPod],
    spare: Mapping[GangKey, int],
    demand: CombinedDemand,
    capacity: RemainingCapacity,
    eligibility: Eligibility,
) -> Selection | DryRunStatus | None:
    """Return what `select` does, also if it is more than `maxVictims`."""
    if not spare:
        if not capacity.fits:
            return DryRunStatus.TOO_SMALL if possible else DryRunStatus.NO_VICTIMS
        found = _minimize_victims(possible, demand, capacity, eligibility)
        return found if found.units else None
    now, most = eligibility.snapshot.now, eligibility.snapshot.settings.max_victims
    sets = [
        _minimize_victims(rest, demand, left, eligibility)
        for rest, left in victim_units.beside_needed_members(
            possible, spare, capacity, lambda pod: victim_units.importance_as_member(pod, now)
        )
    ]
    if not sets:
        may_go = any(pod.gang is None or spare.get(pod.gang, 1) for pod in possible)
        return DryRunStatus.TOO_SMALL if may_go else DryRunStatus.NO_VICTIMS
    best = min(sets, key=lambda found: (len(found.units) > most, *_harm(found)))
    if best.units:
        return best
    for pod in possible:
        capacity.add_pod(pod)
    return None


def _harm(found: Selection) -> tuple[int, list[int]]:
    """Return the order of sets: violated budgets, then the priorities, the highest first."""
    return found.violations, sorted([unit.priority for unit in found.units], reverse=True)


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


def reprieve_units(
    ranked: list[tuple[SortKey, VictimUnit]], capacity: RemainingCapacity, eligibility: Eligibility
) -> Selection:
    """Reprieve as many as fit, in order of rank, first those whose eviction violates a budget."""
    ranked.sort(key=_rank)
    violations = pdb_usage.violations_by_unit([unit for _, unit in ranked], eligibility.budget_uses)
    # Stable: in each part the order of rank holds.
    order = sorted(ranked, key=lambda pair: id(pair[1]) not in violations) if violations else ranked
    victims = [pair for pair in order if not capacity.try_add(pair[1].on_node)]
    victims.sort(key=_rank)
    chosen = tuple(unit for _, unit in victims)
    return Selection(chosen, sum(violations.get(id(unit), 0) for unit in chosen))

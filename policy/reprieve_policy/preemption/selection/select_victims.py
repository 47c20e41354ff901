"""Which victims on one node: all that may be victims are gone, then as many as possible are let back.

Mirrors `SelectVictimsOnNode` of scheduler-plugins' PreemptionToleration, and of kube-scheduler 1.37 where gangs go as a
whole: those that a budget protects are let back first, in each part the most important first. Linear in the node's pods.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from . import node_fit, victim_units
from .eligibility import Eligibility
from .node_capacity import CombinedDemand, RemainingCapacity
from .node_status import DryRunStatus
from .pdb_usage import PdbUsage
from .reasons import RefusalReason
from .release import ReleaseCertainty
from .snapshot import GangKey, NodeInfo, ScheduledPod, Snapshot
from .victim_units import SortKey, VictimUnit


@dataclass(frozen=True, slots=True)
class AlreadySelected:
    """What one decision has taken already, on other nodes."""

    gangs: frozenset[GangKey] = frozenset()
    """Gangs that go as a whole: their pods are gone everywhere."""
    lost_members: Mapping[GangKey, int] = field(default_factory=Counter)
    """Of gangs that are disrupted one by one, so many."""


NOTHING_SELECTED = AlreadySelected()


_rank = itemgetter(0)
# In this order: what is less sure must not be needed.
_STATUS_BY_CERTAINTY = {
    ReleaseCertainty.HELD_BY_BUDGET: DryRunStatus.ROOM_MAY_BE_RELEASED,
    ReleaseCertainty.BEING_DELETED: DryRunStatus.ROOM_MAY_BE_RELEASED,
    ReleaseCertainty.NOTIFIED: DryRunStatus.ROOM_BEING_RELEASED,
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The victims that one node takes, most important first."""

    units: tuple[VictimUnit, ...]
    violations: int


def select(
    room: NodeInfo,
    load: CombinedDemand,
    court: Eligibility,
    taken: AlreadySelected = NOTHING_SELECTED,
) -> Selection | DryRunStatus:
    """Return the victims that make room for the load on the node."""
    space = RemainingCapacity(room, load, court.preemptor.demand.priority)
    possible: list[ScheduledPod] = []
    leaving: list[tuple[ReleaseCertainty, ScheduledPod]] = []
    for tenant in room.pods:
        if tenant.gang is not None and tenant.gang in taken.gangs:
            continue
        ground = court.reason(tenant)
        if ground is None:
            possible.append(tenant)
        elif ground is RefusalReason.NO_PRIORITY_CLASS:
            return DryRunStatus.NO_PRIORITY_CLASS
        elif (departure := court.release_certainty(tenant)) is ReleaseCertainty.NOT_SOON:
            space.add_pod(tenant)
        else:
            leaving.append((departure, tenant))
    needed = _needed_by_gangs(possible, court, taken)
    for tenant in needed:
        space.add_pod(tenant)
    possible = [tenant for tenant in possible if tenant not in needed] if needed else possible
    if not space.fits:
        return DryRunStatus.TOO_SMALL if possible else DryRunStatus.NO_VICTIMS
    found = _minimize_victims(possible, load, space, court)
    return found if found.units else _status_after_releases(leaving, space)


def select_proposed(
    room: NodeInfo, uids: Collection[str], court: Eligibility
) -> Selection | DryRunStatus:
    """Return the scheduler's own victims, where it knows better than we what fits beside whom; all of them or none."""
    if is_proposal_outdated(room, uids, court):
        return DryRunStatus.PROPOSAL_OUTDATED
    everyone = [tenant for tenant in room.pods if tenant.uid in uids]
    proposed = [
        tenant for tenant in everyone if court.reason(tenant) is not RefusalReason.ALREADY_LEAVING
    ]
    departures = [
        court.release_certainty(tenant)
        for tenant in everyone
        if court.reason(tenant) is RefusalReason.ALREADY_LEAVING
    ]
    is_refused = ReleaseCertainty.NOT_SOON in departures or any(
        court.reason(tenant) is not None for tenant in proposed
    )
    if is_refused or _needed_by_gangs(proposed, court, NOTHING_SELECTED):
        return DryRunStatus.PROPOSAL_REJECTED
    if not proposed:
        return _STATUS_BY_CERTAINTY[min(departures)]
    now = court.scene.now
    found = sorted(
        victim_units.units_of(proposed, court),
        key=lambda unit: victim_units.scheduler_order(unit, now),
    )
    spending = PdbUsage(court.scene)
    return Selection(tuple(found), sum(spending.count_violations(unit.members) for unit in found))


def is_proposal_outdated(room: NodeInfo, uids: Collection[str], court: Eligibility) -> bool:
    """True where one of these pods is on the node no more, which who names it has yet to see.

    Of a native gang that goes whole, a scheduler names the pods on other nodes, too.
    """
    missing = set(uids).difference(tenant.uid for tenant in room.pods)
    gangs = [
        gang for tenant in room.pods if missing and (gang := court.evicted_gang(tenant)) is not None
    ]
    return not missing <= {member.uid for gang in gangs for member in gang.members}


def depends_on_other_pods(room: NodeInfo, court: Eligibility) -> bool:
    """True where whether the preemptor fits depends on who else is there."""
    own = court.preemptor
    repulsions = (one for tenant in room.pods for one in tenant.anti_affinity)
    # Only of those that mean it. Without this, anybody's small pod that repels nobody there is would end all choice on its node.
    return own.depends_on_other_pods or any(
        node_fit.anti_affinity_matches(one, own.namespace, own.labels) for one in repulsions
    )


def _minimize_victims(
    possible: Sequence[ScheduledPod],
    load: CombinedDemand,
    space: RemainingCapacity,
    court: Eligibility,
) -> Selection:
    """Let back as many as possible; what is left may be nobody."""
    now, found = court.scene.now, victim_units.units_of(possible, court)
    speaks = any(tenant.states_preferences for tenant in possible)
    by = victim_units.costliest_first if speaks else victim_units.scheduler_order
    first = _reprieve_units([(by(unit, now), unit) for unit in found], space, court)
    # Where nobody says anything, the choice is upstream's for as long as it may be.
    if len(first.units) <= (1 if speaks else court.scene.settings.max_victims):
        return first
    gone = {id(unit) for unit in first.units}
    for unit in found:
        if id(unit) not in gone:
            space.remove_pods(*unit.on_node)
    fewer = _reprieve_units(
        [(victim_units.smallest_first(unit, load.amounts, now), unit) for unit in found],
        space,
        court,
    )
    is_better = len(fewer.units) < len(first.units) and fewer.violations <= first.violations
    return fewer if is_better else first


def _status_after_releases(
    leaving: Sequence[tuple[ReleaseCertainty, ScheduledPod]], space: RemainingCapacity
) -> DryRunStatus:
    """Return for whom it is enough to wait, once all that stay were let back."""
    for departure, obstacle in _STATUS_BY_CERTAINTY.items():
        for tenant in (tenant for its, tenant in leaving if its is departure):
            space.add_pod(tenant)
        if not space.fits:
            return obstacle
    return DryRunStatus.HAS_ROOM


def _reprieve_units(
    ranked: list[tuple[SortKey, VictimUnit]], space: RemainingCapacity, court: Eligibility
) -> Selection:
    """Let back as many as fit, in order of rank, those first whose eviction a budget does not allow."""
    ranked.sort(key=_rank)
    broken = _pdb_violations(ranked, court.scene)
    # Stable: in each part the order of rank holds.
    order = sorted(ranked, key=lambda pair: id(pair[1]) not in broken) if broken else ranked
    victims = [pair for pair in order if not space.try_add(pair[1].on_node)]
    victims.sort(key=_rank)
    chosen = tuple(unit for _, unit in victims)
    return Selection(chosen, sum(broken.get(id(unit), 0) for unit in chosen))


def _pdb_violations(ranked: list[tuple[SortKey, VictimUnit]], scene: Snapshot) -> dict[int, int]:
    """Return, by the unit's id, how many of its pods a budget does not let go."""
    if not scene.budgets:
        return {}
    spending = PdbUsage(scene)
    return {
        id(unit): count for _, unit in ranked if (count := spending.count_violations(unit.members))
    }


def _needed_by_gangs(
    possible: Sequence[ScheduledPod], court: Eligibility, taken: AlreadySelected
) -> list[ScheduledPod]:
    """Return the pods that their gangs cannot do without, though they could do without one: the most important ones."""
    by_gang: dict[GangKey, list[ScheduledPod]] = {}
    for tenant in possible:
        if tenant.gang is not None and court.evicted_gang(tenant) is None:
            by_gang.setdefault(tenant.gang, []).append(tenant)
    needed: list[ScheduledPod] = []
    for key, members in by_gang.items():
        surplus = len(members) - (court.spare_members(key) - taken.lost_members.get(key, 0))
        if surplus > 0:
            members.sort(
                key=lambda tenant: (
                    -tenant.preemption_priority,
                    victim_units.earliest_start((tenant,), court.scene.now),
                )
            )
            needed.extend(members[:surplus])
    return needed

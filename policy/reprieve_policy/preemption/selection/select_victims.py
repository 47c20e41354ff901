"""Which victims on one node: all that may be victims are gone, then as many as possible are let back.

Mirrors `SelectVictimsOnNode` of scheduler-plugins' PreemptionToleration, and of kube-scheduler 1.37 where gangs go as a
whole: those that a budget protects are let back first, in each part the most important first. Linear in the node's pods.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from . import node_fit, victim_units
from .eligibility import Court
from .node_capacity import Load, Space
from .node_status import Obstacle
from .pdb_usage import Spending
from .reasons import Ground
from .release import Departure
from .snapshot import GroupKey, Room, Scene, Tenant
from .victim_units import Rank, Unit


@dataclass(frozen=True, slots=True)
class Taken:
    """What one decision has taken already, on other nodes."""

    wholes: frozenset[GroupKey] = frozenset()
    """Gangs that go as a whole: their pods are gone everywhere."""
    lost: Mapping[GroupKey, int] = field(default_factory=Counter)
    """Of gangs that are disrupted one by one, so many."""


NOTHING = Taken()


_rank = itemgetter(0)
# In this order: what is less sure must not be needed.
_WAITING_FOR = {
    Departure.HELD: Obstacle.CLEARING,
    Departure.DELETED: Obstacle.CLEARING,
    Departure.TOLD: Obstacle.WILL_HAVE_ROOM,
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The victims that one node takes, most important first."""

    units: tuple[Unit, ...]
    violations: int


def select(room: Room, load: Load, court: Court, taken: Taken = NOTHING) -> Selection | Obstacle:
    """Return the victims that make room for the load on the node."""
    space = Space(room, load, court.preemptor.guest.priority)
    possible: list[Tenant] = []
    leaving: list[tuple[Departure, Tenant]] = []
    for tenant in room.tenants:
        if tenant.group is not None and tenant.group in taken.wholes:
            continue
        ground = court.ground(tenant)
        if ground is None:
            possible.append(tenant)
        elif ground is Ground.NO_PRIORITY_CLASS:
            return Obstacle.NO_PRIORITY_CLASS
        elif (departure := court.departure(tenant)) is Departure.NOT_SOON:
            space.occupy(tenant)
        else:
            leaving.append((departure, tenant))
    needed = _needed(possible, court, taken)
    for tenant in needed:
        space.occupy(tenant)
    possible = [tenant for tenant in possible if tenant not in needed] if needed else possible
    if not space.is_enough:
        return Obstacle.TOO_SMALL if possible else Obstacle.NO_VICTIMS
    found = _let_back(possible, load, space, court)
    return found if found.units else _waiting_for(leaving, space)


def as_proposed(room: Room, uids: Collection[str], court: Court) -> Selection | Obstacle:
    """Return the scheduler's own victims, where it knows better than we what fits beside whom; all of them or none."""
    if has_left(room, uids, court):
        return Obstacle.OUTDATED
    everyone = [tenant for tenant in room.tenants if tenant.uid in uids]
    proposed = [tenant for tenant in everyone if court.ground(tenant) is not Ground.GOING]
    departures = [court.departure(tenant) for tenant in everyone if court.ground(tenant) is Ground.GOING]
    is_refused = Departure.NOT_SOON in departures or any(court.ground(tenant) is not None for tenant in proposed)
    if is_refused or _needed(proposed, court, NOTHING):
        return Obstacle.BESIDE_OTHERS
    if not proposed:
        return _WAITING_FOR[min(departures)]
    now = court.scene.now
    found = sorted(victim_units.of(proposed, court), key=lambda unit: victim_units.upstreams(unit, now))
    spending = Spending(court.scene)
    return Selection(tuple(found), sum(spending.violations(unit.members) for unit in found))


def has_left(room: Room, uids: Collection[str], court: Court) -> bool:
    """True where one of these pods is on the node no more, which who names it has yet to see.

    Of a native gang that goes whole, a scheduler names the pods on other nodes, too.
    """
    missing = set(uids).difference(tenant.uid for tenant in room.tenants)
    gangs = [gang for tenant in room.tenants if missing and (gang := court.whole(tenant)) is not None]
    return not missing <= {member.uid for gang in gangs for member in gang.members}


def depends_on_pods(room: Room, court: Court) -> bool:
    """True where whether the preemptor fits depends on who else is there."""
    own = court.preemptor
    repulsions = (one for tenant in room.tenants for one in tenant.repels)
    # Only of those that mean it. Without this, anybody's small pod that repels nobody there is would end all choice on its node.
    return own.depends_on_pods or any(node_fit.is_meant(one, own.namespace, own.labels) for one in repulsions)


def _let_back(possible: Sequence[Tenant], load: Load, space: Space, court: Court) -> Selection:
    """Let back as many as possible; what is left may be nobody."""
    now, found = court.scene.now, victim_units.of(possible, court)
    speaks = any(tenant.speaks for tenant in possible)
    by = victim_units.dearest if speaks else victim_units.upstreams
    first = _reprieve([(by(unit, now), unit) for unit in found], space, court)
    # Where nobody says anything, the choice is upstream's for as long as it may be.
    if len(first.units) <= (1 if speaks else court.scene.settings.max_victims):
        return first
    gone = {id(unit) for unit in first.units}
    for unit in found:
        if id(unit) not in gone:
            space.release(*unit.here)
    fewer = _reprieve([(victim_units.smallest(unit, load.amounts, now), unit) for unit in found], space, court)
    is_better = len(fewer.units) < len(first.units) and fewer.violations <= first.violations
    return fewer if is_better else first


def _waiting_for(leaving: Sequence[tuple[Departure, Tenant]], space: Space) -> Obstacle:
    """Return for whom it is enough to wait, once all that stay were let back."""
    for departure, obstacle in _WAITING_FOR.items():
        for tenant in (tenant for its, tenant in leaving if its is departure):
            space.occupy(tenant)
        if not space.is_enough:
            return obstacle
    return Obstacle.HAS_ROOM


def _reprieve(ranked: list[tuple[Rank, Unit]], space: Space, court: Court) -> Selection:
    """Let back as many as fit, in order of rank, those first whose eviction a budget does not allow."""
    ranked.sort(key=_rank)
    broken = _broken(ranked, court.scene)
    # Stable: in each part the order of rank holds.
    order = sorted(ranked, key=lambda pair: id(pair[1]) not in broken) if broken else ranked
    victims = [pair for pair in order if not space.admit(pair[1].here)]
    victims.sort(key=_rank)
    chosen = tuple(unit for _, unit in victims)
    return Selection(chosen, sum(broken.get(id(unit), 0) for unit in chosen))


def _broken(ranked: list[tuple[Rank, Unit]], scene: Scene) -> dict[int, int]:
    """Return, by the unit's id, how many of its pods a budget does not let go."""
    if not scene.budgets:
        return {}
    spending = Spending(scene)
    return {id(unit): count for _, unit in ranked if (count := spending.violations(unit.members))}


def _needed(possible: Sequence[Tenant], court: Court, taken: Taken) -> list[Tenant]:
    """Return the pods that their gangs cannot do without, though they could do without one: the most important ones."""
    by_gang: dict[GroupKey, list[Tenant]] = {}
    for tenant in possible:
        if tenant.group is not None and court.whole(tenant) is None:
            by_gang.setdefault(tenant.group, []).append(tenant)
    needed: list[Tenant] = []
    for key, members in by_gang.items():
        surplus = len(members) - (court.spare(key) - taken.lost.get(key, 0))
        if surplus > 0:
            members.sort(key=lambda tenant: (-tenant.defence, victim_units.age((tenant,), court.scene.now)))
            needed.extend(members[:surplus])
    return needed

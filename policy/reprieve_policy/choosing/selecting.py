"""Which victims on one node: all that may be victims are gone, then as many as possible are let back.

Mirrors `SelectVictimsOnNode` of scheduler-plugins' PreemptionToleration, and of kube-scheduler 1.37 where gangs go as a
whole: those that a budget protects are let back first, in each part the most important first. Linear in the node's pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from reprieve_policy.cost import Cost
from reprieve_policy.quantity import NANOS

from . import fitting
from .budgets import Spending
from .court import Court
from .grounds import Ground
from .scene import Group, GroupKey, Guest, Port, Room, Tenant


class Obstacle(StrEnum):
    """Why victims on a node would not help."""

    UNKNOWN_NODE = "unknown-node"
    UNSUITABLE = "unsuitable"
    """Its labels, taints or cordon keep the preemptor out, however empty it is."""
    NO_PRIORITY_CLASS = "no-priority-class"
    """A pod there names a PriorityClass that does not exist: upstream's plugin passes such a node over, too."""
    NO_VICTIMS = "no-victims"
    """Nobody there may be a victim."""
    TOO_SMALL = "too-small"
    """Even without all that may be victims there is no room."""
    HAS_ROOM = "has-room"
    """There is room, or will be once those have gone that are going: waiting costs nobody anything."""
    TOO_MANY = "too-many"
    """It would take more victims than one decision may."""
    TOO_DEAR = "too-dear"
    """They would cost more than the preemptor is worth."""
    GANG = "gang"
    """The rest of the preemptor's gang could not be placed."""


class Unit(NamedTuple):
    """What goes or stays as one: a pod, or a gang that goes as a whole."""

    here: tuple[Tenant, ...]
    """Of it, on this node."""
    members: tuple[Tenant, ...]
    """All of it, wherever they run."""
    group: GroupKey | None
    priority: int
    """That it is defended with."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is to fit on one node: a pod, or several of one gang."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    ports: tuple[frozenset[Port], ...] = ()
    pods: int = 0

    def plus(self, guest: Guest) -> "Load":
        """Return the load with one more."""
        amounts = dict(self.amounts)
        for resource, amount in guest.amounts.items():
            if amount > 0:
                amounts[resource] = amounts.get(resource, 0) + amount
        ports = (*self.ports, guest.ports) if guest.ports else self.ports
        return Load(amounts, ports, self.pods + 1)


@dataclass(frozen=True, slots=True)
class Selection:
    """The victims that one node takes, most important first."""

    units: tuple[Unit, ...]
    violations: int


class _Space:
    """What is left on a node beside a load; taking more of it than there is fails."""

    def __init__(self, room: Room, load: Load, priority: int, uid: str) -> None:
        self._resources = tuple(load.amounts)
        self._left = [room.allocatable.get(name, 0) - amount for name, amount in load.amounts.items()]
        self._pods = room.allocatable.get("pods", 0) // NANOS - load.pods
        self._wanted = load.ports
        self._collisions = 0
        for guest in room.nominees:
            # As kube-scheduler: whoever is no less important and has room coming here keeps it.
            if guest.priority >= priority and guest.uid != uid:
                self.occupy(guest)

    @property
    def is_enough(self) -> bool:
        return self._pods >= 0 and not self._collisions and min(self._left, default=0) >= 0

    def occupy(self, *pods: Tenant | Guest) -> None:
        for pod in pods:
            self._change(pod, 1)

    def admit(self, pods: Sequence[Tenant]) -> bool:
        """Let them back, if they fit."""
        self.occupy(*pods)
        if self.is_enough:
            return True
        for pod in pods:
            self._change(pod, -1)
        return False

    def _change(self, pod: Tenant | Guest, sign: int) -> None:
        amounts, left = pod.amounts, self._left
        for index, name in enumerate(self._resources):
            left[index] -= sign * amounts.get(name, 0)
        self._pods -= sign
        if self._wanted and pod.ports:
            self._collisions += sign * sum(fitting.collide(ports, pod.ports) for ports in self._wanted)


def select(room: Room, load: Load, court: Court, taken: frozenset[GroupKey] = frozenset()) -> Selection | Obstacle:
    """Return the victims that make room for the load on the node; `taken` gangs are gone already."""
    guest = court.preemptor.guest
    space = _Space(room, load, guest.priority, guest.uid)
    possible: list[Tenant] = []
    for tenant in room.tenants:
        if tenant.group in taken:
            continue
        ground = court.ground(tenant)
        if ground is None:
            possible.append(tenant)
        elif ground is Ground.NO_PRIORITY_CLASS:
            return Obstacle.NO_PRIORITY_CLASS
        elif not tenant.is_going:
            space.occupy(tenant)
    if not space.is_enough:
        return Obstacle.TOO_SMALL if possible else Obstacle.NO_VICTIMS
    return _let_back(_units(possible, court), space, court)


def importance(unit: Unit, now: datetime) -> tuple[int, int, int, datetime]:
    """Return by which units are ordered, the most important first.

    As kube-scheduler 1.37: priority, gangs before pods, larger gangs before smaller, whoever has run longest.
    """
    size = 0 if unit.group is None else len(unit.members)
    return -unit.priority, -bool(unit.group), -size, started_at(unit.members, now)


def started_at(pods: Iterable[Tenant], now: datetime) -> datetime:
    """Return when the first of them started; who has not yet starts now, as in kube-scheduler."""
    return min((pod.work.started_at or now for pod in pods), default=now)


def cost_of(units: Iterable[Unit], now: datetime) -> list[Cost]:
    """Return what each pod of the units costs."""
    return [member.cost(now) for unit in units for member in unit.members]


def _units(possible: Sequence[Tenant], court: Court) -> list[Unit]:
    units: list[Unit] = []
    wholes: dict[GroupKey, tuple[Group, list[Tenant]]] = {}
    for tenant in possible:
        group = court.whole(tenant)
        if group is None:
            units.append(Unit((tenant,), (tenant,), None, tenant.defence))
        else:
            wholes.setdefault(group.key, (group, []))[1].append(tenant)
    for group, here in wholes.values():
        priority = max(member.defence for member in group.members)
        units.append(Unit(tuple(here), tuple(group.members), group.key, priority))
    return units


def _let_back(units: list[Unit], space: _Space, court: Court) -> Selection | Obstacle:
    now = court.scene.now
    units.sort(key=lambda unit: importance(unit, now))
    spending = Spending(court.scene)
    judged = [(unit, spending.violations(unit.members)) for unit in units]
    # Stable: in each part the order of importance holds.
    judged.sort(key=lambda pair: pair[1] == 0)
    victims = [(unit, broken) for unit, broken in judged if not space.admit(unit.here)]
    if not victims:
        return Obstacle.HAS_ROOM
    chosen = sorted((unit for unit, _ in victims), key=lambda unit: importance(unit, now))
    return Selection(tuple(chosen), sum(broken for _, broken in victims))

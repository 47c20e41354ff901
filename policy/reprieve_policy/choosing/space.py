"""How much is left on a node beside what is to fit there. Mirrors kube-scheduler's plugins NodeResourcesFit and NodePorts.

Only what the load asks for is looked at: a node that is overcommitted in what it does not ask for is no obstacle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprieve_policy.quantity import NANOS

from . import fitting
from .scene import Guest, Port, Room, Tenant


@dataclass(frozen=True, slots=True)
class Load:
    """What is to fit on one node: a pod, or several of one gang."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    ports: tuple[frozenset[Port], ...] = ()
    uids: frozenset[str] = frozenset()

    def plus(self, guest: Guest) -> "Load":
        """Return the load with one more."""
        amounts = dict(self.amounts)
        for resource, amount in guest.amounts.items():
            if amount > 0:
                amounts[resource] = amounts.get(resource, 0) + amount
        ports = (*self.ports, guest.ports) if guest.ports else self.ports
        return Load(amounts, ports, self.uids | {guest.uid})


class Space:
    """What is left on a node beside a load. It may be less than nothing, while some who are in it have yet to go."""

    def __init__(self, room: Room, load: Load, priority: int) -> None:
        self._resources = tuple(load.amounts)
        self._left = [room.allocatable.get(name, 0) - amount for name, amount in load.amounts.items()]
        self._pods = room.allocatable.get("pods", 0) // NANOS - len(load.uids)
        self._wanted = load.ports
        self._collisions = _collisions_within(load.ports)
        for guest in room.nominees:
            # As kube-scheduler: whoever is no less important and has room coming here keeps it.
            if guest.priority >= priority and guest.uid not in load.uids:
                self.occupy(guest)

    @property
    def is_enough(self) -> bool:
        """True where the load fits."""
        return self._pods >= 0 and not self._collisions and min(self._left, default=0) >= 0

    def occupy(self, pod: Tenant | Guest) -> None:
        """Count a pod that stays."""
        self._change(pod, 1)

    def admit(self, pods: Sequence[Tenant]) -> bool:
        """Let pods back, if the load still fits then."""
        for pod in pods:
            self._change(pod, 1)
        if self.is_enough:
            return True
        self.release(pods)
        return False

    def release(self, pods: Sequence[Tenant]) -> None:
        """Count pods no longer."""
        for pod in pods:
            self._change(pod, -1)

    def _change(self, pod: Tenant | Guest, sign: int) -> None:
        amounts, left = pod.amounts, self._left
        for index, name in enumerate(self._resources):
            left[index] -= sign * amounts.get(name, 0)
        self._pods -= sign
        if self._wanted and pod.ports:
            self._collisions += sign * sum(fitting.collide(ports, pod.ports) for ports in self._wanted)


def _collisions_within(ports: Sequence[frozenset[Port]]) -> int:
    return sum(fitting.collide(mine, its) for index, mine in enumerate(ports) for its in ports[:index])

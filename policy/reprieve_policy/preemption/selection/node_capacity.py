"""How much is left on a node beside what is to fit there. Mirrors kube-scheduler's plugins NodeResourcesFit and NodePorts.

Only what the load asks for is looked at: a node that is overcommitted in what it does not ask for is no obstacle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprieve_policy.kube.quantity import NANOS

from . import node_fit
from .snapshot import HostPortInfo, NodeInfo, PodDemand, ScheduledPod


@dataclass(frozen=True, slots=True)
class CombinedDemand:
    """What is to fit on one node: a pod, or several of one gang."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    ports: tuple[frozenset[HostPortInfo], ...] = ()
    uids: frozenset[str] = frozenset()

    def plus(self, guest: PodDemand) -> "CombinedDemand":
        """Return the load with one more."""
        amounts = dict(self.amounts)
        for resource, amount in guest.amounts.items():
            if amount > 0:
                amounts[resource] = amounts.get(resource, 0) + amount
        ports = (*self.ports, guest.ports) if guest.ports else self.ports
        return CombinedDemand(amounts, ports, self.uids | {guest.uid})


class RemainingCapacity:
    """What is left on a node beside a load. It may be less than nothing, while some who are in it have yet to go."""

    __slots__ = ("_collisions", "_left", "_pods", "_resources", "_wanted")

    def __init__(self, room: NodeInfo, load: CombinedDemand, priority: int) -> None:
        self._resources = tuple(enumerate(load.amounts))
        self._left = [
            room.allocatable.get(name, 0) - amount for name, amount in load.amounts.items()
        ]
        self._pods = room.allocatable.get("pods", 0) // NANOS - len(load.uids)
        self._wanted = load.ports
        self._collisions = _collisions_within(load.ports)
        for guest in room.nominated_pods:
            # As kube-scheduler: whoever is no less important and has room coming here keeps it.
            if guest.priority >= priority and guest.uid not in load.uids:
                self.add_pod(guest)

    @property
    def fits(self) -> bool:
        """True where the load fits."""
        return self._pods >= 0 and not self._collisions and min(self._left, default=0) >= 0

    def add_pod(self, pod: ScheduledPod | PodDemand) -> None:
        """Count a pod that stays."""
        amounts, left = pod.amounts, self._left
        for index, name in self._resources:
            left[index] -= amounts.get(name, 0)
        self._pods -= 1
        if self._wanted:
            self._collisions += self._count_collisions(pod)

    def remove_pods(self, *pods: ScheduledPod) -> None:
        """Count pods no longer."""
        for pod in pods:
            for index, name in self._resources:
                self._left[index] += pod.amounts.get(name, 0)
            self._pods += 1
            if self._wanted:
                self._collisions -= self._count_collisions(pod)

    def try_add(self, pods: Sequence[ScheduledPod]) -> bool:
        """Let pods back, if the load still fits then."""
        for pod in pods:
            self.add_pod(pod)
        # `is_enough`, spelled out: asked of each pod of each node, the call would be a tenth of a decision.
        if self._pods >= 0 and not self._collisions and (not self._left or min(self._left) >= 0):
            return True
        self.remove_pods(*pods)
        return False

    def _count_collisions(self, pod: ScheduledPod | PodDemand) -> int:
        return sum(node_fit.ports_conflict(ports, pod.ports) for ports in self._wanted)


def _collisions_within(ports: Sequence[frozenset[HostPortInfo]]) -> int:
    return sum(
        node_fit.ports_conflict(mine, its)
        for index, mine in enumerate(ports)
        for its in ports[:index]
    )

"""How much room a node has left for a demand.

Mirrors kube-scheduler's NodeResourcesFit and NodePorts.

Only the requested resources count: a node overcommitted in another resource still fits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprieve_policy.kube.quantity import NANOS

from . import node_fit
from .snapshot import HostPortInfo, NodeInfo, PodDemand, ScheduledPod


@dataclass(frozen=True, slots=True)
class CombinedDemand:
    """The demand of one pod, or of several of one gang, on one node."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    ports: tuple[frozenset[HostPortInfo], ...] = ()
    uids: frozenset[str] = frozenset()

    def plus(self, demand: PodDemand) -> "CombinedDemand":
        """Return the demand with one more pod."""
        amounts = dict(self.amounts)
        for resource, amount in demand.amounts.items():
            if amount > 0:
                amounts[resource] = amounts.get(resource, 0) + amount
        ports = (*self.ports, demand.ports) if demand.ports else self.ports
        return CombinedDemand(amounts, ports, self.uids | {demand.uid})


class RemainingCapacity:
    """The room left on a node beside a demand; negative while pods still have to leave."""

    __slots__ = ("_collisions", "_left", "_pods", "_resources", "_wanted")

    def __init__(self, node_info: NodeInfo, demands: CombinedDemand, priority: int) -> None:
        self._resources = tuple(enumerate(demands.amounts))
        self._left = [
            node_info.allocatable.get(name, 0) - amount for name, amount in demands.amounts.items()
        ]
        self._pods = node_info.allocatable.get("pods", 0) // NANOS - len(demands.uids)
        self._wanted = demands.ports
        self._collisions = _collisions_within(demands.ports)
        for demand in node_info.nominated_pods:
            # As in kube-scheduler: an equally or more important pod nominated to this node keeps
            # its room.
            if demand.priority >= priority and demand.uid not in demands.uids:
                self.add_pod(demand)

    @property
    def fits(self) -> bool:
        """True if the demand fits."""
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
        """Stop counting these pods."""
        for pod in pods:
            for index, name in self._resources:
                self._left[index] += pod.amounts.get(name, 0)
            self._pods += 1
            if self._wanted:
                self._collisions -= self._count_collisions(pod)

    def try_add(self, pods: Sequence[ScheduledPod]) -> bool:
        """Count the pods again if the demand still fits then: they are reprieved."""
        for pod in pods:
            self.add_pod(pod)
        # `fits`, inlined: called for each pod of each node, it would take a tenth of a decision.
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

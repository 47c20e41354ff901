"""The pods of a gang by kind, and how many places each kind has on the free nodes.

A gang may have any number of pods that differ. So that a tenant's gang costs bounded memory and
time, more than `MAX_KINDS` kinds are counted as if each pod requested the most of any resource. A
gang is not counted if its pods may run on too many different sets of nodes, or if one of them says
in too many ways where it may run.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from reprieve_policy.kube.values.quantity import NANOS
from reprieve_policy.preemption.selection import node_fit
from reprieve_policy.preemption.selection.snapshot import NodeInfo, PodDemand, ScheduledPod

MAX_KINDS = 8
"""Demands in one gang that are counted one by one, as in `planner`."""
MAX_PLACEMENTS = 64
"""Constraints and host ports in one gang that differ."""
MAX_ENTRIES = 100
"""Of one pod: terms of node affinity, their requirements, node selectors, tolerations, host ports.

Each may take some microseconds for each node.
"""
MAX_VALUES = 2_000
"""Values of these requirements."""
_PODS = "pods"


@dataclass(frozen=True, eq=False)
class FreeNode:
    """A node with what is free on it now: pods that are leaving still occupy it."""

    info: NodeInfo

    @cached_property
    def free(self) -> Mapping[str, int]:
        """What is free, in nanos by resource."""
        free = dict(self.info.allocatable)
        occupying: Sequence[ScheduledPod | PodDemand] = (
            *self.info.pods,
            *self.info.nominated_pods,
        )
        for pod in occupying:
            for name, amount in {**pod.amounts, _PODS: NANOS}.items():
                free[name] = free.get(name, 0) - amount
        return free


@dataclass(frozen=True, eq=False)
class DemandKind:
    """Pods with equal demands, of one gang."""

    demand: PodDemand
    count: int

    @cached_property
    def identity(self) -> object:
        """What is equal for kinds that have the same places."""
        return _identity(self.demand)

    @cached_property
    def amounts(self) -> Mapping[str, int]:
        """What each pod takes, in nanos by resource."""
        wanted = {name: amount for name, amount in self.demand.amounts.items() if amount > 0}
        return {**wanted, _PODS: NANOS}

    @cached_property
    def wanted_ports(self) -> node_fit.WantedPorts:
        """Its host ports."""
        return node_fit.WantedPorts(self.demand.ports)


@dataclass(frozen=True, eq=False)
class KindOnNodes:
    """A kind with the nodes that it may run on, by name, and its places on each."""

    kind: DemandKind
    places: Mapping[str, int]

    @cached_property
    def total(self) -> int:
        """Its places on all nodes."""
        return sum(self.places.values())

    @property
    def spare(self) -> int:
        """Its places beyond those that its own pods take; negative if they are too few."""
        return self.total - self.kind.count

    def meets(self, other: "KindOnNodes") -> bool:
        """True if both may run on one node."""
        return not self.places.keys().isdisjoint(other.places)


def group_by_kind(
    pods: Sequence[PodDemand], placed: Sequence[PodDemand] = ()
) -> Sequence[DemandKind]:
    """Return the kinds of a gang's pods; none if the gang is not counted.

    `placed`: pods of the gang that are on nodes. They count for how kinds are told apart: without
    them, a gang would have more kinds once fewer of its pods are left.
    """
    if any(map(has_many_entries, pods)):
        return ()
    groups = _group(pods, _identity)
    if len(_group((*pods, *placed), _identity)) <= MAX_KINDS:
        return [DemandKind(same[0], len(same)) for same in groups]
    alike = _group((pod for same in groups for pod in same), placement_of)
    if len(alike) > MAX_PLACEMENTS:
        return ()
    return [DemandKind(_largest(same), len(same)) for same in alike]


def has_many_entries(demand: PodDemand) -> bool:
    """True if the pod says in so many ways where it may run that to evaluate them takes long."""
    constraints = demand.constraints
    terms = constraints.node_affinity_terms or ()
    requirements = [one for term in terms for part in term for one in part]
    entries: Sequence[Collection[object]] = (
        terms,
        requirements,
        constraints.node_selector,
        constraints.tolerations,
        demand.ports,
    )
    values = sum(len(one.values) for one in requirements)
    return sum(map(len, entries)) > MAX_ENTRIES or values > MAX_VALUES


def _group(
    pods: Iterable[PodDemand], identify: Callable[[PodDemand], object]
) -> Sequence[list[PodDemand]]:
    groups: dict[object, list[PodDemand]] = {}
    for pod in pods:
        groups.setdefault(identify(pod), []).append(pod)
    return list(groups.values())


def _largest(pods: Sequence[PodDemand]) -> PodDemand:
    """Return a demand that has room only where each of the pods has."""
    amounts: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.amounts.items():
            amounts[name] = max(amount, amounts.get(name, 0))
    return replace(pods[0], amounts=amounts)


def _identity(demand: PodDemand) -> object:
    """Return what is equal for pods with equal demands."""
    return tuple(sorted(demand.amounts.items())), placement_of(demand)


def placement_of(demand: PodDemand) -> object:
    """Return what is equal for pods that may run on the same nodes, whatever they request."""
    constraints = demand.constraints
    return (
        demand.ports,
        tuple(sorted(constraints.node_selector.items())),
        None if constraints.node_affinity_terms is None else repr(constraints.node_affinity_terms),
        tuple(constraints.tolerations),
    )


def count_places(kind: DemandKind, node: FreeNode) -> int:
    """Return how many such pods fit on the node."""
    if not fits(kind, node, node.free, ()):
        return 0
    if kind.demand.ports:
        return 1
    return places_in(kind, node.free)


def places_in(kind: DemandKind, free: Mapping[str, int]) -> int:
    """Return how many such pods fit into what is free, whatever host ports they have."""
    return min(free.get(name, 0) // amount for name, amount in kind.amounts.items())


def fits(
    kind: DemandKind, node: FreeNode, free: Mapping[str, int], placed: Sequence[PodDemand]
) -> bool:
    """True if one more such pod fits on the node beside those placed there."""
    if any(free.get(name, 0) < amount for name, amount in kind.amounts.items()):
        return False
    if not kind.demand.ports:
        return True
    there: Sequence[ScheduledPod | PodDemand] = (
        *node.info.pods,
        *node.info.nominated_pods,
        *placed,
    )
    return not any(map(kind.wanted_ports.conflict_with, there))


def places_lost(kind: KindOnNodes, others: Iterable[KindOnNodes]) -> int:
    """Return how many places of a kind the pods of others take, at the worst.

    A pod that has no place takes none: the scheduler does not place it.
    """
    return sum(
        min(other.kind.count, other.total) * _places_lost(kind.kind, other.kind)
        for other in others
        if other is not kind and other.meets(kind)
    )


def _places_lost(kind: DemandKind, placed: DemandKind) -> int:
    """Return how many places of one kind a placed pod of another takes at most."""
    return max(-(-placed.amounts.get(name, 0) // amount) for name, amount in kind.amounts.items())

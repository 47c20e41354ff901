"""Whether a gang has room beside the gangs that were released and are not placed yet.

A scheduler places the pods of all of these in an order of its own, on nodes of its choice. So a
gang is released beside others on the same nodes only where every choice leaves room for all of
them; else one gang at a time. A pod that is placed takes from the pods of another kind at most as
many places as its request is larger than theirs (`_places_lost`). As long as each kind has more
places than the others can take, and than it has pods itself, each of its pods finds one.

A gang without such a margin, because its own pods differ and fill the room, is released by itself
once one way to place it exists. So is a gang that needs victims: the planner that chooses victims
says whether there are some.

Pods are placed by requests, host ports, taints and selectors, as in `gang_planner`. Pods of no gang
may take the room of a released gang: the gate's timeout ends that.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

from reprieve_policy.kube.quota import Amounts
from reprieve_policy.kube.values.quantity import NANOS

from . import node_fit
from .eligibility import Eligibility
from .gang_planner import GangPlanner
from .node_dry_run import NodeDryRun, ranking_for
from .snapshot import NodeInfo, PodDemand, Preemptor, ScheduledPod, Snapshot

K = TypeVar("K", bound=Hashable)

_PODS = "pods"
_HIGHEST = 2**31
"""Above every priority."""
_ATTEMPTS = 4
"""Nodes that a plan with victims starts from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDemand:
    """What a gang needs in order to start."""

    pods: Sequence[Preemptor]
    """Its pods that wait for a node, as many as it needs."""
    min_resources: Amounts = field(default_factory=dict)
    """`minResources` of its PodGroup: free in all, whatever its pods request."""


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
class _Kind:
    """Pods with equal demands, of one gang."""

    demand: PodDemand
    count: int

    @cached_property
    def amounts(self) -> Mapping[str, int]:
        wanted = {name: amount for name, amount in self.demand.amounts.items() if amount > 0}
        return {**wanted, _PODS: NANOS}


@dataclass(frozen=True, eq=False)
class _KindOnNodes:
    """A kind with the nodes that it may run on, by name, and its places on each."""

    kind: _Kind
    places: Mapping[str, int]

    @cached_property
    def total(self) -> int:
        return sum(self.places.values())

    def meets(self, other: "_KindOnNodes") -> bool:
        """True if both may run on one node."""
        return not self.places.keys().isdisjoint(other.places)


class GangRoom(Generic[K]):
    """The room in one snapshot; gangs are reserved in it one after another."""

    def __init__(
        self,
        snapshot: Snapshot,
        free_nodes: Iterable[FreeNode],
        gangs: Mapping[K, GangDemand],
        released: Iterable[Sequence[PodDemand]],
        is_expired: Callable[[], bool] = lambda: False,
    ) -> None:
        """`gangs` may ask for room; of each of the gangs `released`, the pods without a node.

        No plan with victims is made any more once `is_expired` returns true.
        """
        self._snapshot, self._gangs, self._is_expired = snapshot, gangs, is_expired
        self._nodes = {node.info.name: node for node in free_nodes}
        self._places: dict[object, Mapping[str, int]] = {}
        self._released = [self._kinds_of(pods) for pods in released]

    def has_room(self, key: K) -> bool:
        """True if the gang may be released beside those released before it."""
        gang = self._gangs[key]
        own = self._kinds_of([pod.demand for pod in gang.pods])
        beside = [
            kinds
            for kinds in self._released
            if any(mine.meets(its) for mine in own for its in kinds)
        ]
        is_enough_free = not self._is_below(gang.min_resources, own)
        if is_enough_free and self._has_margin(own, beside):
            return True
        if beside:
            return False
        if is_enough_free and self._can_be_placed(own):
            return True
        return self._may_have_victims(gang.pods, own) and self._has_plan(gang.pods)

    def reserve(self, key: K) -> None:
        """Count a gang as released."""
        self._released.append(self._kinds_of([pod.demand for pod in self._gangs[key].pods]))

    def _kinds_of(self, pods: Iterable[PodDemand]) -> Sequence[_KindOnNodes]:
        counts: dict[object, list[PodDemand]] = {}
        for pod in pods:
            counts.setdefault(_identity(pod), []).append(pod)
        return [
            _KindOnNodes(_Kind(same[0], len(same)), self._places_of(identity, same[0]))
            for identity, same in counts.items()
        ]

    def _places_of(self, identity: object, demand: PodDemand) -> Mapping[str, int]:
        """Return how many such pods fit on each node that they may run on."""
        if identity not in self._places:
            kind = _Kind(demand, 1)
            self._places[identity] = {
                name: _count_places(kind, node)
                for name, node in self._nodes.items()
                if node_fit.satisfies_constraints(demand.constraints, node.info)
            }
        return self._places[identity]

    def _is_below(self, min_resources: Amounts, own: Sequence[_KindOnNodes]) -> bool:
        if not min_resources:
            return False
        names = {name for kind in own for name in kind.places}
        return any(
            sum(max(0, self._nodes[name].free.get(resource, 0)) for name in names) < amount
            for resource, amount in min_resources.items()
        )

    def _has_margin(
        self, own: Sequence[_KindOnNodes], beside: Sequence[Sequence[_KindOnNodes]]
    ) -> bool:
        """True if each pod finds a place, whatever places the others are given before it."""
        every = [kind for kinds in (*self._released, own) for kind in kinds]
        concerned = [*own, *(kind for kinds in beside for kind in kinds)]
        return all(_margin(kind, every) >= 0 for kind in concerned)

    def _can_be_placed(self, own: Sequence[_KindOnNodes]) -> bool:
        """True if the kinds fit one after another, those with the fewest places first."""
        if any(kind.total < kind.kind.count for kind in own):
            return False
        free_by_node: dict[str, dict[str, int]] = {}
        ports: dict[str, list[PodDemand]] = {}
        for kind in sorted(own, key=lambda one: (one.total, -one.kind.count)):
            left = kind.kind.count
            for name in kind.places:
                if not left:
                    break
                taken = ports.get(name, [])
                free = free_by_node.setdefault(name, dict(self._nodes[name].free))
                while left and _fits(kind.kind, self._nodes[name], free, taken):
                    left -= 1
                    for resource, amount in kind.kind.amounts.items():
                        free[resource] -= amount
                    if kind.kind.demand.ports:
                        taken = ports.setdefault(name, taken)
                        taken.append(kind.kind.demand)
            if left:
                return False
        return True

    def _may_have_victims(self, pods: Sequence[Preemptor], own: Sequence[_KindOnNodes]) -> bool:
        """True if the gang fits into the empty nodes, and a pod of less priority runs.

        Without this, gangs that never fit would use up the time for plans of all others.
        """
        if pods[0].demand.priority <= self._lowest_priority:
            return False
        return all(
            sum(_places_in(kind.kind, self._nodes[name].info.allocatable) for name in kind.places)
            >= kind.kind.count
            for kind in own
        )

    @cached_property
    def _lowest_priority(self) -> int:
        running = (pod.priority for node in self._nodes.values() for pod in node.info.pods)
        return min(running, default=_HIGHEST)

    def _has_plan(self, pods: Sequence[Preemptor]) -> bool:
        """True if the planner that chooses victims finds some for the whole gang.

        False if it needs none: pods that are leaving make room soon, and the gang waits for them.
        """
        first, *rest = pods
        preemptor = replace(
            first,
            pending_members=tuple(pod.demand for pod in rest),
            devices=sum(pod.devices for pod in pods),
            is_gated=False,
        )
        eligibility = Eligibility(preemptor, self._snapshot)
        if eligibility.pod_eligibility.preemptor_reason() is not None:
            return False
        dry_run = NodeDryRun(preemptor.demand, eligibility)
        feasible = dry_run.feasible_nodes(self._is_expired)
        ranking = ranking_for(feasible.values(), self._snapshot)
        best = sorted(feasible, key=lambda node: (ranking.rank_result(feasible[node]), node))
        planner = GangPlanner(dry_run, eligibility, self._is_expired)
        plans = (planner.plan(node, feasible[node]) for node in best[:_ATTEMPTS])
        counts = [len(plan.units) for plan in plans if plan is not None]
        return bool(counts) and 0 < min(counts) <= self._snapshot.settings.max_victims


def _identity(demand: PodDemand) -> object:
    """Return what is equal for pods with equal demands."""
    constraints = demand.constraints
    return (
        tuple(sorted(demand.amounts.items())),
        demand.ports,
        tuple(sorted(constraints.node_selector.items())),
        None if constraints.node_affinity_terms is None else repr(constraints.node_affinity_terms),
        tuple(constraints.tolerations),
    )


def _count_places(kind: _Kind, node: FreeNode) -> int:
    if not _fits(kind, node, node.free, ()):
        return 0
    if kind.demand.ports:
        return 1
    return _places_in(kind, node.free)


def _places_in(kind: _Kind, free: Mapping[str, int]) -> int:
    return min(free.get(name, 0) // amount for name, amount in kind.amounts.items())


def _fits(
    kind: _Kind, node: FreeNode, free: Mapping[str, int], placed: Sequence[PodDemand]
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
    return not any(node_fit.ports_conflict(kind.demand.ports, pod.ports) for pod in there)


def _margin(kind: _KindOnNodes, every: Iterable[_KindOnNodes]) -> int:
    """Return how many places of a kind no pod can need, at the worst."""
    lost = sum(
        other.kind.count * _places_lost(kind.kind, other.kind)
        for other in every
        if other is not kind and other.meets(kind)
    )
    return kind.total - kind.kind.count - lost


def _places_lost(kind: _Kind, placed: _Kind) -> int:
    """Return how many places of one kind a placed pod of another takes at most."""
    return max(-(-placed.amounts.get(name, 0) // amount) for name, amount in kind.amounts.items())

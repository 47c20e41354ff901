"""Whether a gang has room beside the gangs that were released and are not placed yet.

A scheduler places the pods of all of these in an order of its own, on nodes of its choice. So a
gang is released beside others on the same nodes only where every choice leaves room for all of
them; else one gang at a time. A pod that is placed takes from the pods of another kind at most as
many places as its request is larger than theirs (`_places_lost`). As long as each kind has more
places than the others can take, and than it has pods itself, each of its pods finds one.

A gang without such a margin, because its own pods differ and fill the room, is released by itself
once one way to place it exists. So is a gang that needs victims: the planner that chooses victims
says whether there are some.

The room of a gang that cannot be placed now anyway is not kept from every gang (`_is_protected`).
Without this, a pod that fits nowhere would hold up all gangs on the nodes that it may run on.

Pods are placed by requests, host ports, taints and selectors, as in `planner`. Pods of no gang
may take the room of a released gang: the gate's timeout ends that.

Each kind is counted on all nodes and compared with each other one, so that the time grows with the
number of kinds that differ, which tenants choose. So the gangs of a Namespace are released with few
kinds at once (`MAX_NAMESPACE_KINDS`). What there is no time for counts as no room: a gang that is
not compared with all others is not released.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

from reprieve_policy.kube.limits.quota import Amounts
from reprieve_policy.preemption.selection import node_fit
from reprieve_policy.preemption.selection.eligibility import Eligibility
from reprieve_policy.preemption.selection.node_dry_run import NodeDryRun, ranking_for
from reprieve_policy.preemption.selection.snapshot import PodDemand, Preemptor, Snapshot

from . import kinds as gang_kinds
from .kinds import DemandKind, FreeNode, KindOnNodes
from .placing import PlacingKinds
from .planner import GangPlanner

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

MAX_UNGATED_KINDS = 500
"""Kinds of pods for which the gate keeps no room: no gang is added once there are so many.

To compare all of them with each other takes half a second.
"""
MAX_NAMESPACE_KINDS = 16
"""Kinds of pods that the released gangs of one Namespace may have in all until they are placed.

Without this, a tenant whose released gangs no scheduler places would take all the time in which
those of all Namespaces are counted: 5,000 nodes take 10 ms for each kind.
"""
_HIGHEST = 2**31
"""Above every priority."""
_ATTEMPTS = 4
"""Nodes that a plan with victims starts from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDemand:
    """What a gang needs in order to start."""

    pods: Sequence[Preemptor]
    """Its pods that wait for a node, as many as it needs."""
    namespace: str = ""
    min_resources: Amounts = field(default_factory=dict)
    """`minResources` of its PodGroup: free in all, whatever its pods request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedGang:
    """A gang that the gate has released, and that has not started."""

    namespace: str
    pods: Sequence[PodDemand]
    """Its pods without a node."""
    placed: Sequence[PodDemand] = ()
    """Its pods on nodes."""
    was_large: bool = False
    """It was released with more kinds than `MAX_NAMESPACE_KINDS`."""


class _TimeOverError(Exception):
    """The time of the decision ended before the room of a gang was known."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomLimits:
    """How long one decision may take."""

    are_plans_over: Callable[[], bool] = _never
    """No further plan with victims is made."""
    is_over: Callable[[], bool] = _never
    """No further gang is counted, or compared with those that are being placed."""
    is_released_over: Callable[[], bool] = _never
    """No further gang is counted that was released before. If one is left, none is released now."""
    is_ungated_over: Callable[[], bool] = _never
    """No further pods are counted for which the gate keeps no room."""


@dataclass(frozen=True, eq=False)
class _InFlight:
    """A gang that the scheduler has, and what it still has to place for it."""

    kinds: Sequence[KindOnNodes]
    priority: int
    is_gated: bool
    """The gate has released it, with room for all of its pods."""

    @cached_property
    def may_take_room(self) -> bool:
        """True if one of its pods fits somewhere."""
        return any(kind.total for kind in self.kinds)

    def meets(self, nodes: AbstractSet[str]) -> bool:
        """True if one of its pods may run on one of the nodes."""
        return any(not nodes.isdisjoint(kind.places) for kind in self.kinds)


class GangRoom(Generic[K]):
    """The room in one snapshot; gangs are reserved in it one after another."""

    def __init__(
        self,
        snapshot: Snapshot,
        free_nodes: Iterable[FreeNode],
        gangs: Mapping[K, GangDemand],
        released: Iterable[ReleasedGang],
        limits: RoomLimits | None = None,
        *,
        ungated: Iterable[Sequence[PodDemand]] = (),
    ) -> None:
        """`gangs` may ask for room beside those `released`.

        `ungated`: pods without a node for which the gate keeps no room.
        """
        self._snapshot, self._gangs = snapshot, gangs
        self._limits = limits or RoomLimits()
        self._nodes = {node.info.name: node for node in free_nodes}
        self._places: dict[object, Mapping[str, int]] = {}
        self._places_if_empty: dict[object, int] = {}
        self._placeable: dict[_InFlight, bool] = {}
        self._placing = PlacingKinds()
        self._placing_in: dict[str, set[object]] = defaultdict(set)
        """By Namespace: the kinds that are being placed of its released gangs."""
        self._is_large_placing = False
        """A Namespace has more than `MAX_NAMESPACE_KINDS`, by one gang."""
        self.large: set[K] = set()
        """The reserved gangs that have more than `MAX_NAMESPACE_KINDS`."""
        self.without_turn: set[K] = set()
        """Gangs for which there was not enough time."""
        self.ungated_turns = 0
        """How many of the gangs `ungated` there was time for: the first ones."""
        self._in_flight: list[_InFlight] = []
        # Without this order, a gang whose kinds grew could have the place of one that was large.
        in_order = sorted(released, key=lambda gang: not gang.was_large)
        self._is_all_counted = all(
            self._add_released(gang, self._limits.is_released_over) for gang in in_order
        )
        self._add_ungated(ungated)

    def has_room(self, key: K) -> bool:
        """True if the gang may be released beside those released before it."""
        try:
            return self._finds_room(key)
        except _TimeOverError:
            self.without_turn.add(key)
            return False

    def reserve(self, key: K) -> None:
        """Count a gang as released."""
        gang = self._gangs[key]
        demands = [pod.demand for pod in gang.pods]
        kinds = gang_kinds.group_by_kind(demands)
        is_large = len(kinds) > MAX_NAMESPACE_KINDS
        if is_large:
            self.large.add(key)
        released = ReleasedGang(namespace=gang.namespace, pods=demands, was_large=is_large)
        self._add_kinds(released, kinds, _never)

    def _finds_room(self, key: K) -> bool:
        if not self._is_all_counted or self._limits.is_over():
            raise _TimeOverError
        gang = self._gangs[key]
        kinds = gang_kinds.group_by_kind([pod.demand for pod in gang.pods])
        if not kinds or not self._are_few_kinds(gang.namespace, kinds):
            return False
        own = [KindOnNodes(kind, self._places_of(kind)) for kind in self._in_time(kinds)]
        own_nodes = set[str]().union(*(kind.places for kind in own))
        met = [one for one in self._in_time(self._in_flight) if one.meets(own_nodes)]
        priority = max(pod.demand.priority for pod in gang.pods)
        protected = [one for one in self._in_time(met) if self._is_protected(one, priority)]
        is_enough_free = not self._is_below(gang.min_resources, own)
        if is_enough_free and self._has_margin(own, protected):
            return True
        if protected or any(one.may_take_room for one in met):
            return False
        if is_enough_free and self._can_be_placed(own):
            return True
        return self._may_have_victims(gang.pods[0].demand.priority, own) and self._has_plan(key)

    def _in_time(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items while there is time, and the first in any case.

        Without the first, an operator that has too little processor time would release nothing.
        """
        for index, item in enumerate(items):
            if index and self._limits.is_over():
                raise _TimeOverError
            yield item

    def _are_few_kinds(self, namespace: str, kinds: Sequence[DemandKind]) -> bool:
        """True if the gang and the released ones of its Namespace have few kinds in all.

        A large gang may have more, one of all Namespaces at a time; and only while no other of its
        Namespace is being placed. Without that, a tenant whose large gangs are placed but for a few
        pods each would have as many kinds in flight as it likes.
        """
        placing = self._placing_in[namespace]
        if len(kinds) > MAX_NAMESPACE_KINDS:
            return not placing and not self._is_large_placing
        return len(placing.union(kind.identity for kind in kinds)) <= MAX_NAMESPACE_KINDS

    def _keeps_room(self, gang: ReleasedGang, kinds: Sequence[DemandKind]) -> bool:
        """True if the room of a gang that the gate has released is kept; note its kinds then.

        Not if the kinds have grown: a user may add tolerations to pods that were released, or
        replace these by pods of other kinds. Without this, such gangs would take all the time there
        is to count those that were released, and no gang of any Namespace would be.
        """
        placing = self._placing_in[gang.namespace]
        own = {kind.identity for kind in kinds}
        if len(placing | own) <= MAX_NAMESPACE_KINDS:
            placing |= own
            return True
        if not gang.was_large or self._is_large_placing:
            return False
        self._is_large_placing = True
        return True

    def _add_released(self, gang: ReleasedGang, is_over: Callable[[], bool]) -> bool:
        """Add a gang that the gate has released; return `False` if there is no time for that."""
        if is_over():
            return False
        return self._add_kinds(gang, gang_kinds.group_by_kind(gang.pods, gang.placed), is_over)

    def _add_kinds(
        self, gang: ReleasedGang, kinds: Sequence[DemandKind], is_over: Callable[[], bool]
    ) -> bool:
        return not self._keeps_room(gang, kinds) or self._add_in_flight(
            kinds, gang.pods, is_over, is_gated=True
        )

    def _add_ungated(self, ungated: Iterable[Sequence[PodDemand]]) -> None:
        left, is_over = MAX_UNGATED_KINDS, self._limits.is_ungated_over
        for pods in ungated:
            if is_over():
                return
            kinds = gang_kinds.group_by_kind(pods)
            if not self._add_in_flight(kinds, pods, is_over, is_gated=False):
                return
            self.ungated_turns += 1
            left -= len(kinds)
            if left <= 0:
                return

    def _add_in_flight(
        self,
        kinds: Sequence[DemandKind],
        pods: Sequence[PodDemand],
        is_over: Callable[[], bool],
        *,
        is_gated: bool,
    ) -> bool:
        """Add a gang; return `False` if there is no time for that.

        None of a gang that is not counted: it is not released, and may only come without a gate.
        """
        counted: list[KindOnNodes] = []
        for kind in kinds:
            if counted and is_over():
                return False
            counted.append(KindOnNodes(kind, self._places_of(kind)))
        if counted:
            priority = max(pod.priority for pod in pods)
            self._in_flight.append(_InFlight(counted, priority, is_gated))
            for one in counted:
                self._placing.add(one)
        return True

    def _is_protected(self, one: _InFlight, priority: int) -> bool:
        """True if a gang of this priority must leave room for all of that gang.

        Where the gate has released a gang, its room was there, or victims leave: only a more
        important gang takes what is left of it. One that no gate held is waited for only where it
        may be placed.
        """
        if self._can_be_placed_now(one):
            return True
        if priority > one.priority:
            return False
        return one.is_gated or self._may_have_victims(one.priority, one.kinds)

    def _can_be_placed_now(self, one: _InFlight) -> bool:
        if one not in self._placeable:
            self._placeable[one] = self._can_be_placed(one.kinds)
        return self._placeable[one]

    def _places_of(self, kind: DemandKind) -> Mapping[str, int]:
        """Return how many such pods fit on each node that they may run on."""
        if kind.identity not in self._places:
            self._places[kind.identity] = {
                name: gang_kinds.count_places(kind, node)
                for name, node in self._nodes.items()
                if node_fit.satisfies_constraints(kind.demand.constraints, node.info)
            }
        return self._places[kind.identity]

    def _is_below(self, min_resources: Amounts, own: Sequence[KindOnNodes]) -> bool:
        if not min_resources:
            return False
        names = {name for kind in own for name in kind.places}
        return any(
            sum(max(0, self._nodes[name].free.get(resource, 0)) for name in names) < amount
            for resource, amount in min_resources.items()
        )

    def _has_margin(self, own: Sequence[KindOnNodes], protected: Sequence[_InFlight]) -> bool:
        """True if each pod finds a place, whatever places the others are given before it."""
        return all(margin >= 0 for margin in self._in_time(self._margins(own, protected)))

    def _margins(self, own: Sequence[KindOnNodes], protected: Sequence[_InFlight]) -> Iterator[int]:
        """Yield for each kind how many places no pod can need, at the worst."""
        every = [*own, *self._placing.all]
        for kind in own:
            yield kind.spare - gang_kinds.places_lost(kind, every)
        identities = (kind.kind.identity for one in protected for kind in one.kinds)
        for identity in dict.fromkeys(identities):
            yield self._placing.margin(identity, own)

    def _can_be_placed(self, own: Sequence[KindOnNodes]) -> bool:
        """True if the kinds fit one after another, those with the fewest places first."""
        if any(kind.total < kind.kind.count for kind in own):
            return False
        free_by_node: dict[str, dict[str, int]] = {}
        ports: dict[str, list[PodDemand]] = {}
        for kind in self._in_time(sorted(own, key=lambda one: (one.total, -one.kind.count))):
            left = kind.kind.count
            for name in (name for name, places in kind.places.items() if places):
                if not left:
                    break
                taken = ports.get(name, [])
                free = free_by_node.setdefault(name, dict(self._nodes[name].free))
                while left and gang_kinds.fits(kind.kind, self._nodes[name], free, taken):
                    left -= 1
                    for resource, amount in kind.kind.amounts.items():
                        free[resource] -= amount
                    if kind.kind.demand.ports:
                        taken = ports.setdefault(name, taken)
                        taken.append(kind.kind.demand)
            if left:
                return False
        return True

    def _may_have_victims(self, priority: int, own: Sequence[KindOnNodes]) -> bool:
        """True if the gang fits into the empty nodes, and a pod of less priority runs.

        Without this, gangs that never fit would use up the time for plans of all others.
        """
        if priority <= self._lowest_priority:
            return False
        return all(
            self._count_places_if_empty(kind) >= kind.kind.count for kind in self._in_time(own)
        )

    def _count_places_if_empty(self, kind: KindOnNodes) -> int:
        identity = kind.kind.identity
        if identity not in self._places_if_empty:
            self._places_if_empty[identity] = sum(
                gang_kinds.places_in(kind.kind, self._nodes[name].info.allocatable)
                for name in kind.places
            )
        return self._places_if_empty[identity]

    @cached_property
    def _lowest_priority(self) -> int:
        running = (pod.priority for node in self._nodes.values() for pod in node.info.pods)
        return min(running, default=_HIGHEST)

    def _has_plan(self, key: K) -> bool:
        """True if the planner that chooses victims finds some for the whole gang, in time."""
        if not self._limits.are_plans_over() and self._plan(self._gangs[key].pods):
            return True
        if self._limits.are_plans_over():
            self.without_turn.add(key)
        return False

    def _plan(self, pods: Sequence[Preemptor]) -> bool:
        """True if there are victims for the gang.

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
        feasible = dry_run.feasible_nodes(self._limits.are_plans_over)
        ranking = ranking_for(feasible.values(), self._snapshot)
        best = sorted(feasible, key=lambda node: (ranking.rank_result(feasible[node]), node))
        planner = GangPlanner(dry_run, eligibility, self._limits.are_plans_over)
        plans = (planner.plan(node, feasible[node]) for node in best[:_ATTEMPTS])
        counts = [len(plan.units) for plan in plans if plan is not None]
        return bool(counts) and 0 < min(counts) <= self._snapshot.settings.max_victims

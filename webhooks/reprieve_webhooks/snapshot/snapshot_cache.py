"""Who has room where and who waits for it, kept as the scene that victims are chosen from.

Each change costs what it concerns, a scene what has changed since the last one: neither grows with the cluster. A scene is
never changed afterwards, so that a decision may take its time in a thread.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Generic, TypeVar

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import Budget, Group, GroupKey, Preemptor, Room, Scene, Tenant
from reprieve_runtime.client.reflector import Key

K = TypeVar("K")
V = TypeVar("V")

_MOST_LEFT = 10_000
"""Pods; a scheduler that has not seen so many go has other troubles. Some 2 MB."""


class _Index(Generic[K, V]):
    """Values by what they are found under, each under a name of its own."""

    def __init__(self) -> None:
        self._found: dict[K, dict[str, V]] = {}

    def put(self, key: K, name: str, value: V) -> None:
        self._found.setdefault(key, {})[name] = value

    def drop(self, key: K, name: str) -> None:
        same = self._found.get(key, {})
        same.pop(name, None)
        if not same:
            self._found.pop(key, None)

    def of(self, key: K) -> Mapping[str, V]:
        return self._found.get(key, {})


class Seating:
    """All pods by where they are, and the nodes and budgets."""

    def __init__(self) -> None:
        self._nodes: dict[str, Room] = {}
        self._tenants: _Index[str, Tenant] = _Index()
        self._nominees: _Index[str, Preemptor] = _Index()
        self._members: _Index[GroupKey, Tenant] = _Index()
        self._gangs: dict[str, GroupKey] = {}
        """Of those that have room, by uid."""
        self._mates: _Index[GroupKey, Preemptor] = _Index()
        self._waiting: dict[str, Preemptor] = {}
        self._left: dict[str, None] = {}
        """Who had room and has gone, by uid, the latest last."""
        self._budgets: _Index[str, Budget] = _Index()
        self._rooms: dict[str, Room] = {}
        self._groups: dict[GroupKey, Group] = {}
        self._budget_lists: dict[str, tuple[Budget, ...]] = {}
        self._changed_nodes: set[str] = set()
        self._changed_groups: set[GroupKey] = set()
        self._changed_budgets: set[str] = set()
        """By namespace: of one event, nothing else is looked at."""

    def seat(self, tenant: Tenant) -> None:
        """Add a pod that has room."""
        self._left.pop(tenant.uid, None)
        self._tenants.put(tenant.node, tenant.uid, tenant)
        self._changed_nodes.add(tenant.node)
        if tenant.group is not None:
            self._members.put(tenant.group, tenant.uid, tenant)
            self._gangs[tenant.uid] = tenant.group
            self._changed_groups.add(tenant.group)

    def unseat(self, tenant: Tenant) -> None:
        """Take away one that was seated."""
        self._tenants.drop(tenant.node, tenant.uid)
        self._changed_nodes.add(tenant.node)
        if tenant.group is not None:
            self._members.drop(tenant.group, tenant.uid)
            self._gangs.pop(tenant.uid, None)
            self._changed_groups.add(tenant.group)
        self._left[tenant.uid] = None
        if len(self._left) > _MOST_LEFT:
            del self._left[next(iter(self._left))]

    def queue(self, preemptor: Preemptor) -> None:
        """Add a pod that waits for a node."""
        uid = preemptor.guest.uid
        self._waiting[uid] = preemptor
        if preemptor.nominated_node is not None:
            self._nominees.put(preemptor.nominated_node, uid, preemptor)
            self._changed_nodes.add(preemptor.nominated_node)
        if preemptor.group is not None:
            self._mates.put(preemptor.group, uid, preemptor)

    def unqueue(self, preemptor: Preemptor) -> None:
        """Take away one that was queued."""
        uid = preemptor.guest.uid
        self._waiting.pop(uid, None)
        if preemptor.nominated_node is not None:
            self._nominees.drop(preemptor.nominated_node, uid)
            self._changed_nodes.add(preemptor.nominated_node)
        if preemptor.group is not None:
            self._mates.drop(preemptor.group, uid)

    def put_node(self, room: Room) -> None:
        """Add a node, or what it has become; who is on it stays."""
        self._nodes[room.name] = room
        self._changed_nodes.add(room.name)

    def drop_node(self, name: str) -> None:
        """Take a node away."""
        self._nodes.pop(name, None)
        self._changed_nodes.add(name)

    def put_budget(self, name: str, budget: Budget) -> None:
        """Add a budget, or what it has become."""
        self._budgets.put(budget.namespace, name, budget)
        self._changed_budgets.add(budget.namespace)

    def drop_budget(self, key: Key) -> None:
        """Take a budget away."""
        self._budgets.drop(*key)
        self._changed_budgets.add(key[0])

    def knows(self, node: str, uids: Iterable[str]) -> bool:
        """True where all these pods are on that node, are in a gang with one that is, or have left.

        Who has left is known: the scheduler is behind, not this. Without this, a node from which the last of a gang's victims
        has just gone would be passed over, and a second gang go on another one. And a native gang that goes whole is proposed with
        its pods on all nodes (kube-scheduler 1.37, `getCrossNodesVictims`).
        """
        if node not in self._nodes:
            return False
        here = self._tenants.of(node)
        away: set[GroupKey] = set()
        # One look at each, and none after the first that nobody has seen. Without this, a call that names a million would take seconds
        # for each Job on the node.
        for uid in uids:
            if uid in here or uid in self._left:
                continue
            gang = self._gangs.get(uid)
            if gang is None:
                return False
            away.add(gang)
        return not away or away <= {one.group for one in here.values()}

    def preemptor(self, uid: str) -> Preemptor | None:
        """Return a pod that waits, with the rest of its gang; `None` where no such one does."""
        found = self._waiting.get(uid)
        if found is None or found.group is None:
            return found
        mates, placed = self._mates.of(found.group), self._members.of(found.group)
        return snapshot_builder.with_gang(found, mates.values(), placed.values())

    def scene(self, now: datetime, settings: PolicySettings) -> Scene:
        """Return all of it."""
        for name in self._changed_nodes:
            self._rebuild_room(name)
        for key in self._changed_groups:
            self._rebuild_group(key)
        for namespace in self._changed_budgets:
            self._rebuild_budgets(namespace)
        self._changed_nodes.clear()
        self._changed_groups.clear()
        self._changed_budgets.clear()
        return Scene(
            now=now,
            rooms=self._rooms.copy(),
            groups=self._groups.copy(),
            budgets=self._budget_lists.copy(),
            settings=settings,
        )

    def _rebuild_room(self, name: str) -> None:
        room = self._nodes.get(name)
        if room is None:
            self._rooms.pop(name, None)
            return
        nominees = tuple(preemptor.guest for preemptor in self._nominees.of(name).values())
        self._rooms[name] = replace(room, tenants=tuple(self._tenants.of(name).values()), nominees=nominees)

    def _rebuild_group(self, key: GroupKey) -> None:
        members = self._members.of(key)
        if members:
            self._groups[key] = snapshot_builder.group_of(key, members.values())
        else:
            self._groups.pop(key, None)

    def _rebuild_budgets(self, namespace: str) -> None:
        budgets = self._budgets.of(namespace)
        if budgets:
            self._budget_lists[namespace] = tuple(budgets.values())
        else:
            self._budget_lists.pop(namespace, None)

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
from reprieve_policy.preemption.selection.snapshot import (
    DisruptionBudget,
    GangInfo,
    GangKey,
    NodeInfo,
    Preemptor,
    ScheduledPod,
    Snapshot,
)
from reprieve_runtime.client.reflector import Key

K = TypeVar("K")
V = TypeVar("V")

_MAX_REMOVED_UIDS = 10_000
"""Pods; a scheduler that has not seen so many go has other troubles. Some 2 MB."""


class _Index(Generic[K, V]):
    """Values by what they are found under, each under a name of its own."""

    def __init__(self) -> None:
        self._values: dict[K, dict[str, V]] = {}

    def put(self, key: K, name: str, value: V) -> None:
        self._values.setdefault(key, {})[name] = value

    def remove(self, key: K, name: str) -> None:
        same = self._values.get(key, {})
        same.pop(name, None)
        if not same:
            self._values.pop(key, None)

    def get(self, key: K) -> Mapping[str, V]:
        return self._values.get(key, {})


class SnapshotCache:
    """All pods by where they are, and the nodes and budgets."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._pods_by_node: _Index[str, ScheduledPod] = _Index()
        self._nominated_by_node: _Index[str, Preemptor] = _Index()
        self._pods_by_gang: _Index[GangKey, ScheduledPod] = _Index()
        self._gang_by_pod_uid: dict[str, GangKey] = {}
        """Of those that have room, by uid."""
        self._pending_by_gang: _Index[GangKey, Preemptor] = _Index()
        self._pending: dict[str, Preemptor] = {}
        self._removed_uids: dict[str, None] = {}
        """Who had room and has gone, by uid, the latest last."""
        self._budgets: _Index[str, DisruptionBudget] = _Index()
        self._node_infos: dict[str, NodeInfo] = {}
        self._groups: dict[GangKey, GangInfo] = {}
        self._budget_lists: dict[str, tuple[DisruptionBudget, ...]] = {}
        self._changed_nodes: set[str] = set()
        self._changed_groups: set[GangKey] = set()
        self._changed_budgets: set[str] = set()
        """By namespace: of one event, nothing else is looked at."""

    def add_pod(self, pod: ScheduledPod) -> None:
        """Add a pod that has room."""
        self._removed_uids.pop(pod.uid, None)
        self._pods_by_node.put(pod.node, pod.uid, pod)
        self._changed_nodes.add(pod.node)
        if pod.gang is not None:
            self._pods_by_gang.put(pod.gang, pod.uid, pod)
            self._gang_by_pod_uid[pod.uid] = pod.gang
            self._changed_groups.add(pod.gang)

    def remove_pod(self, pod: ScheduledPod) -> None:
        """Take away one that was seated."""
        self._pods_by_node.remove(pod.node, pod.uid)
        self._changed_nodes.add(pod.node)
        if pod.gang is not None:
            self._pods_by_gang.remove(pod.gang, pod.uid)
            self._gang_by_pod_uid.pop(pod.uid, None)
            self._changed_groups.add(pod.gang)
        self._removed_uids[pod.uid] = None
        if len(self._removed_uids) > _MAX_REMOVED_UIDS:
            del self._removed_uids[next(iter(self._removed_uids))]

    def add_pending_pod(self, preemptor: Preemptor) -> None:
        """Add a pod that waits for a node."""
        uid = preemptor.demand.uid
        self._pending[uid] = preemptor
        if preemptor.nominated_node is not None:
            self._nominated_by_node.put(preemptor.nominated_node, uid, preemptor)
            self._changed_nodes.add(preemptor.nominated_node)
        if preemptor.gang is not None:
            self._pending_by_gang.put(preemptor.gang, uid, preemptor)

    def remove_pending_pod(self, preemptor: Preemptor) -> None:
        """Take away one that was queued."""
        uid = preemptor.demand.uid
        self._pending.pop(uid, None)
        if preemptor.nominated_node is not None:
            self._nominated_by_node.remove(preemptor.nominated_node, uid)
            self._changed_nodes.add(preemptor.nominated_node)
        if preemptor.gang is not None:
            self._pending_by_gang.remove(preemptor.gang, uid)

    def put_node(self, node_info: NodeInfo) -> None:
        """Add a node, or what it has become; who is on it stays."""
        self._nodes[node_info.name] = node_info
        self._changed_nodes.add(node_info.name)

    def remove_node(self, name: str) -> None:
        """Take a node away."""
        self._nodes.pop(name, None)
        self._changed_nodes.add(name)

    def put_budget(self, name: str, budget: DisruptionBudget) -> None:
        """Add a budget, or what it has become."""
        self._budgets.put(budget.namespace, name, budget)
        self._changed_budgets.add(budget.namespace)

    def remove_budget(self, key: Key) -> None:
        """Take a budget away."""
        self._budgets.remove(*key)
        self._changed_budgets.add(key[0])

    def has_seen(self, node: str, uids: Iterable[str]) -> bool:
        """True where all these pods are on that node, are in a gang with one that is, or have left.

        Who has left is known: the scheduler is behind, not this. Without this, a node from which the last of a gang's victims
        has just gone would be passed over, and a second gang go on another one. And a native gang that goes whole is proposed with
        its pods on all nodes (kube-scheduler 1.37, `getCrossNodesVictims`).
        """
        if node not in self._nodes:
            return False
        here = self._pods_by_node.get(node)
        away: set[GangKey] = set()
        # One look at each, and none after the first that nobody has seen. Without this, a call that names a million would take seconds
        # for each Job on the node.
        for uid in uids:
            if uid in here or uid in self._removed_uids:
                continue
            gang = self._gang_by_pod_uid.get(uid)
            if gang is None:
                return False
            away.add(gang)
        return not away or away <= {one.gang for one in here.values()}

    def preemptor(self, uid: str) -> Preemptor | None:
        """Return a pod that waits, with the rest of its gang; `None` where no such one does."""
        found = self._pending.get(uid)
        if found is None or found.gang is None:
            return found
        mates, placed = self._pending_by_gang.get(found.gang), self._pods_by_gang.get(found.gang)
        return snapshot_builder.with_gang(found, mates.values(), placed.values())

    def snapshot(self, now: datetime, settings: PolicySettings) -> Snapshot:
        """Return all of it."""
        for name in self._changed_nodes:
            self._rebuild_node_info(name)
        for key in self._changed_groups:
            self._rebuild_group(key)
        for namespace in self._changed_budgets:
            self._rebuild_budgets(namespace)
        self._changed_nodes.clear()
        self._changed_groups.clear()
        self._changed_budgets.clear()
        return Snapshot(
            now=now,
            nodes=self._node_infos.copy(),
            gangs=self._groups.copy(),
            budgets=self._budget_lists.copy(),
            settings=settings,
        )

    def _rebuild_node_info(self, name: str) -> None:
        room = self._nodes.get(name)
        if room is None:
            self._node_infos.pop(name, None)
            return
        nominees = tuple(
            preemptor.demand for preemptor in self._nominated_by_node.get(name).values()
        )
        self._node_infos[name] = replace(
            room, pods=tuple(self._pods_by_node.get(name).values()), nominated_pods=nominees
        )

    def _rebuild_group(self, key: GangKey) -> None:
        members = self._pods_by_gang.get(key)
        if members:
            self._groups[key] = snapshot_builder.gang_info_of(key, members.values())
        else:
            self._groups.pop(key, None)

    def _rebuild_budgets(self, namespace: str) -> None:
        budgets = self._budgets.get(namespace)
        if budgets:
            self._budget_lists[namespace] = tuple(budgets.values())
        else:
            self._budget_lists.pop(namespace, None)

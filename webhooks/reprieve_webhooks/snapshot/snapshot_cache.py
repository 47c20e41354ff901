"""Which pods run on which nodes and which pods wait, kept as the snapshot for choosing victims.

A change costs only the work for what it concerns, and a snapshot only the work for what changed
since the last one: neither grows with the cluster. A snapshot never changes afterwards, so that a
decision can run in a thread.
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
from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.reflector import Key

K = TypeVar("K")
V = TypeVar("V")

_MAX_REMOVED_UIDS = 10_000
"""Pods that left; a scheduler that lags behind by more has other problems. Some 2 MB."""


class _Index(Generic[K, V]):
    """Groups of values by key, each value under a name of its own."""

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
    """All pods by their node, and the nodes and budgets."""

    def __init__(self, *, max_removed_uids: int = _MAX_REMOVED_UIDS) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._pods_by_node: _Index[str, ScheduledPod] = _Index()
        self._nominated_by_node: _Index[str, Preemptor] = _Index()
        self._pods_by_gang: _Index[GangKey, ScheduledPod] = _Index()
        self._gang_by_pod_uid: dict[str, GangKey] = {}
        """Of the pods that run on a node, by uid."""
        self._pending_by_gang: _Index[GangKey, Preemptor] = _Index()
        self._pending: dict[str, Preemptor] = {}
        self._removed_uids: BoundedDict[str, None] = BoundedDict(max_removed_uids)
        """The pods that left their node, the latest last."""
        self._budgets: _Index[str, DisruptionBudget] = _Index()
        self._node_infos: dict[str, NodeInfo] = {}
        self._groups: dict[GangKey, GangInfo] = {}
        self._budget_lists: dict[str, tuple[DisruptionBudget, ...]] = {}
        self._changed_nodes: set[str] = set()
        self._changed_groups: set[GangKey] = set()
        self._changed_budgets: set[str] = set()
        """By namespace; an event causes no other work."""

    def add_pod(self, pod: ScheduledPod) -> None:
        """Add a pod that runs on a node."""
        self._removed_uids.pop(pod.uid, None)
        self._pods_by_node.put(pod.node, pod.uid, pod)
        self._changed_nodes.add(pod.node)
        if pod.gang is not None:
            self._pods_by_gang.put(pod.gang, pod.uid, pod)
            self._gang_by_pod_uid[pod.uid] = pod.gang
            self._changed_groups.add(pod.gang)

    def remove_pod(self, pod: ScheduledPod) -> None:
        """Remove a pod that was added with `add_pod`."""
        self._pods_by_node.remove(pod.node, pod.uid)
        self._changed_nodes.add(pod.node)
        if pod.gang is not None:
            self._pods_by_gang.remove(pod.gang, pod.uid)
            self._gang_by_pod_uid.pop(pod.uid, None)
            self._changed_groups.add(pod.gang)
        self._removed_uids[pod.uid] = None

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
        """Remove a pod that was added with `add_pending_pod`."""
        uid = preemptor.demand.uid
        self._pending.pop(uid, None)
        if preemptor.nominated_node is not None:
            self._nominated_by_node.remove(preemptor.nominated_node, uid)
            self._changed_nodes.add(preemptor.nominated_node)
        if preemptor.gang is not None:
            self._pending_by_gang.remove(preemptor.gang, uid)

    def put_node(self, node_info: NodeInfo) -> None:
        """Add a node or its new state; its pods stay."""
        self._nodes[node_info.name] = node_info
        self._changed_nodes.add(node_info.name)

    def remove_node(self, name: str) -> None:
        """Remove a node."""
        self._nodes.pop(name, None)
        self._changed_nodes.add(name)

    def put_budget(self, name: str, budget: DisruptionBudget) -> None:
        """Add a budget or its new state."""
        self._budgets.put(budget.namespace, name, budget)
        self._changed_budgets.add(budget.namespace)

    def remove_budget(self, key: Key) -> None:
        """Remove a budget."""
        self._budgets.remove(*key)
        self._changed_budgets.add(key[0])

    def has_seen(self, node: str, uids: Iterable[str]) -> bool:
        """True where each of these pods is on that node, in a gang with one that is, or has left.

        A pod that has left is known: the scheduler is behind, not this cache. Without this, a node
        whose last victim of a gang has just left would be passed over, and a second gang would be
        evicted on another node. A native gang that is evicted as a unit is proposed with its pods
        on all nodes (kube-scheduler 1.37, `getCrossNodesVictims`).
        """
        if node not in self._nodes:
            return False
        on_node = self._pods_by_node.get(node)
        gangs_elsewhere: set[GangKey] = set()
        # One lookup for each uid, and none after the first unknown one. Without this, a call that
        # names a million uids would take seconds for each Job on the node.
        for uid in uids:
            if uid in on_node or uid in self._removed_uids:
                continue
            gang = self._gang_by_pod_uid.get(uid)
            if gang is None:
                return False
            gangs_elsewhere.add(gang)
        return not gangs_elsewhere or gangs_elsewhere <= {pod.gang for pod in on_node.values()}

    def preemptor(self, uid: str) -> Preemptor | None:
        """Return a pod that waits, with the rest of its gang; `None` if no such pod waits."""
        preemptor = self._pending.get(uid)
        if preemptor is None or preemptor.gang is None:
            return preemptor
        pending = self._pending_by_gang.get(preemptor.gang)
        placed = self._pods_by_gang.get(preemptor.gang)
        return snapshot_builder.with_gang(preemptor, pending.values(), placed.values())

    def snapshot(self, now: datetime, settings: PolicySettings) -> Snapshot:
        """Return all nodes, gangs and budgets, brought up to date where something changed."""
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
        node = self._nodes.get(name)
        if node is None:
            self._node_infos.pop(name, None)
            return
        nominated = tuple(
            preemptor.demand for preemptor in self._nominated_by_node.get(name).values()
        )
        self._node_infos[name] = replace(
            node, pods=tuple(self._pods_by_node.get(name).values()), nominated_pods=nominated
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

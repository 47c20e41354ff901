"""The pods on each node and what is free there, kept up to date by two watches.

A change costs the work for the nodes that it concerns, and a snapshot a copy of the list of nodes.
A snapshot never changes afterwards, so that a decision can run in a thread.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, TypeVar

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.gangs.kinds import FreeNode
from reprieve_policy.preemption.selection.snapshot import (
    GangInfo,
    GangKey,
    NodeInfo,
    PodDemand,
    Preemptor,
    ScheduledPod,
    Snapshot,
)
from reprieve_runtime.client.reflector import Key

K = TypeVar("K")
V = TypeVar("V")


class PendingPod(NamedTuple):
    """A pod that waits for a node."""

    preemptor: Preemptor
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class RoomSnapshot:
    """The nodes at one moment."""

    snapshot: Snapshot
    free_nodes: Collection[FreeNode]


class RoomStore:
    """All nodes and pods that were observed last."""

    def __init__(self) -> None:
        self.changes = 0
        """How often room may have become free; pods that take room do not count."""
        self._pods: dict[Key, ScheduledPod | PendingPod] = {}
        self._node_by_uid: dict[str, str] = {}
        self._nodes: dict[str, NodeInfo] = {}
        self._on_node: dict[str, dict[str, ScheduledPod]] = {}
        self._nominated: dict[str, dict[str, PodDemand]] = {}
        self._gangs: dict[GangKey, dict[str, ScheduledPod]] = {}
        self._pending_gang_pods: dict[GangKey, dict[str, PendingPod]] = {}
        self._gang_infos: dict[GangKey, GangInfo] = {}
        self._free_nodes: dict[str, FreeNode] = {}
        self._changed_nodes: set[str] = set()
        self._changed_gangs: set[GangKey] = set()

    def put_node(self, node_info: NodeInfo) -> None:
        """Add a node or its new state; its pods stay."""
        # Most updates of a node are reports of its kubelet, which change nothing that is kept.
        if self._nodes.get(node_info.name) != node_info:
            self._nodes[node_info.name] = node_info
            self._changed_nodes.add(node_info.name)
            self.changes += 1

    def remove_node(self, key: Key) -> None:
        """Remove a node."""
        self._nodes.pop(key[1], None)
        self._changed_nodes.add(key[1])

    def put_pod(self, key: Key, pod: ScheduledPod | PendingPod | None) -> None:
        """Add a pod or its new state; `None`: it takes no room, and asks for none."""
        if pod is not None and self._pods.get(key) == pod:
            return
        self.remove_pod(key)
        if pod is None:
            return
        self._pods[key] = pod
        if isinstance(pod, ScheduledPod):
            self._node_by_uid[pod.uid] = pod.node
            _put(self._on_node, pod.node, pod.uid, pod)
            self._changed_nodes.add(pod.node)
            if pod.gang is not None:
                _put(self._gangs, pod.gang, pod.uid, pod)
                self._changed_gangs.add(pod.gang)
            return
        demand, node = pod.preemptor.demand, pod.preemptor.nominated_node
        if node is not None:
            _put(self._nominated, node, demand.uid, demand)
            self._changed_nodes.add(node)
        if pod.preemptor.gang is not None and not pod.preemptor.is_gated:
            _put(self._pending_gang_pods, pod.preemptor.gang, demand.uid, pod)

    def remove_pod(self, key: Key) -> None:
        """Remove a pod."""
        pod = self._pods.pop(key, None)
        if isinstance(pod, ScheduledPod):
            self.changes += 1
            self._node_by_uid.pop(pod.uid, None)
            _pop(self._on_node, pod.node, pod.uid)
            self._changed_nodes.add(pod.node)
            if pod.gang is not None:
                _pop(self._gangs, pod.gang, pod.uid)
                self._changed_gangs.add(pod.gang)
        elif pod is not None:
            node, uid = pod.preemptor.nominated_node, pod.preemptor.demand.uid
            if node is not None:
                self.changes += 1
                _pop(self._nominated, node, uid)
                self._changed_nodes.add(node)
            if pod.preemptor.gang is not None:
                _pop(self._pending_gang_pods, pod.preemptor.gang, uid)

    def is_on_node(self, uid: str) -> bool:
        """True for a pod that the watch of all pods has seen on its node."""
        return uid in self._node_by_uid

    def unplaced_gangs(
        self, labelled: Collection[str], oldest: datetime
    ) -> Iterable[tuple[str, Sequence[PodDemand]]]:
        """Yield what the scheduler has to place for gangs that no gate held, with the Namespace.

        They were created while no webhook or no operator was there. `labelled`: the uids of the
        pods that the gate knows of. Pods created before `oldest` are waited for no longer.
        """
        for key, pods in self._pending_gang_pods.items():
            waiting = [
                pod.preemptor
                for uid, pod in pods.items()
                if uid not in labelled and pod.created_at is not None and pod.created_at >= oldest
            ]
            minimum = max((pod.gang_minimum for pod in waiting), default=0)
            if minimum > len(self._gangs.get(key, ())):
                yield key.namespace, tuple(pod.demand for pod in waiting)

    def snapshot(
        self, settings: PolicySettings, now: datetime, unseen: Iterable[ScheduledPod] = ()
    ) -> RoomSnapshot:
        """Return all nodes as they are now.

        `unseen`: pods on nodes that the watch of all pods may not have seen yet.
        """
        self._update()
        free_nodes = dict(self._free_nodes)
        for pod in unseen:
            node = free_nodes.get(pod.node)
            if node is not None and not self.is_on_node(pod.uid):
                free_nodes[pod.node] = FreeNode(replace(node.info, pods=(*node.info.pods, pod)))
        node_infos = {name: node.info for name, node in free_nodes.items()}
        snapshot = Snapshot(
            now=now, nodes=node_infos, gangs=dict(self._gang_infos), settings=settings
        )
        return RoomSnapshot(snapshot, free_nodes.values())

    def _update(self) -> None:
        for name in self._changed_nodes:
            self._free_nodes.pop(name, None)
            if name in self._nodes:
                pods, nominated = self._on_node.get(name, {}), self._nominated.get(name, {})
                info = replace(
                    self._nodes[name],
                    pods=tuple(pods.values()),
                    nominated_pods=tuple(nominated.values()),
                )
                self._free_nodes[name] = FreeNode(info)
        for key in self._changed_gangs:
            self._gang_infos.pop(key, None)
            if key in self._gangs:
                members = self._gangs[key].values()
                self._gang_infos[key] = snapshot_builder.gang_info_of(key, members)
        self._changed_nodes.clear()
        self._changed_gangs.clear()


def _put(groups: dict[K, dict[str, V]], key: K, uid: str, value: V) -> None:
    groups.setdefault(key, {})[uid] = value


def _pop(groups: dict[K, dict[str, V]], key: K, uid: str) -> None:
    same = groups.get(key, {})
    same.pop(uid, None)
    if not same:
        groups.pop(key, None)

"""A fixed cluster view for tests of the extender: no watch, no API server."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from reprieve_policy.kube.values.quantity import NANOS
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import (
    NodeInfo,
    PodDemand,
    Preemptor,
    ScheduledPod,
    Snapshot,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
FULL = {"cpu": 8 * NANOS, "pods": 110 * NANOS}


def a_scheduled_pod(
    uid: str, node: str, *, cpu: int = 8, priority: int = 0, **fields: Any
) -> ScheduledPod:
    """Return a pod on a node."""
    amounts = {"cpu": cpu * NANOS}
    name = f"pod-{uid}"
    return ScheduledPod(
        uid=uid,
        name=name,
        node=node,
        priority=priority,
        preemption_priority=priority,
        amounts=amounts,
        **fields,
    )


def a_preemptor(uid: str = "p", *, cpu: int = 8, priority: int = 1000, **fields: Any) -> Preemptor:
    """Return a pod that waits for room on a node."""
    demand = PodDemand(uid=uid, priority=priority, amounts={"cpu": cpu * NANOS})
    return Preemptor(demand=demand, namespace="default", name=f"pod-{uid}", **fields)


@dataclass
class FixedClusterView:
    """A `ClusterView` of these pods, on nodes of 8 CPUs."""

    scheduled_pods: list[ScheduledPod] = field(default_factory=list)
    preemptors: list[Preemptor] = field(default_factory=lambda: [a_preemptor()])
    is_stale: bool = False
    is_up_to_date: bool = True
    operator_is_live: bool = True
    failure: Exception | None = None
    assumed: list[tuple[str, str, list[str]]] = field(default_factory=list)
    """The assumed preemptions: the preemptor, its node, and the victims."""
    removed: frozenset[str] = frozenset()
    """The uids of pods whose removal a watch has seen."""
    snapshots_taken: int = 0
    """How many snapshots were taken."""
    lookups: int = 0
    """How often `find_unseen` was called."""
    lookups_until_seen: int = 0
    """So many lookups of the preemptor return `None`, as if the watch had not seen it yet."""
    gang_lookups: int = 0
    """How often a preemptor was looked up with its gang."""

    def pending_pod(self, uid: str) -> Preemptor | None:
        self.lookups_until_seen -= 1
        return self._find(uid) if self.lookups_until_seen < 0 else None

    def preemptor(self, uid: str) -> Preemptor | None:
        self.gang_lookups += 1
        return self._find(uid)

    def _find(self, uid: str) -> Preemptor | None:
        return next((found for found in self.preemptors if found.demand.uid == uid), None)

    def find_unseen(self, node: str, uids: Iterable[str]) -> str | None:
        self.lookups += 1
        seen = {*self.removed, *(pod.uid for pod in self.scheduled_pods if pod.node == node)}
        return next((uid for uid in uids if uid not in seen), None)

    def assume(self, preemptor: Preemptor, node: str, victims: Iterable[ScheduledPod]) -> None:
        self.assumed.append((preemptor.name, node, [victim.uid for victim in victims]))

    def snapshot(self) -> Snapshot:
        if self.failure is not None:
            raise self.failure
        self.snapshots_taken += 1
        node_infos = {
            node: self._node_info(node)
            for node in sorted({pod.node for pod in self.scheduled_pods})
        }
        return Snapshot(
            now=NOW,
            nodes=node_infos,
            gangs=snapshot_builder.gang_infos_of(self.scheduled_pods),
            operator_is_live=self.operator_is_live,
        )

    def observed_snapshot(self) -> Snapshot:
        return self.snapshot()

    def _node_info(self, node: str) -> NodeInfo:
        here = tuple(pod for pod in self.scheduled_pods if pod.node == node)
        return NodeInfo(name=node, allocatable=FULL, pods=here)


def an_extender_call(
    proposed: dict[str, Iterable[str]], uid: str = "p", *, whole: bool = False
) -> bytes:
    """Return a call of kube-scheduler; with `whole`, it contains pods instead of their uids."""
    pod = {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": []}, "status": {}}
    by_node = {
        node: {"Pods": [_pod(one, whole=whole) for one in uids]} for node, uids in proposed.items()
    }
    names = ("NodeNameToVictims", "NodeNameToMetaVictims")
    maps = dict(zip(names, (by_node, None) if whole else (None, by_node), strict=True))
    return json.dumps({"Pod": pod, **maps}).encode()


def _pod(uid: str, *, whole: bool) -> Any:
    return {"metadata": {"name": f"pod-{uid}", "uid": uid}, "spec": {}} if whole else {"UID": uid}

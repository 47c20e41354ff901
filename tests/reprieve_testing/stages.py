"""What an extender's watches know, as a test has it: no watch, no API server."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from reprieve_policy.kube.quantity import NANOS
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import Guest, Preemptor, Room, Scene, Tenant

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
FULL = {"cpu": 8 * NANOS, "pods": 110 * NANOS}


def a_tenant(uid: str, node: str, *, cpu: int = 8, priority: int = 0, **fields: Any) -> Tenant:
    """Return a pod on a node."""
    amounts = {"cpu": cpu * NANOS}
    name = f"pod-{uid}"
    return Tenant(uid=uid, name=name, node=node, priority=priority, defence=priority, amounts=amounts, **fields)


def a_preemptor(uid: str = "p", *, cpu: int = 8, priority: int = 1000, **fields: Any) -> Preemptor:
    """Return a pod that waits for room."""
    guest = Guest(uid=uid, priority=priority, amounts={"cpu": cpu * NANOS})
    return Preemptor(guest=guest, namespace="default", name=f"pod-{uid}", **fields)


@dataclass
class FixedStage:
    """A `Stage` of these pods, on nodes of 8 CPUs."""

    tenants: list[Tenant] = field(default_factory=list)
    preemptors: list[Preemptor] = field(default_factory=lambda: [a_preemptor()])
    is_behind: bool = False
    is_settled: bool = True
    failure: Exception | None = None
    expected: list[tuple[str, str, list[str]]] = field(default_factory=list)
    """What a scheduler was told: the preemptor, its node, and who goes."""
    left: frozenset[str] = frozenset()
    """Whom a watch has seen go."""
    scenes: int = 0
    """How many were made."""
    looks: int = 0
    """How often it was asked what is known of a node."""
    looks_until_known: int = 0
    """So often a watch is asked in vain for the preemptor."""

    def preemptor(self, uid: str) -> Preemptor | None:
        self.looks_until_known -= 1
        if self.looks_until_known >= 0:
            return None
        return next((found for found in self.preemptors if found.guest.uid == uid), None)

    def knows(self, node: str, uids: Iterable[str]) -> bool:
        self.looks += 1
        return set(uids) <= {*self.left, *(tenant.uid for tenant in self.tenants if tenant.node == node)}

    def expect(self, preemptor: Preemptor, node: str, victims: Iterable[Tenant]) -> None:
        self.expected.append((preemptor.name, node, [victim.uid for victim in victims]))

    def scene(self) -> Scene:
        if self.failure is not None:
            raise self.failure
        self.scenes += 1
        rooms = {node: self._room(node) for node in sorted({tenant.node for tenant in self.tenants})}
        return Scene(now=NOW, rooms=rooms, groups=snapshot_builder.groups_of(self.tenants))

    def scene_as_seen(self) -> Scene:
        return self.scene()

    def _room(self, node: str) -> Room:
        here = tuple(tenant for tenant in self.tenants if tenant.node == node)
        return Room(name=node, allocatable=FULL, tenants=here)


def a_call(proposed: dict[str, Iterable[str]], uid: str = "p", *, whole: bool = False) -> bytes:
    """Return a call of kube-scheduler; `whole`: with pods instead of their uids."""
    pod = {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": []}, "status": {}}
    by_node = {node: {"Pods": [_pod(one, whole=whole) for one in uids]} for node, uids in proposed.items()}
    names = ("NodeNameToVictims", "NodeNameToMetaVictims")
    said = dict(zip(names, (by_node, None) if whole else (None, by_node), strict=True))
    return json.dumps({"Pod": pod, **said}).encode()


def _pod(uid: str, *, whole: bool) -> Any:
    return {"metadata": {"name": f"pod-{uid}", "uid": uid}, "spec": {}} if whole else {"UID": uid}

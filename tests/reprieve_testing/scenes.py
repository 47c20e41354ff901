"""Nodes and who is on them, as a test says them: `a_scene(a_room("n").with_tenants(a_tenant("low")))`.

Plain functions over the frozen values of `choosing.scene`: a default says nothing that a test would want to say. Amounts
are whole CPUs unless a test names them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.kube.quantity import NANOS
from reprieve_policy.preemption.cost import CostInputs, WorkProgress
from reprieve_policy.preemption.selection.snapshot import (
    AntiAffinity,
    DisruptionBudget,
    GangInfo,
    GangKey,
    NodeInfo,
    PodDemand,
    Preemptor,
    Requirement,
    ScheduledPod,
    Snapshot,
)

from .builders import NOW, after

ALL_PODS = (AntiAffinity(None, ()),)
"""Whom a tenant keeps away that wants to be alone."""


def amounts(**units: float) -> dict[str, int]:
    """Return amounts in nanos; `gpu` is NVIDIA's."""
    names = {"gpu": "nvidia.com/gpu"}
    return {names.get(name, name): int(amount * NANOS) for name, amount in units.items()}


def a_pod_demand(
    uid: str = "preemptor", *, priority: int = 1000, cpu: float = 1, **fields: object
) -> PodDemand:
    """Return a pod that wants room."""
    return replace(PodDemand(uid=uid, priority=priority, amounts=amounts(cpu=cpu)), **fields)  # type: ignore[arg-type]  # named by tests


def a_preemptor(*, priority: int = 1000, cpu: float = 1, **fields: object) -> Preemptor:
    """Return a pending pod of namespace `team` that asks for so many CPUs."""
    guest = a_pod_demand(priority=priority, cpu=cpu)
    return replace(Preemptor(demand=guest, namespace="team", name="preemptor"), **fields)  # type: ignore[arg-type]  # named by tests


def a_scheduled_pod(
    name: str, *, priority: int = 0, cpu: float = 1, started: float = -3600, **fields: object
) -> ScheduledPod:
    """Return a pod that runs since `started` seconds after `NOW`; its uid is its name. One that goes was told to, now."""
    if fields.get("is_leaving"):
        fields = {"release_expected_at": NOW, "notified": True, **fields}
    tenant = ScheduledPod(
        uid=name,
        name=name,
        namespace="team",
        priority=priority,
        preemption_priority=priority,
        amounts=amounts(cpu=cpu),
        progress=WorkProgress(started_at=after(started)),
        cost_inputs=CostInputs(devices=cpu),
    )
    return replace(tenant, **fields)  # type: ignore[arg-type]  # named by tests


def a_node_info(
    name: str, *tenants: ScheduledPod, cpu: float = 4, pods: int = 110, **fields: object
) -> NodeInfo:
    """Return a node of so many CPUs, with its tenants."""
    here = tuple(replace(tenant, node=name) for tenant in tenants)
    room = NodeInfo(name=name, allocatable=amounts(cpu=cpu, pods=pods), pods=here)
    return replace(room, **fields)  # type: ignore[arg-type]  # named by tests


def a_budget(app: str, *, allowed: int = 0, disrupted: tuple[str, ...] = ()) -> DisruptionBudget:
    """Return a PodDisruptionBudget of the pods of namespace `team` that are labelled `app`."""
    requirements = (Requirement("app", "In", (app,)),)
    return DisruptionBudget(
        namespace="team",
        requirements=requirements,
        disruptions_allowed=allowed,
        disrupted_pods=frozenset(disrupted),
    )


@dataclass(frozen=True)
class SnapshotFixture:
    """A cluster at `NOW`."""

    snapshot: Snapshot

    def build(self) -> Snapshot:
        return self.snapshot

    def with_budgets(self, *budgets: DisruptionBudget) -> Self:
        return replace(self, snapshot=replace(self.snapshot, budgets={"team": budgets}))

    def with_settings(self, settings: PolicySettings) -> Self:
        return replace(self, snapshot=replace(self.snapshot, settings=settings))

    def with_gang(
        self, name: str, mode: DisruptionMode = DisruptionMode.ALL, min_available: int = 0
    ) -> Self:
        """Say how the gang goes whose pods name it."""
        key = GangKey("team", name)
        members = tuple(
            tenant
            for room in self.snapshot.nodes.values()
            for tenant in room.pods
            if tenant.gang == key
        )
        group = GangInfo(
            key=key, disruption_mode=mode, min_available=min_available, members=members
        )
        return replace(
            self, snapshot=replace(self.snapshot, gangs={**self.snapshot.gangs, key: group})
        )


def a_snapshot(*rooms: NodeInfo) -> SnapshotFixture:
    """Return a cluster of these nodes, with the default policy."""
    by_name: Mapping[str, NodeInfo] = {room.name: room for room in rooms}
    return SnapshotFixture(Snapshot(now=NOW, nodes=by_name))

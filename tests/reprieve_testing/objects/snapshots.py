"""Nodes and their pods for tests: `a_snapshot(a_node_info("n", a_scheduled_pod("low"))).build()`.

Plain functions over the frozen values of `preemption.selection.snapshot`: a default sets nothing
that a test would want to set itself. Amounts are whole CPUs unless a test names them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.kube.values.quantity import NANOS
from reprieve_policy.preemption.cost import CostInputs, WorkProgress
from reprieve_policy.preemption.loss import LossInputs
from reprieve_policy.preemption.selection.snapshot import (
    AntiAffinity,
    DisruptionBudget,
    GangInfo,
    GangKey,
    NodeInfo,
    PodDemand,
    Preemptor,
    Release,
    Requirement,
    ScheduledPod,
    Snapshot,
)

from .builders import NOW, after

ALL_PODS = (AntiAffinity(frozenset(), (), namespace_requirements=()),)
"""The anti-affinity of a pod that wants a node of its own."""


def amounts(**units: float) -> dict[str, int]:
    """Return amounts in nanos; `gpu` is NVIDIA's."""
    names = {"gpu": "nvidia.com/gpu"}
    return {names.get(name, name): int(amount * NANOS) for name, amount in units.items()}


def a_pod_demand(
    uid: str = "preemptor", *, priority: int = 1000, cpu: float = 1, **fields: object
) -> PodDemand:
    """Return a pod that requests resources."""
    return replace(PodDemand(uid=uid, priority=priority, amounts=amounts(cpu=cpu)), **fields)  # type: ignore[arg-type]  # named by tests


def a_preemptor(*, priority: int = 1000, cpu: float = 1, **fields: object) -> Preemptor:
    """Return a pending pod of namespace `team` that requests this many CPUs."""
    demand = a_pod_demand(priority=priority, cpu=cpu)
    return replace(Preemptor(demand=demand, namespace="team", name="preemptor"), **fields)  # type: ignore[arg-type]  # named by tests


def a_scheduled_pod(
    name: str, *, priority: int = 0, cpu: float = 1, started: float = -3600, **fields: object
) -> ScheduledPod:
    """Return a pod that has run since `started` seconds after `NOW`; its uid is its name.

    The fields of its `Release` are given beside its own; without more, a leaving pod was notified,
    and its release is expected at `NOW`.
    """
    pod = ScheduledPod(
        uid=name,
        name=name,
        namespace="team",
        priority=priority,
        preemption_priority=priority,
        amounts=amounts(cpu=cpu),
        progress=WorkProgress(started_at=after(started)),
        cost_inputs=CostInputs(devices=cpu),
        loss_inputs=LossInputs(devices=cpu),
    )
    return with_fields(pod, **fields)


def with_fields(pod: ScheduledPod, **fields: object) -> ScheduledPod:
    """Return the pod with these fields, some of them those of its release."""
    own = {name: value for name, value in fields.items() if name not in _RELEASE_FIELDS}
    if fields.get("is_leaving"):
        values = {"release_expected_at": NOW, "notified": True, **fields}
        names = _RELEASE_FIELDS.items()
        own["release"] = Release(
            **{field: values[name] for name, field in names if field and name in values}  # type: ignore[arg-type]  # named by tests
        )
    return replace(pod, **own)  # type: ignore[arg-type]  # named by tests


_RELEASE_FIELDS = {
    "is_leaving": "",
    "release_expected_at": "expected_at",
    "notified": "notified",
    "is_being_deleted": "is_being_deleted",
    "is_held_by_budget": "is_held_by_budget",
    "preemptor_uid": "preemptor_uid",
    "leaves_for_none": "leaves_for_none",
}


def a_node_info(
    name: str, *scheduled: ScheduledPod, cpu: float = 4, pods: int = 110, **fields: object
) -> NodeInfo:
    """Return a node of this many CPUs, with its pods."""
    here = tuple(replace(pod, node=name) for pod in scheduled)
    node_info = NodeInfo(name=name, allocatable=amounts(cpu=cpu, pods=pods), pods=here)
    return replace(node_info, **fields)  # type: ignore[arg-type]  # named by tests


def a_budget(app: str, *, allowed: int = 0, disrupted: tuple[str, ...] = ()) -> DisruptionBudget:
    """Return a PodDisruptionBudget of the pods of namespace `team` with the label `app`."""
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
        """Set how the gang that these pods name is disrupted."""
        key = GangKey("team", name)
        members = tuple(
            pod
            for node_info in self.snapshot.nodes.values()
            for pod in node_info.pods
            if pod.gang == key
        )
        group = GangInfo(
            key=key, disruption_mode=mode, min_available=min_available, members=members
        )
        return replace(
            self, snapshot=replace(self.snapshot, gangs={**self.snapshot.gangs, key: group})
        )


def a_snapshot(*node_infos: NodeInfo) -> SnapshotFixture:
    """Return a cluster of these nodes, with the default policy."""
    by_name: Mapping[str, NodeInfo] = {node_info.name: node_info for node_info in node_infos}
    return SnapshotFixture(Snapshot(now=NOW, nodes=by_name))

"""A cluster as victims are chosen in it: objects are taken in, from wherever they come, and a scene comes out. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from reprieve_cli.cluster.cluster_policy import ClusterPolicy
from reprieve_policy.config.walltime import Job, Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import pod_group
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.keys import QUOTA_NAME
from reprieve_policy.kube import quota
from reprieve_policy.kube.objects import (
    ObjectMeta,
    Resource,
    Spec,
    controller_of,
    labels_of,
    pod_group_name_of,
)
from reprieve_policy.kube.quota import Quotas
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.api_objects import Node, Pod, PodDisruptionBudget
from reprieve_policy.preemption.selection.snapshot import (
    DisruptionBudget,
    Preemptor,
    ScheduledPod,
    Snapshot,
)
from reprieve_runtime.client.paths import object_path

_Name = tuple[str, str]
"""Namespace and name."""

_REPLICAS_HASH = "pod-template-hash"
"""A label of a ReplicaSet that a Deployment made, and the end of its name."""


class WorkloadReference(NamedTuple):
    """A workload that makes pods."""

    namespace: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPodGroup(pod_group.PodGroup):
    """A native PodGroup with its name."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class SnapshotBuilder:
    """Takes in what was read. Pods come last: what they are judged by has to be known."""

    def __init__(self, known: ClusterPolicy, now: datetime) -> None:
        self.policy = known
        self.now = now
        self.missing_references: dict[str, str] = {}
        """By kind, the first object that a pod names, and that was not taken."""
        self._quotas = Quotas()
        self._facts: dict[str, Facts] = {}
        self._pod_groups: dict[_Name, PodGroupInfo] = {}
        self._jobs: dict[_Name, Walltime] = {}
        self._nodes: dict[str, Node] = {}
        self._budgets: dict[_Name, DisruptionBudget] = {}
        self._scheduled_pods: dict[_Name, ScheduledPod] = {}
        self._pending_pods: dict[_Name, Preemptor] = {}
        """Pods that have no room."""
        self._workloads: dict[_Name, WorkloadReference] = {}
        """Of pods that have one."""

    def add_policy(self, resource: Resource) -> None:
        """Take a Namespace, a PriorityClass, or the ConfigMap with the policy."""
        self.policy.add(resource)

    def add_quota(self, found: Resource) -> None:
        """Take an ElasticQuota. How much of it is used decides nothing here."""
        spec = found.spec or Spec()
        self._quotas.put(quota.read_leniently(found.metadata, spec.min or {}, spec.max or {}, {}))

    def add_pod_group(self, group: NamedPodGroup) -> None:
        """Take a native PodGroup."""
        self._pod_groups[_name(group.metadata)] = pod_group.read(group)

    def add_job(self, job: Job) -> None:
        """Take a Job."""
        if job.walltime is not None:
            self._jobs[_name(job.metadata)] = job.walltime

    def add_node(self, node: Node) -> None:
        """Take a node."""
        self._nodes[node.metadata.name or ""] = node

    def add_budget(self, found: PodDisruptionBudget) -> None:
        """Take a PodDisruptionBudget."""
        self._budgets[_name(found.metadata)] = snapshot_builder.disruption_budget_of(found)

    def add_pod(self, pod: Pod) -> None:
        """Take a pod that has room, or waits for it; one that has ended is nobody's business.

        Of two with one name the last is what became of it: dumps may overlap.
        """
        name = _name(pod.metadata)
        self._scheduled_pods.pop(name, None)
        self._pending_pods.pop(name, None)
        self._workloads.pop(name, None)
        if not pod.metadata.uid:
            pod = replace(pod, metadata=replace(pod.metadata, uid="/".join(name)))
        if pod.occupies_node:
            self._scheduled_pods[name] = self.scheduled_pod_of(pod)
        elif pod.is_pending:
            self._pending_pods[name] = self.preemptor_of(pod)
        maker = _workload_of(pod.metadata)
        if maker is not None:
            self._workloads[name] = maker

    def scheduled_pod_of(self, pod: Pod) -> ScheduledPod:
        """Return a pod that has room, as it may be a victim."""
        owner = controller_of(pod.metadata)
        is_of_job = owner is not None and owner.kind == "Job"
        job = (
            self._jobs.get((pod.metadata.namespace or "", owner.name))
            if owner is not None and is_of_job
            else None
        )
        return snapshot_builder.scheduled_pod_of(
            pod, self._facts_of(pod), native=self.pod_group_of(pod), job=job, now=self.now
        )

    def preemptor_of(self, pod: Pod) -> Preemptor:
        """Return a pod that wants room, without its gang."""
        return snapshot_builder.preemptor_of(
            pod, self._facts_of(pod), native=self.pod_group_of(pod)
        )

    def find_pending_pod(self, metadata: ObjectMeta) -> Preemptor | None:
        """Return the pod of that name, where it waits."""
        return self._pending_pods.get(_name(metadata))

    def take_pending_pods(self, workload: WorkloadReference) -> tuple[int, Sequence[Preemptor]]:
        """Return how many of a workload's pods have room and stay, and those that wait, which wait no more as they are."""
        names = [name for name, its in self._workloads.items() if its == workload]
        staying = sum(
            name in self._scheduled_pods and not self._scheduled_pods[name].is_leaving
            for name in names
        )
        waiting = [self._pending_pods.pop(name) for name in names if name in self._pending_pods]
        # One that is to have room already asks for none.
        return staying, sorted(
            waiting, key=lambda found: (found.nominated_node is not None, found.name)
        )

    def with_gang(self, preemptor: Preemptor, gang_pods: Sequence[Preemptor]) -> Preemptor:
        """Return the preemptor with the rest of its gang: `mates`, and those that wait in the cluster."""
        named = {mate.demand.uid for mate in gang_pods}
        waiting = [
            *gang_pods,
            *(found for found in self._pending_pods.values() if found.demand.uid not in named),
        ]
        placed = [
            tenant for tenant in self._scheduled_pods.values() if tenant.gang == preemptor.gang
        ]
        return snapshot_builder.with_gang(preemptor, waiting, placed)

    def pod_group_of(self, pod: Pod) -> PodGroupInfo | None:
        """Return the PodGroup that a pod names, where it was taken."""
        group = pod_group_name_of(pod.spec.schedulingGroup)
        if not group:
            return None
        namespace = pod.metadata.namespace or ""
        if (namespace, group) not in self._pod_groups:
            self.missing_references.setdefault("PodGroup", f"{namespace}/{group}")
        return self._pod_groups.get((namespace, group))

    def build(self) -> Snapshot:
        """Return the scene."""
        return snapshot_builder.snapshot_of(
            self._nodes.values(),
            self._scheduled_pods.values(),
            self._pending_pods.values(),
            self._budgets.values(),
            self.policy.settings,
            self.now,
        )

    def _facts_of(self, pod: Pod) -> Facts:
        namespace = pod.metadata.namespace or ""
        if namespace not in self._facts:
            self._facts[namespace] = self.policy.facts_in_force(namespace, self._quotas)
        facts, wanted = self._facts[namespace], pod.view.labels.get(QUOTA_NAME)
        found = facts.quotas.find(pod.view.labels, namespace) if wanted else None
        if wanted and (found is None or found.name != wanted):
            self.missing_references.setdefault("ElasticQuota", wanted)
        return facts


def _workload_of(metadata: ObjectMeta) -> WorkloadReference | None:
    owner = controller_of(metadata)
    if owner is None:
        return None
    replicas = labels_of(metadata).get(_REPLICAS_HASH)
    if owner.kind == "ReplicaSet" and replicas:
        return WorkloadReference(
            metadata.namespace or "", "Deployment", owner.name.removesuffix(f"-{replicas}")
        )
    return WorkloadReference(metadata.namespace or "", owner.kind, owner.name)


def _name(metadata: ObjectMeta) -> _Name:
    return metadata.namespace or "", metadata.name or ""


class ObjectKind(NamedTuple):
    """A kind of objects, and what is done with one."""

    group: str
    kind: str
    decode_as: type
    add: Callable[[SnapshotBuilder, Any], None]
    path: str = ""
    """Of all of them; empty where `cluster` has read them before."""


OBJECT_KINDS: tuple[ObjectKind, ...] = (
    ObjectKind("", "ConfigMap", Resource, SnapshotBuilder.add_policy),
    ObjectKind("", "Namespace", Resource, SnapshotBuilder.add_policy),
    ObjectKind("scheduling.k8s.io", "PriorityClass", Resource, SnapshotBuilder.add_policy),
    ObjectKind(
        "scheduling.sigs.k8s.io",
        "ElasticQuota",
        Resource,
        SnapshotBuilder.add_quota,
        object_path("elasticquotas"),
    ),
    ObjectKind(
        "scheduling.k8s.io",
        "PodGroup",
        NamedPodGroup,
        SnapshotBuilder.add_pod_group,
        object_path("podgroups"),
    ),
    ObjectKind("batch", "Job", Job, SnapshotBuilder.add_job, object_path("jobs")),
    ObjectKind("", "Node", Node, SnapshotBuilder.add_node, object_path("nodes")),
    ObjectKind(
        "policy",
        "PodDisruptionBudget",
        PodDisruptionBudget,
        SnapshotBuilder.add_budget,
        object_path("poddisruptionbudgets"),
    ),
    ObjectKind("", "Pod", Pod, SnapshotBuilder.add_pod, object_path("pods")),
)
"""In the order in which they must be known: a pod is judged once, by all the others."""

BY_GROUP_KIND: Mapping[tuple[str, str], ObjectKind] = {
    (role.group, role.kind): role for role in OBJECT_KINDS
}

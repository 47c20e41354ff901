"""Builds the snapshot in which victims are chosen, from the objects of a cluster. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from reprieve_cli.cluster.cluster_policy import ClusterPolicy
from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import pod_group
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.keys import QUOTA_NAME
from reprieve_policy.kube import kinds
from reprieve_policy.kube.jobs import Job, owning_job_of
from reprieve_policy.kube.limits import elastic_quotas
from reprieve_policy.kube.limits.disruption_budgets import PodDisruptionBudget
from reprieve_policy.kube.limits.elastic_quotas import ElasticQuota
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.nodes import Node
from reprieve_policy.kube.objects import (
    ObjectMeta,
    Resource,
    controller_of,
    group_of,
    labels_of,
    pod_group_name_of,
)
from reprieve_policy.kube.pod_groups import PodGroup
from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.quota.tally import quota_infos_of
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
"""A label of a Deployment's pods; its value is the end of their ReplicaSet's name."""


class WorkloadKey(NamedTuple):
    """A workload that makes pods."""

    namespace: str
    kind: str
    name: str


class SnapshotBuilder:
    """Collects objects and builds a snapshot. Pods must come last: they depend on the others."""

    def __init__(self, policy: ClusterPolicy, now: datetime) -> None:
        self.policy = policy
        self.now = now
        self.missing_references: dict[str, str] = {}
        """By kind, the first object that a pod names and that was not added."""
        self._quotas = Quotas()
        self._facts: dict[str, Facts] = {}
        self._pod_groups: dict[_Name, PodGroupInfo] = {}
        self._jobs: dict[_Name, Walltime] = {}
        self._nodes: dict[str, Node] = {}
        self._budgets: dict[_Name, DisruptionBudget] = {}
        self._scheduled_pods: dict[_Name, ScheduledPod] = {}
        self._pending_pods: dict[_Name, Preemptor] = {}
        """Pods that are not placed on a node."""
        self._workloads: dict[_Name, WorkloadKey] = {}
        """The workload of each pod that has one."""

    def add_policy(self, resource: Resource) -> None:
        """Add a Namespace, a PriorityClass, or the ConfigMap with the policy."""
        self.policy.add(resource)

    def add_quota(self, found: ElasticQuota) -> None:
        """Add an ElasticQuota."""
        self._quotas.put(elastic_quotas.read(found))

    def add_pod_group(self, group: PodGroup) -> None:
        """Add a native PodGroup."""
        self._pod_groups[_name(group.metadata)] = pod_group.read(group)

    def add_job(self, job: Job) -> None:
        """Add a Job."""
        bound = walltime.read(job)
        if bound is not None:
            self._jobs[_name(job.metadata)] = bound

    def add_node(self, node: Node) -> None:
        """Add a node."""
        self._nodes[node.metadata.name or ""] = node

    def add_budget(self, found: PodDisruptionBudget) -> None:
        """Add a PodDisruptionBudget."""
        self._budgets[_name(found.metadata)] = snapshot_builder.disruption_budget_of(found)

    def add_pod(self, pod: Pod) -> None:
        """Add a pod that is placed or pending; a pod that has ended only replaces its older state.

        Of two objects with one name the last counts: dumps may overlap.
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
        workload = _workload_of(pod.metadata)
        if workload is not None:
            self._workloads[name] = workload

    def scheduled_pod_of(self, pod: Pod) -> ScheduledPod:
        """Return a pod that is placed on a node, as a possible victim."""
        job = owning_job_of(pod.metadata)
        job_walltime = (
            None if job is None else self._jobs.get((pod.metadata.namespace or "", job.name))
        )
        return snapshot_builder.scheduled_pod_of(
            pod,
            self._facts_of(pod),
            native=self.pod_group_of(pod),
            job_walltime=job_walltime,
            now=self.now,
        )

    def preemptor_of(self, pod: Pod) -> Preemptor:
        """Return a pod that needs room, without its gang."""
        return snapshot_builder.preemptor_of(
            pod, self._facts_of(pod), native=self.pod_group_of(pod)
        )

    def find_pending_pod(self, metadata: ObjectMeta) -> Preemptor | None:
        """Return the pending pod of that name; `None` if there is none."""
        return self._pending_pods.get(_name(metadata))

    def take_pending_pods(self, workload: WorkloadKey) -> tuple[int, Sequence[Preemptor]]:
        """Return the number of a workload's placed pods that stay, and remove its pending pods."""
        names = [name for name, its in self._workloads.items() if its == workload]
        placed = sum(
            name in self._scheduled_pods and not self._scheduled_pods[name].is_leaving
            for name in names
        )
        pending = [self._pending_pods.pop(name) for name in names if name in self._pending_pods]
        # Pods with a nominated node come last: room is already held for them, and the first pod
        # becomes the preemptor.
        return placed, sorted(
            pending, key=lambda found: (found.nominated_node is not None, found.name)
        )

    def with_gang(self, preemptor: Preemptor, gang_pods: Sequence[Preemptor]) -> Preemptor:
        """Return the preemptor with the rest of its gang: `gang_pods` and the cluster's pods."""
        named = {pod.demand.uid for pod in gang_pods}
        pending = [
            *gang_pods,
            *(found for found in self._pending_pods.values() if found.demand.uid not in named),
        ]
        placed = [pod for pod in self._scheduled_pods.values() if pod.gang == preemptor.gang]
        return snapshot_builder.with_gang(preemptor, pending, placed)

    def pod_group_of(self, pod: Pod) -> PodGroupInfo | None:
        """Return the PodGroup that a pod names; `None` if it was not added."""
        group = pod_group_name_of(pod.spec.schedulingGroup)
        if not group:
            return None
        namespace = pod.metadata.namespace or ""
        if (namespace, group) not in self._pod_groups:
            self.missing_references.setdefault("PodGroup", f"{namespace}/{group}")
        return self._pod_groups.get((namespace, group))

    def build(self) -> Snapshot:
        """Return the snapshot."""
        pods, waiting = self._scheduled_pods.values(), self._pending_pods.values()
        snapshot = snapshot_builder.snapshot_of(
            self._nodes.values(),
            pods,
            waiting,
            self._budgets.values(),
            self.policy.settings,
            self.now,
        )
        quotas = self._quotas.current()
        quota_infos = quota_infos_of(quotas, pods, waiting)
        return replace(snapshot, quotas=quotas, quota_infos=quota_infos)

    def _facts_of(self, pod: Pod) -> Facts:
        namespace = pod.metadata.namespace or ""
        if namespace not in self._facts:
            self._facts[namespace] = self.policy.facts_in_force(namespace, self._quotas)
        facts, wanted = self._facts[namespace], pod.view.labels.get(QUOTA_NAME)
        found = facts.quotas.find(pod.view.labels, namespace) if wanted else None
        if wanted and (found is None or found.name != wanted):
            self.missing_references.setdefault("ElasticQuota", wanted)
        return facts


def _workload_of(metadata: ObjectMeta) -> WorkloadKey | None:
    owner = controller_of(metadata)
    if owner is None or not kinds.is_served_as(owner.kind, group_of(owner.apiVersion)):
        return None
    replicas = labels_of(metadata).get(_REPLICAS_HASH)
    if owner.kind == "ReplicaSet" and replicas:
        return WorkloadKey(
            metadata.namespace or "", "Deployment", owner.name.removesuffix(f"-{replicas}")
        )
    return WorkloadKey(metadata.namespace or "", owner.kind, owner.name)


def _name(metadata: ObjectMeta) -> _Name:
    return metadata.namespace or "", metadata.name or ""


class ObjectKind(NamedTuple):
    """A kind that the snapshot is built from, and how its objects are added."""

    group: str
    kind: str
    decode_as: type
    add: Callable[[SnapshotBuilder, Any], None]
    path: str = ""
    """The path of all objects; empty for kinds that `ClusterReader.read_policy` reads."""


OBJECT_KINDS: tuple[ObjectKind, ...] = (
    ObjectKind("", "ConfigMap", Resource, SnapshotBuilder.add_policy),
    ObjectKind("", "Namespace", Resource, SnapshotBuilder.add_policy),
    ObjectKind("scheduling.k8s.io", "PriorityClass", Resource, SnapshotBuilder.add_policy),
    ObjectKind(
        "scheduling.sigs.k8s.io",
        "ElasticQuota",
        ElasticQuota,
        SnapshotBuilder.add_quota,
        object_path("elasticquotas"),
    ),
    ObjectKind(
        "scheduling.k8s.io",
        "PodGroup",
        PodGroup,
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
"""In the order in which they must be added: a pod's facts depend on all other kinds."""

BY_GROUP_KIND: Mapping[tuple[str, str], ObjectKind] = {
    (object_kind.group, object_kind.kind): object_kind for object_kind in OBJECT_KINDS
}

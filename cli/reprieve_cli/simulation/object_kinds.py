"""Of which objects a scene is made: their kinds, where they are served, and in which order they are taken in."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from reprieve_policy.config.walltime import Job
from reprieve_policy.kube.objects import Resource
from reprieve_policy.preemption.selection.api_objects import Node, Pod, PodDisruptionBudget
from reprieve_runtime.client.paths import object_path

from .snapshot_builder import NamedPodGroup, SnapshotBuilder


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

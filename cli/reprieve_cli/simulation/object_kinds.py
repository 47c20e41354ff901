"""Of which objects a scene is made: their kinds, where they are served, and in which order they are taken in."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from reprieve_policy.config.walltime import Job
from reprieve_policy.kube.objects import Resource
from reprieve_policy.preemption.selection.api_objects import Node, Pod, PodDisruptionBudget
from reprieve_runtime.client.paths import object_path

from .snapshot_builder import PodGroup, Stage


class Role(NamedTuple):
    """A kind of objects, and what is done with one."""

    group: str
    kind: str
    decode_as: type
    take: Callable[[Stage, Any], None]
    path: str = ""
    """Of all of them; empty where `cluster` has read them before."""


ROLES: tuple[Role, ...] = (
    Role("", "ConfigMap", Resource, Stage.take_policy),
    Role("", "Namespace", Resource, Stage.take_policy),
    Role("scheduling.k8s.io", "PriorityClass", Resource, Stage.take_policy),
    Role("scheduling.sigs.k8s.io", "ElasticQuota", Resource, Stage.take_quota, object_path("elasticquotas")),
    Role("scheduling.k8s.io", "PodGroup", PodGroup, Stage.take_group, object_path("podgroups")),
    Role("batch", "Job", Job, Stage.take_job, object_path("jobs")),
    Role("", "Node", Node, Stage.take_node, object_path("nodes")),
    Role("policy", "PodDisruptionBudget", PodDisruptionBudget, Stage.take_budget, object_path("poddisruptionbudgets")),
    Role("", "Pod", Pod, Stage.take_pod, object_path("pods")),
)
"""In the order in which they must be known: a pod is judged once, by all the others."""

BY_KIND: Mapping[tuple[str, str], Role] = {(role.group, role.kind): role for role in ROLES}

"""The kinds that rules concern: their API groups and resources, and where their pod templates are.

One table for the webhooks, the manifests, `reprieve check` and `reprieve audit`. The kinds that an
admin lists in `templateKinds` are not here.
"""

from collections.abc import Mapping
from typing import NamedTuple


class ServedKind(NamedTuple):
    """One kind of the API."""

    kind: str
    group: str
    versions: tuple[str, ...]
    """The preferred version first."""
    resource: str
    template: str | None = None
    """The prefix of its pod template. `""`: it is a pod itself; `None`: it makes no pods."""
    is_namespaced: bool = True
    other_group: str | None = None
    """Group in which another project serves the same kind in the same form. Objects of it are
    reviewed, but neither watched nor audited."""


_NATIVE_GROUPS = ("v1beta1", "v1alpha3")
"""Versions of `scheduling.k8s.io` Workload and PodGroup in 1.37, served only in clusters whose
admin has enabled them."""

_TABLE = (
    ServedKind("Pod", "", ("v1",), "pods", ""),
    ServedKind("ReplicationController", "", ("v1",), "replicationcontrollers", "spec.template."),
    ServedKind("Deployment", "apps", ("v1",), "deployments", "spec.template."),
    ServedKind("StatefulSet", "apps", ("v1",), "statefulsets", "spec.template."),
    ServedKind("ReplicaSet", "apps", ("v1",), "replicasets", "spec.template."),
    ServedKind("DaemonSet", "apps", ("v1",), "daemonsets", "spec.template."),
    ServedKind("Job", "batch", ("v1",), "jobs", "spec.template."),
    ServedKind("CronJob", "batch", ("v1",), "cronjobs", "spec.jobTemplate.spec.template."),
    ServedKind("Workload", "scheduling.k8s.io", _NATIVE_GROUPS, "workloads"),
    ServedKind("PodGroup", "scheduling.k8s.io", _NATIVE_GROUPS, "podgroups"),
    ServedKind(
        "PriorityClass", "scheduling.k8s.io", ("v1",), "priorityclasses", is_namespaced=False
    ),
    # Koordinator's group; scheduler-plugins moved its own ElasticQuota to another group.
    ServedKind(
        "ElasticQuota",
        "scheduling.sigs.k8s.io",
        ("v1alpha1",),
        "elasticquotas",
        other_group="scheduling.x-k8s.io",
    ),
    ServedKind("Namespace", "", ("v1",), "namespaces", is_namespaced=False),
    ServedKind("ConfigMap", "", ("v1",), "configmaps"),
)

KINDS: Mapping[str, ServedKind] = {row.kind: row for row in _TABLE}
"""By kind. No two rows share a kind. Other groups have kinds of the same names; rules ignore
those."""

SERVED = frozenset(
    (row.kind, group)
    for row in _TABLE
    for group in (row.group, row.other_group)
    if group is not None
)
"""The kind and the group of each."""
TEMPLATE_KINDS = frozenset(row.kind for row in _TABLE if row.template)
"""Kinds that make pods from a template."""
CUSTOM = "custom"
"""What rules and metrics call a kind of `templateKinds`, because its own name may also be that of a
kind in the table: Volcano has a Job."""
POD_KINDS = TEMPLATE_KINDS | {"Pod", CUSTOM}


def is_served_as(kind: str, group: str) -> bool:
    """True if `kind` of `group` is the one in the table, not a kind of the same name elsewhere."""
    return (kind, group) in SERVED

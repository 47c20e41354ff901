"""The kinds that rules concern: where the API server serves them, and where the pods that they make are described.

One table for the webhooks, the manifests, `reprieve check` and `reprieve audit`. Kinds that are an admin's to name
(`templateKinds`) are not here.
"""

from collections.abc import Mapping
from typing import NamedTuple


class ServedKind(NamedTuple):
    """A kind, its API group, its versions (the preferred first), its resource, and the prefix of its pod template."""

    kind: str
    group: str
    versions: tuple[str, ...]
    resource: str
    template: str | None = None
    """`""`: it is a pod itself; `None`: it makes none."""
    is_namespaced: bool = True
    other_group: str | None = None
    """Where another project serves the same kind, in the same form; reviewed, and neither watched nor audited."""


_NATIVE_GROUPS = ("v1beta1", "v1alpha3")
"""Of `scheduling.k8s.io` Workload and PodGroup in 1.37; served only where the cluster's admin switched them on."""

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
    # Koordinator's; scheduler-plugins moved its own to another group.
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
"""By kind. No two rows share a kind: other groups have kinds of the same names, and rules don't concern those."""

TEMPLATE_KINDS = frozenset(row.kind for row in _TABLE if row.template)
"""Kinds that make pods from a template."""
CUSTOM = "custom"
"""What rules and metrics call a kind of `templateKinds`: its own name may be a namesake's, as Volcano's Job is."""
POD_KINDS = TEMPLATE_KINDS | {"Pod", CUSTOM}


def is_served_as(kind: str, group: str) -> bool:
    """True where `group`'s `kind` is the one of the table, not a namesake."""
    row = KINDS.get(kind)
    return row is not None and group in (row.group, row.other_group)

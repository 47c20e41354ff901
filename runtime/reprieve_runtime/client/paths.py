"""The API paths of the resources that Reprieve reads and writes."""

from collections.abc import Mapping
from urllib.parse import quote

_CORE = "/api/v1"
_GROUPS: Mapping[str, str] = {
    "pods": _CORE,
    "namespaces": _CORE,
    "nodes": _CORE,
    "secrets": _CORE,
    "configmaps": _CORE,
    "events": "/apis/events.k8s.io/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "servicecidrs": "/apis/networking.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "priorityclasses": "/apis/scheduling.k8s.io/v1",
    "workloads": "/apis/scheduling.k8s.io/v1beta1",
    "podgroups": "/apis/scheduling.k8s.io/v1beta1",
    "podgroups.scheduling.x-k8s.io": "/apis/scheduling.x-k8s.io/v1alpha1",
    "podgroups.scheduling.sigs.k8s.io": "/apis/scheduling.sigs.k8s.io/v1alpha1",
    "elasticquotas": "/apis/scheduling.sigs.k8s.io/v1alpha1",
    "selfsubjectaccessreviews": "/apis/authorization.k8s.io/v1",
    "subjectaccessreviews": "/apis/authorization.k8s.io/v1",
    "tokenreviews": "/apis/authentication.k8s.io/v1",
    "jobs": "/apis/batch/v1",
    "statefulsets": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "controllerrevisions": "/apis/apps/v1",
    "deployments": "/apis/apps/v1",
    "jobsets": "/apis/jobset.x-k8s.io/v1alpha2",
    "leaderworkersets": "/apis/leaderworkerset.x-k8s.io/v1",
    "mutatingwebhookconfigurations": "/apis/admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations": "/apis/admissionregistration.k8s.io/v1",
    "validatingadmissionpolicies": "/apis/admissionregistration.k8s.io/v1",
}


def object_path(
    resource: str, namespace: str | None = None, name: str | None = None, subresource: str = ""
) -> str:
    """Return the URL path of an object, or of a collection without `name`; all parts are quoted.

    A resource has its group in its name where Kubernetes serves another one of that name.
    """
    parts = [_GROUPS[resource]]
    if namespace:
        parts.append(f"namespaces/{quote(namespace, safe='')}")
    parts.append(resource.partition(".")[0])
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def has_dot_segment(path: str) -> bool:
    """True for a path with the name `.` or `..` in it, which no object has.

    Quoting does not change a dot, and an HTTP client shortens such a path: `jobs/.` would be the
    collection of all Jobs. Users write names of objects that need not exist, such as an owner's.
    """
    return not {".", ".."}.isdisjoint(path.split("/"))

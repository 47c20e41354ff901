"""Finds the pods that a user names: by name, by a selector, or as all pods of a workload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprieve_policy.kube.label_selector import LabelSelector
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

RESOURCES: Mapping[str, str] = {
    "pod": "pods",
    "job": "jobs",
    "statefulset": "statefulsets",
    "replicaset": "replicasets",
    "deployment": "deployments",
}
"""By kind, as a user writes it; the plural is accepted too."""
_OPERATORS = {"In": "in", "NotIn": "notin"}


class NotFound(Exception):  # noqa: N818 - named as the API server names it
    """The named object does not exist, or its kind does not make pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkloadSpec:
    selector: LabelSelector = field(default_factory=LabelSelector)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workload:
    spec: _WorkloadSpec


async def find_pods(
    api: Api, namespace: str | None, subjects: Sequence[str], selector: str | None
) -> list[PartialObjectMetadata]:
    """Return the pods, each once; raises `NotFound` if a named object does not exist."""
    if selector is not None:
        return await _list(api, namespace, selector)
    found: dict[str, PartialObjectMetadata] = {}
    for subject in subjects:
        for pod in await _find(api, namespace or "", subject):
            found[pod.metadata.uid or ""] = pod
    return list(found.values())


async def _find(api: Api, namespace: str, subject: str) -> list[PartialObjectMetadata]:
    kind, slash, name = subject.rpartition("/")
    resource = RESOURCES.get(kind.lower().removesuffix("s")) if slash else "pods"
    if resource is None or not name:
        accepted = ", ".join(f"{known}/NAME" for known in RESOURCES)
        raise NotFound(f"{subject}: must be the name of a pod, or one of {accepted}")
    path = object_path(resource, namespace, name)
    try:
        if resource == "pods":
            return [await api.get(path, PartialObjectMetadata)]
        workload = await api.get(path, _Workload)
    except ApiError as error:
        if error.is_not_found:
            raise NotFound(f"{subject}: not found in namespace {namespace}") from error
        raise
    text = _render(workload.spec.selector)
    # An empty selector selects every pod of the namespace, which is not what the user asked for.
    return await _list(api, namespace, text) if text else []


async def _list(api: Api, namespace: str | None, selector: str) -> list[PartialObjectMetadata]:
    pods: list[PartialObjectMetadata] = []
    params = {"labelSelector": selector}
    async for page, _ in api.list_pages(
        object_path("pods", namespace), PartialObjectMetadata, params=params, metadata_only=True
    ):
        pods += page
    return pods


def _render(selector: LabelSelector) -> str:
    """Return a workload's selector in the syntax of the parameter labelSelector."""
    parts = [f"{key}={value}" for key, value in (selector.matchLabels or {}).items()]
    for expression in selector.matchExpressions or ():
        if expression.operator in _OPERATORS:
            values = ",".join(expression.values or ())
            parts.append(f"{expression.key} {_OPERATORS[expression.operator]} ({values})")
        else:
            parts.append(
                expression.key if expression.operator == "Exists" else f"!{expression.key}"
            )
    return ",".join(parts)

"""The pods that a person names: one by one, by a selector, or as all pods of a workload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

_NOT_FOUND = 404
RESOURCES: Mapping[str, str] = {
    "pod": "pods",
    "job": "jobs",
    "statefulset": "statefulsets",
    "replicaset": "replicasets",
    "deployment": "deployments",
}
"""By kind, as a person writes it; the plural is understood too."""
_OPERATORS = {"In": "in", "NotIn": "notin"}


class NotFound(Exception):  # noqa: N818 - it reads as what it is
    """A name of a person's is not there, or is of no kind that makes pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SelectorRequirement:
    key: str
    operator: str
    values: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LabelSelector:
    matchLabels: Mapping[str, str] | None = None  # noqa: N815 - the API's own name
    matchExpressions: Sequence[_SelectorRequirement] | None = None  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkloadSpec:
    selector: _LabelSelector = field(default_factory=_LabelSelector)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workload:
    spec: _WorkloadSpec


async def find_pods(
    api: Api, namespace: str | None, subjects: Sequence[str], selector: str | None
) -> list[PartialObjectMetadata]:
    """Return the pods, each once; `NotFound` where a name is not there."""
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
        raise NotFound(
            f"{subject}: not a pod's name, nor one of {', '.join(f'{known}/NAME' for known in RESOURCES)}"
        )
    path = object_path(resource, namespace, name)
    try:
        if resource == "pods":
            return [await api.get(path, PartialObjectMetadata)]
        workload = await api.get(path, _Workload)
    except ApiError as error:
        if error.status == _NOT_FOUND:
            raise NotFound(f"{subject}: not found in namespace {namespace}") from error
        raise
    text = _render(workload.spec.selector)
    # An empty selector selects every pod of the namespace: never what somebody meant by one workload.
    return await _list(api, namespace, text) if text else []


async def _list(api: Api, namespace: str | None, selector: str) -> list[PartialObjectMetadata]:
    pods: list[PartialObjectMetadata] = []
    params = {"labelSelector": selector}
    async for page, _ in api.list_pages(
        object_path("pods", namespace), PartialObjectMetadata, params=params, metadata_only=True
    ):
        pods += page
    return pods


def _render(selector: _LabelSelector) -> str:
    """Return a workload's selector as the API server's text."""
    parts = [f"{key}={value}" for key, value in (selector.matchLabels or {}).items()]
    for expression in selector.matchExpressions or ():
        if expression.operator in _OPERATORS:
            parts.append(
                f"{expression.key} {_OPERATORS[expression.operator]} ({','.join(expression.values or ())})"
            )
        else:
            parts.append(
                expression.key if expression.operator == "Exists" else f"!{expression.key}"
            )
    return ",".join(parts)

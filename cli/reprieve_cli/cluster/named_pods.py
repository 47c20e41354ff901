"""Finds the pods that a user names: by name, by a selector, or as all pods of a workload.

As for Kubernetes, a workload's pods are those that it controls. Selectors of workloads may overlap.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from reprieve_cli.output.finding import counted
from reprieve_cli.output.terminal import echo
from reprieve_policy.kube.label_selector import LabelSelector
from reprieve_policy.kube.objects import ObjectMeta, controller_of
from reprieve_policy.kube.pods import Pod
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
_SHORT_NAMES: Mapping[str, str] = {
    "po": "pod",
    "sts": "statefulset",
    "rs": "replicaset",
    "deploy": "deployment",
}
"""Those of kubectl."""
_OPERATORS = {"In": "in", "NotIn": "notin"}


class NotFound(Exception):  # noqa: N818 - named as the API server names it
    """The named object does not exist, its kind does not make pods, or a selector is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkloadSpec:
    selector: LabelSelector = field(default_factory=LabelSelector)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workload:
    metadata: ObjectMeta
    spec: _WorkloadSpec


async def find_pods(
    api: Api, namespace: str | None, subjects: Sequence[str], selector: str | None
) -> list[Pod]:
    """Return the pods, each once; raises `NotFound` if a named object does not exist.

    Pods that have ended are among them, so that a caller can say why nothing is done to them.
    """
    # By truth: an empty selector would select every pod.
    if selector:
        try:
            return await _list(api, namespace, selector)
        except ApiError as error:
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            raise NotFound(f"-l {selector}: is not a label selector: {error.message}") from error
    found: dict[str, Pod] = {}
    for subject in subjects:
        for pod in await _find(api, namespace or "", subject):
            found[pod.metadata.uid or ""] = pod
    return list(found.values())


def names_of_pods(subjects: Iterable[str]) -> set[str]:
    """Return the names of the pods that are named themselves, not by a workload."""
    parts = [_parse(subject) for subject in subjects]
    return {name for resource, name in parts if resource == "pods"}


def _parse(subject: str) -> tuple[str | None, str]:
    """Return the resource, `None` for a kind that makes no pods, and the name."""
    kind, slash, name = subject.rpartition("/")
    return (_resource_of(kind.lower()) if slash else "pods"), name


async def _find(api: Api, namespace: str, subject: str) -> list[Pod]:
    resource, name = _parse(subject)
    if resource is None or not name:
        accepted = ", ".join(f"{known}/NAME" for known in RESOURCES)
        raise NotFound(f"{subject}: must be the name of a pod, or one of {accepted}")
    path = object_path(resource, namespace, name)
    try:
        if resource == "pods":
            return [await api.get(path, Pod)]
        workload = await api.get(path, _Workload)
    except ApiError as error:
        if error.is_not_found:
            named = subject if "/" in subject else f"pod/{name}"
            raise NotFound(f"{named}: not found in namespace {namespace}") from error
        raise
    text = _render(workload.spec.selector)
    # An empty selector selects every pod of the namespace, which is not what the user asked for.
    if not text:
        return []
    selected = await _list(api, namespace, text)
    controllers = {workload.metadata.uid}
    if resource == "deployments":
        # Listed after the pods: without this, a pod of a newer ReplicaSet would be left out.
        controllers = await _replica_sets_of(api, namespace, text, controllers)
    return _leave_out_others(subject, selected, controllers)


async def _replica_sets_of(
    api: Api, namespace: str, selector: str, deployments: Container[str | None]
) -> set[str | None]:
    """Return the uids of a Deployment's ReplicaSets."""
    path, params = object_path("replicasets", namespace), {"labelSelector": selector}
    found: set[str | None] = set()
    async for page, _ in api.list_pages(
        path, PartialObjectMetadata, params=params, metadata_only=True
    ):
        found |= {each.metadata.uid for each in page if _is_controlled(each.metadata, deployments)}
    return found


def _leave_out_others(
    subject: str, selected: Sequence[Pod], controllers: Container[str | None]
) -> list[Pod]:
    """Return the pods that these control; say how many others the selector matches."""
    pods = [pod for pod in selected if _is_controlled(pod.metadata, controllers)]
    if others := len(selected) - len(pods):
        number = counted(others, "pod")
        echo(f"{subject}: its selector also matches {number} of others: left out", err=True)
    return pods


def _is_controlled(metadata: ObjectMeta, uids: Container[str | None]) -> bool:
    """True if the object's controller has one of the uids."""
    controller = controller_of(metadata)
    return controller is not None and controller.uid in uids


def _resource_of(kind: str) -> str | None:
    return RESOURCES.get(_SHORT_NAMES.get(kind, kind)) or RESOURCES.get(kind.removesuffix("s"))


async def _list(api: Api, namespace: str | None, selector: str) -> list[Pod]:
    pods: list[Pod] = []
    params = {"labelSelector": selector}
    async for page, _ in api.list_pages(object_path("pods", namespace), Pod, params=params):
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

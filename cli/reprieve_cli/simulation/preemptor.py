"""The preemptor of a simulation: the pods of a file, or the pods that its workload would make."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeVar

import msgspec

from reprieve_cli.manifests import documents, sources
from reprieve_cli.manifests.decoding import without_nulls
from reprieve_cli.manifests.sources import Unreadable
from reprieve_cli.output.finding import printable
from reprieve_policy import facts, keys
from reprieve_policy.config import preemption_class
from reprieve_policy.gangs import disruption
from reprieve_policy.kube import kinds, pod_requests
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.objects import Resource, group_of, labels_of
from reprieve_policy.kube.pod_groups import PodGroup, PodGroupSpec
from reprieve_policy.kube.pods import Pod
from reprieve_policy.kube.values import quantity
from reprieve_policy.preemption.selection.snapshot import Preemptor
from reprieve_policy.verdict import Violation, label_path

from .snapshot_builder import SnapshotBuilder, WorkloadKey

T = TypeVar("T")

_MAX_PODS = disruption.MAX_MEMBERS


class RequestedPod(NamedTuple):
    """A pod that needs room."""

    pod: Pod
    workload: WorkloadKey | None
    """The workload that would make it; `None` if the file contains the pod itself."""


class PreemptorRequest(NamedTuple):
    """The pods of a file that need room."""

    pods: Sequence[RequestedPod]
    groups: Sequence[PodGroup]
    """The native PodGroups of the file."""
    origins: Sequence[str]
    """The names of the objects that make the pods, for messages."""


def read(file: str, namespace: str) -> PreemptorRequest:
    """Return the pods of a file, in `namespace` if they name none; raises `Unreadable`."""
    pods: list[RequestedPod] = []
    groups: list[PodGroup] = []
    origins: list[str] = []
    others: list[str] = []
    for document in _documents(file):
        given = _mapping(document.get("metadata"))
        metadata = document["metadata"] = {
            **given,
            "namespace": given.get("namespace") or namespace,
        }
        name = printable(f"{document['kind']} {metadata['namespace']}/{metadata.get('name', '')}")
        row = KINDS.get(document["kind"])
        is_known = kinds.is_served_as(document["kind"], group_of(str(document["apiVersion"])))
        if row is None or not is_known:
            others.append(name)
        elif row.kind == "PodGroup":
            groups.append(_convert(document, PodGroup, name))
        elif row.template is None:
            others.append(name)
        else:
            workload = (
                WorkloadKey(metadata["namespace"], row.kind, metadata.get("name", ""))
                if row.template
                else None
            )
            pods += (RequestedPod(pod, workload) for pod in _pods_of(document, row.template, name))
            origins.append(name)
    if not pods:
        prefix = f"{others[0]} makes no pods: " if others else ""
        accepted = ", ".join(_workload_kinds())
        raise Unreadable(f"{prefix}must be a Pod, or a workload that makes pods, like {accepted}")
    return PreemptorRequest(pods, groups, origins)


def build_preemptor(request: PreemptorRequest, builder: SnapshotBuilder) -> Preemptor:
    """Return the first pod of the request with its gang; raises `Unreadable`."""
    for group in request.groups:
        builder.add_pod_group(_with_resolved_priority(group, builder))
    found = [
        _build_pod_preemptor(requested, index, builder)
        for index, requested in enumerate(request.pods)
    ]
    gangs = {each.gang for each in found}
    if len(found) > 1 and len(gangs) == 1 and None in gangs and len(request.origins) == 1:
        # For example a Deployment: each of its pods preempts on its own, and all are alike.
        found = found[:1]
    if len(gangs) > 1 or (None in gangs and len(found) > 1):
        raise Unreadable(
            f"{len(found)} preemptors, the first is {request.origins[0]}: "
            "must be one pod, or the pods of one gang"
        )
    if None not in gangs:
        found = _merge_with_cluster(request.pods, found, builder)
    if not found:
        raise Unreadable(f"{request.origins[0]}: all its pods are already placed on nodes")
    return builder.with_gang(found[0], found[1:])


def _merge_with_cluster(
    pods: Sequence[RequestedPod], found: Sequence[Preemptor], builder: SnapshotBuilder
) -> list[Preemptor]:
    """Return a gang's pods, each replaced by its counterpart in the cluster if there is one.

    A pod that is placed on a node drops out, and a pending pod keeps its name and nominated node.
    Without this, a gang that is in the cluster already would need room twice.
    """
    counterparts: dict[WorkloadKey, Iterator[Preemptor | None]] = {}
    merged = []
    for (_, workload), preemptor in zip(pods, found, strict=True):
        if workload is not None and workload not in counterparts:
            placed, pending = builder.take_pending_pods(workload)
            counterparts[workload] = chain(repeat(None, placed), pending)
        known = preemptor if workload is None else next(counterparts[workload], preemptor)
        if known is not None:
            demand = replace(preemptor.demand, uid=known.demand.uid)
            merged.append(
                replace(
                    preemptor, demand=demand, name=known.name, nominated_node=known.nominated_node
                )
            )
    return merged


def priority_mismatch(request: PreemptorRequest, builder: SnapshotBuilder) -> str:
    """Return a message about the first pod whose priority is not its native group's, else ""."""
    for pod, _ in request.pods:
        native, own = builder.pod_group_of(pod), builder.preemptor_of(pod).demand.priority
        if native is not None and native.priority != own:
            name = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
            return (
                f"{name}: spec.priority: Invalid value: {own}: must be {native.priority}, as in "
                "its PodGroup: kube-scheduler places no pod of such a group"
            )
    return ""


def _with_resolved_priority(group: PodGroup, builder: SnapshotBuilder) -> PodGroup:
    """Return a group with the priority that admission sets."""
    spec = group.spec or PodGroupSpec()
    named = facts.priority_class_named(spec.priorityClassName, builder.policy.facts_as_enforced(""))
    if spec.priority is not None or named is None:
        return group
    return replace(group, spec=replace(spec, priority=named.value))


def _workload_kinds() -> Iterator[str]:
    return (row.kind for row in KINDS.values() if row.template)


def _documents(file: str) -> Iterator[dict[str, Any]]:
    for text in sources.read_all([file], recursive=False):
        if isinstance(text.content, Unreadable):
            raise text.content
        for found in documents.read(text.file, text.content):
            if isinstance(found, Unreadable):
                raise Unreadable(f"line {found.line}: {found.reason}")
            yield found[1]


def _pods_of(document: dict[str, Any], template: str, name: str) -> list[Pod]:
    """Return the pod itself, or all pods that a workload makes at once."""
    if document["kind"] == "Pod":
        return [_convert(document, Pod, name)]
    count = pod_requests.pods_of(_convert(document, Resource, name))
    count = 1 if count is None else count
    if not 0 < count <= _MAX_PODS:
        raise Unreadable(f"{name}: makes {count} pods at once: must be between 1 and {_MAX_PODS}")
    found = document
    for step in template.removesuffix(".").split("."):
        found = _mapping(found.get(step))
    if not found:
        raise Unreadable(f"{name}: {template.removesuffix('.')}: Required value")
    return [_convert(_pod_manifest(document, found, index), Pod, name) for index in range(count)]


def _pod_manifest(owner: dict[str, Any], template: dict[str, Any], index: int) -> dict[str, Any]:
    """Return a pod as the owner's controller would make it."""
    metadata, given = owner["metadata"], _mapping(template.get("metadata"))
    name = str(metadata.get("name", ""))
    labels, spec = _mapping(given.get("labels")), _mapping(template.get("spec"))
    if owner["kind"] == "Job":
        labels = {**labels, keys.JOB: name}
        bounds = [_mapping(each).get("activeDeadlineSeconds") for each in (spec, owner.get("spec"))]
        spec = {
            **spec,
            "activeDeadlineSeconds": min(
                (each for each in bounds if isinstance(each, int)), default=None
            ),
        }
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name,
        "controller": True,
    }
    fixed = {"name": f"{name}-{index}", "namespace": metadata["namespace"], "labels": labels}
    return {"metadata": {**given, **fixed, "ownerReferences": [reference]}, "spec": spec}


def _convert(document: dict[str, Any], kind: type[T], name: str) -> T:
    try:
        return msgspec.convert(without_nulls(document), kind)
    except msgspec.ValidationError as error:
        raise Unreadable(f"{name}: {error}") from None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _build_pod_preemptor(
    requested: RequestedPod, index: int, builder: SnapshotBuilder
) -> Preemptor:
    pod = requested.pod
    name = printable(f"pod {pod.metadata.namespace}/{pod.metadata.name}")
    if not pod.is_pending:
        raise Unreadable(f"{name}: is already placed on a node, or has ended")
    wanted = pod.spec.priorityClassName
    if wanted and pod.spec.priority is None and wanted not in builder.policy.priority_classes:
        raise Unreadable(f'{name}: spec.priorityClassName: Not found: "{printable(wanted)}"')
    # The API server or the webhooks would refuse the pod. Without this, it would be simulated with
    # another class, or as one that needs no room.
    for violation in _unreadable_values(pod):
        raise Unreadable(f"{name}: {printable(str(violation))}")
    known = builder.find_pending_pod(pod.metadata) if requested.workload is None else None
    uid = pod.metadata.uid or (f"simulated-{index}" if known is None else known.demand.uid)
    return builder.preemptor_of(replace(pod, metadata=replace(pod.metadata, uid=uid)))


def _unreadable_values(pod: Pod) -> Iterator[Violation]:
    """Yield the class of a pod, and the amounts that it requests, where they cannot be read."""
    stated = labels_of(pod.metadata).get(keys.PREEMPTION_CLASS)
    if stated is not None:
        found = preemption_class.parse(stated, label_path("", keys.PREEMPTION_CLASS))
        yield from (each for each in (found,) if isinstance(each, Violation))
    containers = {"containers": pod.spec.containers, "initContainers": pod.spec.initContainers}
    holders = {"spec": pod.spec.resources} | {
        f"spec.{field}[{index}]": container.resources
        for field, members in containers.items()
        for index, container in enumerate(members or ())
    }
    for path, resources in holders.items():
        for part in ("requests", "limits"):
            for name, text in (getattr(resources, part, None) or {}).items():
                amount = quantity.parse(text, f"{path}.resources.{part}[{name}]")
                if isinstance(amount, Violation):
                    yield amount

"""For whom victims are looked for: the pods of a file, or those that a workload in it would make."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeVar

import msgspec

from reprieve_cli.manifests import documents, sources
from reprieve_cli.manifests.manifest_objects import without_nulls
from reprieve_cli.manifests.sources import Unreadable
from reprieve_cli.output.finding import printable
from reprieve_policy import facts, keys
from reprieve_policy.gangs import disruption
from reprieve_policy.gangs.pod_group import PodGroupSpec
from reprieve_policy.kube import kinds, pod_requests
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.objects import Resource
from reprieve_policy.preemption.selection.api_objects import Pod
from reprieve_policy.preemption.selection.snapshot import Preemptor

from .snapshot_builder import NamedPodGroup, SnapshotBuilder, WorkloadReference

T = TypeVar("T")

_MAX_PODS = disruption.MAX_MEMBERS


class RequestedPod(NamedTuple):
    """A pod that wants room."""

    pod: Pod
    workload: WorkloadReference | None
    """The workload that would make it; `None`: it is in the file itself."""


class PreemptorRequest(NamedTuple):
    """What a file asks room for."""

    pods: Sequence[RequestedPod]
    groups: Sequence[NamedPodGroup]
    """Native groups that stand beside them."""
    origins: Sequence[str]
    """Which objects make them, as a person calls them."""


def read(file: str, namespace: str) -> PreemptorRequest:
    """Return the pods of a file, in `namespace` where they name none; raises `Unreadable`."""
    pods: list[RequestedPod] = []
    groups: list[NamedPodGroup] = []
    origins: list[str] = []
    others: list[str] = []
    for document in _documents(file):
        said = _mapping(document.get("metadata"))
        metadata = document["metadata"] = {**said, "namespace": said.get("namespace") or namespace}
        name = printable(f"{document['kind']} {metadata['namespace']}/{metadata.get('name', '')}")
        row = KINDS.get(document["kind"])
        is_ours = kinds.is_served_as(
            document["kind"], str(document["apiVersion"]).rpartition("/")[0]
        )
        if row is None or not is_ours:
            others.append(name)
        elif row.kind == "PodGroup":
            groups.append(_convert(document, NamedPodGroup, name))
        elif row.template is None:
            others.append(name)
        else:
            maker = (
                WorkloadReference(metadata["namespace"], row.kind, metadata.get("name", ""))
                if row.template
                else None
            )
            pods += (RequestedPod(pod, maker) for pod in _pods_of(document, row.template, name))
            origins.append(name)
    if not pods:
        made = f"{others[0]} makes no pods: " if others else ""
        raise Unreadable(
            f"{made}needs a Pod, or a workload that makes some, like {', '.join(_workload_kinds())}"
        )
    return PreemptorRequest(pods, groups, origins)


def build_preemptor(request: PreemptorRequest, cluster_view: SnapshotBuilder) -> Preemptor:
    """Return the preemptor that a request is about: its first pod, with its gang; raises `Unreadable`."""
    for group in request.groups:
        cluster_view.add_pod_group(_with_resolved_priority(group, cluster_view))
    found = [
        _build_pod_preemptor(asked, index, cluster_view) for index, asked in enumerate(request.pods)
    ]
    gangs = {each.gang for each in found}
    if len(found) > 1 and len(gangs) == 1 and None in gangs and len(request.origins) == 1:
        # A Deployment's pods, say: each preempts for itself, and all alike.
        found = found[:1]
    if len(gangs) > 1 or (None in gangs and len(found) > 1):
        raise Unreadable(
            f"{len(found)} preemptors, {request.origins[0]} the first: must be one pod, or the pods of one gang"
        )
    if None not in gangs:
        found = _merge_with_cluster(request.pods, found, cluster_view)
    if not found:
        raise Unreadable(
            f"{request.origins[0]}: all its pods have room already: it preempts nobody"
        )
    return cluster_view.with_gang(found[0], found[1:])


def _merge_with_cluster(
    pods: Sequence[RequestedPod], found: Sequence[Preemptor], cluster_view: SnapshotBuilder
) -> list[Preemptor]:
    """Return a gang's pods as their workloads have them in the cluster: those with room ask for none, and who waits is asked about.

    Without this, a gang that is there already would need room twice.
    """
    places: dict[WorkloadReference, Iterator[Preemptor | None]] = {}
    standing = []
    for (_, maker), preemptor in zip(pods, found, strict=True):
        if maker is not None and maker not in places:
            staying, waiting = cluster_view.take_pending_pods(maker)
            places[maker] = chain(repeat(None, staying), waiting)
        known = preemptor if maker is None else next(places[maker], preemptor)
        if known is not None:
            guest = replace(preemptor.demand, uid=known.demand.uid)
            standing.append(
                replace(
                    preemptor, demand=guest, name=known.name, nominated_node=known.nominated_node
                )
            )
    return standing


def priority_mismatch(request: PreemptorRequest, cluster_view: SnapshotBuilder) -> str:
    """Say which pod has not the priority of its native group; empty where all have."""
    for pod, _ in request.pods:
        native, own = cluster_view.pod_group_of(pod), cluster_view.preemptor_of(pod).demand.priority
        if native is not None and native.priority != own:
            what = f"pod {pod.metadata.namespace}/{pod.metadata.name}: spec.priority: Invalid value: {own}"
            return f"{what}: must be {native.priority}, as its PodGroup's: kube-scheduler places none of this group"
    return ""


def _with_resolved_priority(group: NamedPodGroup, cluster_view: SnapshotBuilder) -> NamedPodGroup:
    """Return a group with its priority, as admission has it."""
    spec = group.spec or PodGroupSpec()
    named = facts.priority_class_named(
        spec.priorityClassName, cluster_view.policy.facts_as_enforced("")
    )
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
    """Return a pod, or all pods that a workload makes at once."""
    if document["kind"] == "Pod":
        return [_convert(document, Pod, name)]
    count = pod_requests.pods_of(_convert(document, Resource, name))
    count = 1 if count is None else count
    if not 0 < count <= _MAX_PODS:
        raise Unreadable(f"{name}: makes {count} pods at once: must be between 1 and {_MAX_PODS}")
    made = document
    for step in template.removesuffix(".").split("."):
        made = _mapping(made.get(step))
    return [_convert(_pod_manifest(document, made, index), Pod, name) for index in range(count)]


def _pod_manifest(owner: dict[str, Any], template: dict[str, Any], index: int) -> dict[str, Any]:
    """Return a pod as the owner's controller would make it."""
    metadata, said = owner["metadata"], _mapping(template.get("metadata"))
    name = str(metadata.get("name", ""))
    labels, spec = _mapping(said.get("labels")), _mapping(template.get("spec"))
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
    made = {"name": f"{name}-{index}", "namespace": metadata["namespace"], "labels": labels}
    return {"metadata": {**said, **made, "ownerReferences": [reference]}, "spec": spec}


def _convert(document: dict[str, Any], kind: type[T], name: str) -> T:
    try:
        return msgspec.convert(without_nulls(document), kind)
    except msgspec.ValidationError as error:
        raise Unreadable(f"{name}: {error}") from None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _build_pod_preemptor(
    asked: RequestedPod, index: int, cluster_view: SnapshotBuilder
) -> Preemptor:
    pod = asked.pod
    name = printable(f"pod {pod.metadata.namespace}/{pod.metadata.name}")
    if not pod.is_pending:
        raise Unreadable(f"{name}: has room already, or has ended: it preempts nobody")
    wanted = pod.spec.priorityClassName
    if wanted and pod.spec.priority is None and wanted not in cluster_view.policy.priority_classes:
        raise Unreadable(f'{name}: spec.priorityClassName: Not found: "{printable(wanted)}"')
    known = cluster_view.find_pending_pod(pod.metadata) if asked.workload is None else None
    uid = pod.metadata.uid or (f"simulated-{index}" if known is None else known.demand.uid)
    return cluster_view.preemptor_of(replace(pod, metadata=replace(pod.metadata, uid=uid)))

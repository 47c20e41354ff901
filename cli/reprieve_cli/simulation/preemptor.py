"""For whom victims are looked for: the pods of a file, or those that a workload in it would make."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeVar

import msgspec

from reprieve_cli.manifests import documents, sources
from reprieve_cli.manifests.subjects import without_nulls
from reprieve_cli.manifests.unreadable import Unreadable
from reprieve_cli.output.finding import printable
from reprieve_policy import facts, keys
from reprieve_policy.gangs import disruption
from reprieve_policy.gangs.pod_group import GroupSpec
from reprieve_policy.kube import kinds, pod_requests
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.objects import Resource
from reprieve_policy.preemption.selection.api_objects import Pod
from reprieve_policy.preemption.selection.snapshot import Preemptor

from .snapshot_builder import Maker, PodGroup, Stage

T = TypeVar("T")

_MAX_PODS = disruption.MAX_MEMBERS


class Asked(NamedTuple):
    """A pod that wants room."""

    pod: Pod
    maker: Maker | None
    """The workload that would make it; `None`: it is in the file itself."""


class Request(NamedTuple):
    """What a file asks room for."""

    pods: Sequence[Asked]
    groups: Sequence[PodGroup]
    """Native groups that stand beside them."""
    origins: Sequence[str]
    """Which objects make them, as a person calls them."""


def read(file: str, namespace: str) -> Request:
    """Return the pods of a file, in `namespace` where they name none; raises `Unreadable`."""
    pods: list[Asked] = []
    groups: list[PodGroup] = []
    origins: list[str] = []
    others: list[str] = []
    for document in _documents(file):
        said = _mapping(document.get("metadata"))
        metadata = document["metadata"] = {**said, "namespace": said.get("namespace") or namespace}
        name = printable(f"{document['kind']} {metadata['namespace']}/{metadata.get('name', '')}")
        row = KINDS.get(document["kind"])
        is_ours = kinds.is_served_as(document["kind"], str(document["apiVersion"]).rpartition("/")[0])
        if row is None or not is_ours:
            others.append(name)
        elif row.kind == "PodGroup":
            groups.append(_convert(document, PodGroup, name))
        elif row.template is None:
            others.append(name)
        else:
            maker = Maker(metadata["namespace"], row.kind, metadata.get("name", "")) if row.template else None
            pods += (Asked(pod, maker) for pod in _pods_of(document, row.template, name))
            origins.append(name)
    if not pods:
        made = f"{others[0]} makes no pods: " if others else ""
        raise Unreadable(f"{made}needs a Pod, or a workload that makes some, like {', '.join(_makers())}")
    return Request(pods, groups, origins)


def place(request: Request, stage: Stage) -> Preemptor:
    """Return the preemptor that a request is about: its first pod, with its gang; raises `Unreadable`."""
    for group in request.groups:
        stage.take_group(_admitted(group, stage))
    found = [_place(asked, index, stage) for index, asked in enumerate(request.pods)]
    gangs = {each.group for each in found}
    if len(found) > 1 and len(gangs) == 1 and None in gangs and len(request.origins) == 1:
        # A Deployment's pods, say: each preempts for itself, and all alike.
        found = found[:1]
    if len(gangs) > 1 or (None in gangs and len(found) > 1):
        raise Unreadable(
            f"{len(found)} preemptors, {request.origins[0]} the first: must be one pod, or the pods of one gang"
        )
    if None not in gangs:
        found = _as_they_are(request.pods, found, stage)
    if not found:
        raise Unreadable(f"{request.origins[0]}: all its pods have room already: it preempts nobody")
    return stage.with_gang(found[0], found[1:])


def _as_they_are(pods: Sequence[Asked], found: Sequence[Preemptor], stage: Stage) -> list[Preemptor]:
    """Return a gang's pods as their workloads have them in the cluster: those with room ask for none, and who waits is asked about.

    Without this, a gang that is there already would need room twice.
    """
    places: dict[Maker, Iterator[Preemptor | None]] = {}
    standing = []
    for (_, maker), preemptor in zip(pods, found, strict=True):
        if maker is not None and maker not in places:
            staying, waiting = stage.take_away(maker)
            places[maker] = chain(repeat(None, staying), waiting)
        known = preemptor if maker is None else next(places[maker], preemptor)
        if known is not None:
            guest = replace(preemptor.guest, uid=known.guest.uid)
            standing.append(replace(preemptor, guest=guest, name=known.name, nominated_node=known.nominated_node))
    return standing


def misfit(request: Request, stage: Stage) -> str:
    """Say which pod has not the priority of its native group; empty where all have."""
    for pod, _ in request.pods:
        native, own = stage.native_of(pod), stage.preemptor_of(pod).guest.priority
        if native is not None and native.priority != own:
            what = f"pod {pod.metadata.namespace}/{pod.metadata.name}: spec.priority: Invalid value: {own}"
            return f"{what}: must be {native.priority}, as its PodGroup's: kube-scheduler places none of this group"
    return ""


def _admitted(group: PodGroup, stage: Stage) -> PodGroup:
    """Return a group with its priority, as admission has it."""
    spec = group.spec or GroupSpec()
    named = facts.priority_class_named(spec.priorityClassName, stage.known.facts_for(""))
    if spec.priority is not None or named is None:
        return group
    return replace(group, spec=replace(spec, priority=named.value))


def _makers() -> Iterator[str]:
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
    return [_convert(_made(document, made, index), Pod, name) for index in range(count)]


def _made(owner: dict[str, Any], template: dict[str, Any], index: int) -> dict[str, Any]:
    """Return a pod as the owner's controller would make it."""
    metadata, said = owner["metadata"], _mapping(template.get("metadata"))
    name = str(metadata.get("name", ""))
    labels, spec = _mapping(said.get("labels")), _mapping(template.get("spec"))
    if owner["kind"] == "Job":
        labels = {**labels, keys.JOB: name}
        bounds = [_mapping(each).get("activeDeadlineSeconds") for each in (spec, owner.get("spec"))]
        spec = {**spec, "activeDeadlineSeconds": min((each for each in bounds if isinstance(each, int)), default=None)}
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name, "controller": True}
    made = {"name": f"{name}-{index}", "namespace": metadata["namespace"], "labels": labels}
    return {"metadata": {**said, **made, "ownerReferences": [reference]}, "spec": spec}


def _convert(document: dict[str, Any], kind: type[T], name: str) -> T:
    try:
        return msgspec.convert(without_nulls(document), kind)
    except msgspec.ValidationError as error:
        raise Unreadable(f"{name}: {error}") from None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _place(asked: Asked, index: int, stage: Stage) -> Preemptor:
    pod = asked.pod
    name = printable(f"pod {pod.metadata.namespace}/{pod.metadata.name}")
    if not pod.wants_room:
        raise Unreadable(f"{name}: has room already, or has ended: it preempts nobody")
    wanted = pod.spec.priorityClassName
    if wanted and pod.spec.priority is None and wanted not in stage.known.priority_classes:
        raise Unreadable(f'{name}: spec.priorityClassName: Not found: "{printable(wanted)}"')
    known = stage.waiting_as(pod.metadata) if asked.maker is None else None
    uid = pod.metadata.uid or (f"simulated-{index}" if known is None else known.guest.uid)
    return stage.preemptor_of(replace(pod, metadata=replace(pod.metadata, uid=uid)))

"""A gang's pods: those that the gate may hold, of which only what releasing them needs is kept, and the members beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from reprieve_operator.cluster.event_recorder import ObjectReference
from reprieve_operator.cluster.pods import VersionedMeta, VictimPodStatus
from reprieve_policy.gangs import gate
from reprieve_policy.gangs import membership as gangs
from reprieve_policy.gangs.gate import GatedPod
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.keys import GANG_GATE
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import (
    NameOnly,
    PodView,
    SchedulingGroup,
    Spec,
    annotations_of,
    controller_of,
    labels_of,
)
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path

_PAGE = 50
"""Pods asked for at once: each may bring 256 KiB of annotations, and a page is in memory whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _GangPodSpec:
    schedulingGates: Sequence[NameOnly] | None = None  # noqa: N815 - the API's own name
    schedulingGroup: SchedulingGroup | None = None  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPod:
    """A pod, as far as its gang and its gates go."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: _GangPodSpec = field(default_factory=_GangPodSpec)
    status: VictimPodStatus = field(default_factory=VictimPodStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPod:
    """One pod with our label; `metadata` is its identity and version only."""

    metadata: VersionedMeta
    regarding: ObjectReference
    """What an Event about its gang is about: the controller, where it has one."""
    gang: Gang | None
    is_gated: bool
    is_member: bool
    other_gates: tuple[str, ...]
    gated_pod: GatedPod


def to_labelled_pod(pod: GangPod, now: datetime) -> LabelledPod:
    """Return what is kept of a pod; one without a readable time of creation waits from now."""
    metadata = pod.metadata
    found = _read_gang(pod)
    gates = [named.name for named in pod.spec.schedulingGates or ()]
    created_at = timestamp.parse(metadata.creationTimestamp) or now
    return LabelledPod(
        metadata=VersionedMeta(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            resourceVersion=metadata.resourceVersion,
        ),
        regarding=_regarding(metadata),
        gang=found,
        is_gated=GANG_GATE in gates,
        is_member=_is_member(pod),
        other_gates=tuple(name for name in gates if name != GANG_GATE),
        gated_pod=GatedPod(created_at, None if found is None else found.min_available),
    )


def _read_gang(pod: GangPod) -> Gang | None:
    spec = Spec(schedulingGroup=pod.spec.schedulingGroup)
    return gangs.read(
        PodView("", labels_of(pod.metadata), annotations_of(pod.metadata), spec, is_template=False)
    )


async def list_member_uids(api: Api, one: LabelledPod) -> frozenset[str]:
    """Ask for the uids of all members of the gang of `one`, held or not; raises `ApiError`."""
    if one.gang is None:
        return frozenset()
    params = {} if one.gang.selector is None else {"labelSelector": one.gang.selector}
    found: set[str] = set()
    path = object_path("pods", one.metadata.namespace)
    async for pods, _ in api.list_pages(path, GangPod, params=params, limit=_PAGE):
        found.update(pod.metadata.uid or "" for pod in pods if _is_member_of(one.gang, pod))
    return frozenset(found)


def _is_member_of(gang: Gang, pod: GangPod) -> bool:
    found = _read_gang(pod)
    return found is not None and found.key == gang.key and _is_member(pod)


def _is_member(pod: GangPod) -> bool:
    return gate.counts_towards_minimum(pod.metadata, pod.status.phase)


def _regarding(metadata: VersionedMeta) -> ObjectReference:
    owner = controller_of(metadata)
    if owner is None:
        return ObjectReference.for_pod(metadata)
    return ObjectReference(
        owner.kind, metadata.namespace or "", owner.name, owner.uid, owner.apiVersion
    )

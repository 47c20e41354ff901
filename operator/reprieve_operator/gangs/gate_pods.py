"""The pods of gangs: the fields that releasing gated pods needs, and the list of all members."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from reprieve_operator.cluster.event_recorder import ObjectReference
from reprieve_operator.cluster.pods import PAGE_SIZE
from reprieve_policy.gangs import gate
from reprieve_policy.gangs import membership as gangs
from reprieve_policy.gangs.gate import GatedPod
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.keys import GANG_GATE
from reprieve_policy.kube.objects import (
    NameOnly,
    PodView,
    SchedulingGroup,
    Spec,
    VersionedMeta,
    annotations_of,
    controller_of,
    labels_of,
)
from reprieve_policy.kube.pods import PodStatus
from reprieve_policy.kube.values import timestamp
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path


@dataclass(frozen=True, slots=True, kw_only=True)
class _GangPodSpec:
    schedulingGates: Sequence[NameOnly] | None = None  # noqa: N815 - the API's own name
    schedulingGroup: SchedulingGroup | None = None  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPod:
    """A pod with its gang, its gates, and the version that removing a gate needs.

    Narrower than `Pod`: all members of a gang are listed to count them.
    """

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: _GangPodSpec = field(default_factory=_GangPodSpec)
    status: PodStatus = field(default_factory=PodStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPod:
    """One pod with Reprieve's label; `metadata` has only its identity and version."""

    metadata: VersionedMeta
    regarding: ObjectReference
    """The object of Events about its gang: the controller if it has one, else the pod."""
    gang: Gang | None
    is_gated: bool
    is_member: bool
    other_gates: tuple[str, ...]
    gated_pod: GatedPod


def to_labelled_pod(pod: GangPod, now: datetime) -> LabelledPod:
    """Return the kept fields of a pod; one without a readable creation time waits from now."""
    metadata = pod.metadata
    gang = _read_gang(pod)
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
        gang=gang,
        is_gated=GANG_GATE in gates,
        is_member=_is_member(pod),
        other_gates=tuple(name for name in gates if name != GANG_GATE),
        gated_pod=GatedPod(created_at, None if gang is None else gang.min_available),
    )


def _read_gang(pod: GangPod) -> Gang | None:
    spec = Spec(schedulingGroup=pod.spec.schedulingGroup)
    return gangs.read(
        PodView("", labels_of(pod.metadata), annotations_of(pod.metadata), spec, is_template=False)
    )


async def list_member_uids(api: Api, member: LabelledPod) -> frozenset[str]:
    """List the uids of all members of a member's gang, gated or not; raises `ApiError`."""
    if member.gang is None:
        return frozenset()
    params = {} if member.gang.selector is None else {"labelSelector": member.gang.selector}
    uids: set[str] = set()
    path = object_path("pods", member.metadata.namespace)
    async for pods, _ in api.list_pages(path, GangPod, params=params, limit=PAGE_SIZE):
        uids.update(pod.metadata.uid or "" for pod in pods if _is_member_of(member.gang, pod))
    return frozenset(uids)


def _is_member_of(gang: Gang, pod: GangPod) -> bool:
    own = _read_gang(pod)
    return own is not None and own.key == gang.key and _is_member(pod)


def _is_member(pod: GangPod) -> bool:
    return gate.counts_towards_minimum(pod.metadata, pod.status.phase)


def _regarding(metadata: VersionedMeta) -> ObjectReference:
    owner = controller_of(metadata)
    if owner is None:
        return ObjectReference.for_pod(metadata)
    return ObjectReference(
        owner.kind, metadata.namespace or "", owner.name, owner.uid, owner.apiVersion
    )

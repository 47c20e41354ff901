"""The pods of gangs: what the gate reads of those with its label, and the list of all members."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from reprieve_operator.cluster import kept_pods
from reprieve_operator.cluster.event_recorder import ObjectReference
from reprieve_operator.cluster.pods import PAGE_SIZE
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import gate
from reprieve_policy.gangs import membership as gangs
from reprieve_policy.gangs.gate_steps import GateMember
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.keys import GANG_GATE, GANG_GATE_LABEL, GANG_RELEASED_AT
from reprieve_policy.kube.objects import (
    PodView,
    SchedulingGroup,
    Spec,
    VersionedMeta,
    annotations_of,
    controller_of,
    labels_of,
)
from reprieve_policy.kube.pods import Pod, PodStatus, has_ended
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption.selection import release, snapshot_builder
from reprieve_policy.preemption.selection.snapshot import Preemptor
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePod(Pod):
    """A pod with the gate's label, and the version that removing a gate needs."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)


@dataclass(frozen=True, slots=True, kw_only=True)
class _GangPodSpec:
    nodeName: str | None = None  # noqa: N815 - the API's own name
    schedulingGroup: SchedulingGroup | None = None  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPod:
    """A pod with its gang. Narrower than `Pod`: all members of a gang are listed to count them."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: _GangPodSpec = field(default_factory=_GangPodSpec)
    status: PodStatus = field(default_factory=PodStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPod:
    """One pod with Reprieve's label; `metadata` has only its identity and version."""

    metadata: VersionedMeta
    regarding: ObjectReference
    """The object of Events about its gang: the controller if it has one, else the pod."""
    has_controller: bool
    gang: Gang | None
    is_living: bool
    """It counts as a member: it has not failed, and is not being deleted."""
    is_stray: bool
    """It has neither a gang that could wait nor a gate that was removed for one."""
    other_gates: tuple[str, ...]
    member: GateMember
    node: str
    """The node that it takes room on, if any."""
    preemptor: Preemptor
    """The pod as the scheduler gets it."""

    def as_released(self, at: datetime) -> "LabelledPod":
        """Return the pod as the watch will show it, once its gate is removed."""
        return replace(self, member=replace(self.member, is_gated=False, released_at=at))


def to_labelled_pod(pod: GatePod, facts: Facts, now: datetime) -> LabelledPod:
    """Return the kept fields of a pod; one without a readable creation time waits from now."""
    pod = kept_pods.prune(pod)
    metadata, gang = pod.metadata, gangs.read(pod.view)
    gates = [named.name for named in pod.spec.schedulingGates or ()]
    is_gated = GANG_GATE in gates
    is_released = labels_of(metadata).get(GANG_GATE_LABEL) == gate.RELEASED
    owner = ObjectReference.for_controller(metadata)
    preemptor = snapshot_builder.preemptor_of(pod, facts)
    return LabelledPod(
        metadata=VersionedMeta(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            resourceVersion=metadata.resourceVersion,
        ),
        regarding=owner or ObjectReference.for_pod(metadata),
        has_controller=controller_of(metadata) is not None,
        gang=gang,
        is_living=gate.counts_towards_minimum(metadata, pod.status.phase),
        is_stray=gang is None or not (is_gated or is_released),
        other_gates=tuple(name for name in gates if name != GANG_GATE),
        member=GateMember(
            uid=metadata.uid or "",
            created_at=timestamp.parse(metadata.creationTimestamp) or now,
            min_available=None if gang is None else gang.min_available,
            is_gated=is_gated,
            has_other_gates=any(name != GANG_GATE for name in gates),
            released_at=timestamp.parse(annotations_of(metadata).get(GANG_RELEASED_AT)),
            is_bound=bool(pod.spec.nodeName),
            is_leaving=release.read(pod) is not None,
            is_nominated=bool(pod.status.nominatedNodeName),
        ),
        node=(pod.spec.nodeName or "") if pod.occupies_node else "",
        preemptor=replace(preemptor, is_gated=False),
    )


async def list_members(api: Api, member: LabelledPod) -> Mapping[str, bool]:
    """List all members of a member's gang, by uid: whether each is on a node.

    Raises `ApiError`.
    """
    if member.gang is None:
        return {}
    params = {} if member.gang.selector is None else {"labelSelector": member.gang.selector}
    found: dict[str, bool] = {}
    path = object_path("pods", member.metadata.namespace)
    async for pods, _ in api.list_pages(path, GangPod, params=params, limit=PAGE_SIZE):
        found |= {
            pod.metadata.uid or "": bool(pod.spec.nodeName)
            for pod in pods
            if _is_member_of(member.gang, pod) and _counts_beside(member, pod)
        }
    return found


def _is_member_of(gang: Gang, pod: GangPod) -> bool:
    spec = Spec(schedulingGroup=pod.spec.schedulingGroup)
    labels, annotations = labels_of(pod.metadata), annotations_of(pod.metadata)
    own = gangs.read(PodView("", labels, annotations, spec, is_template=False))
    return own is not None and own.key == gang.key


def _counts_beside(member: LabelledPod, pod: GangPod) -> bool:
    """True if the pod counts towards the minimum of the gang that this member is of.

    Not a victim, which is leaving; nor one that another controller made and that has succeeded.
    Without this, the pods of an earlier Job of the same name would let the first pods of the next
    one go before the rest.
    """
    is_living = gate.counts_towards_minimum(pod.metadata, pod.status.phase)
    if not is_living or release.read(pod) is not None:
        return False
    owner = ObjectReference.for_controller(pod.metadata)
    return not has_ended(pod) or owner == member.regarding


def uids_of(pods: Sequence[GateMember]) -> frozenset[str]:
    """Return the uids of members."""
    return frozenset(pod.uid for pod in pods)

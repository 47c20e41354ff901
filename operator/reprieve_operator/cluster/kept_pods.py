"""What is kept of a pod for as long as it exists: what decisions depend on, and no more.

A pod may have 1.5 MB, in labels, annotations, finalizers, owners, containers and resources. Without
this, a hundred such pods of one tenant would have the operator killed for its memory, again and
again, and no victim in the cluster would get notice: if they are marked, or while a gang waits.
Of a victim, 20 KiB of memory are kept at most, so that 256 MiB hold thousands of the worst.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from reprieve_policy import keys
from reprieve_policy.checkpointing import agent
from reprieve_policy.kube import owners, pod_requests
from reprieve_policy.kube.label_selector import LabelSelector
from reprieve_policy.kube.objects import (
    ObjectMeta,
    OwnerReference,
    ResourceRequirements,
    annotations_of,
    controller_of,
    labels_of,
)
from reprieve_policy.kube.pods import (
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    SchedulingAffinity,
    SchedulingContainer,
)
from reprieve_policy.kube.values import quantity
from reprieve_policy.preemption import cost
from reprieve_policy.preemption.selection import node_fit

from . import kept_texts, pod_state
from .pods import (
    MAX_ENTRIES,
    ContainerStatus,
    VictimContainer,
    VictimPod,
    VictimPodSpec,
    VictimPodStatus,
)

M = TypeVar("M", bound=ObjectMeta)
P = TypeVar("P", bound=Pod)
V = TypeVar("V")

C = TypeVar("C", VictimContainer, SchedulingContainer)

_MAX_USUAL_BYTES = 4 * 1024
"""Of the labels and annotations of a victim that are kept, whatever they are; in memory."""
_MAX_USUAL_BYTES_ON_NODES = 32 * 1024
"""The same for the room on nodes, where anti-affinity selects by any label."""
_MAX_NAME_LENGTH = 1024
"""Characters of a scheduler's name."""
_MAX_USUAL_SPEC_BYTES = 64 * 1024
_KEEPS_ALL_AWAY = SchedulingAffinity(
    podAntiAffinity=PodAffinity(
        requiredDuringSchedulingIgnoredDuringExecution=[
            PodAffinityTerm(labelSelector=LabelSelector(), namespaceSelector=LabelSelector())
        ]
    )
)
"""Of a large pod with anti-affinity: as of one whose terms are too large to be evaluated."""
_MAX_OWNERS = 8
_MAX_OWNERS_BYTES = 2 * 1024
_MAX_FINALIZERS_BYTES = 4 * 1024
"""Of texts in memory. A pod with more counts as full, as one with more than `MAX_ENTRIES`."""
_MAX_REQUESTS_BYTES = 4 * 1024
"""Of the containers of a victim, with their resources. Of one with more, one sum is kept."""
_SHOWN_FINALIZERS = 3
"""Of such a pod, with their names."""
_MORE = "..."
_OBJECT_BYTES = 150
"""Counted for each container and owner besides its texts and entries."""
_MAX_CONTAINERS = 200
"""The resources of further ones do not count in the cost of the pod."""
_MAX_RESOURCES = 256
"""Requests and limits of all containers, or init containers, of a pod together: as the above."""
_MAX_STATUSES = 8
"""Of containers, init containers or containers for debugging, which the kubelet writes; of more,
those that differ in what is read of them. A compromised kubelet, with 100,000 of each, would end
the operator for the whole cluster, and so would a tenant's pods of many containers."""


def prune_victim(pod: VictimPod) -> VictimPod:
    """Return the pod without what no decision reads; a usual one keeps all but some conditions."""
    pod = pod_state.without_other_conditions(pod)
    metadata, spec, status = prune_metadata(pod.metadata), pod.spec, _prune_status(pod.status)
    if _size_of_requests(spec) > _MAX_REQUESTS_BYTES:
        spec = _with_sum(pod)
    if metadata is pod.metadata and spec is pod.spec and status is pod.status:
        return pod
    return replace(pod, metadata=metadata, spec=spec, status=status)


def _size_of_requests(spec: VictimPodSpec) -> int:
    containers = (*(spec.containers or ()), *(spec.initContainers or ()))
    amounts = [spec.overhead]
    for resources in (spec.resources, *(one.resources for one in containers)):
        if resources is not None:
            amounts += [resources.requests, resources.limits]
    entries = sum(kept_texts.size_of_entries(each) for each in amounts if each)
    return entries + sum(_OBJECT_BYTES + kept_texts.size_of([one.name]) for one in containers)


def _with_sum(pod: VictimPod) -> VictimPodSpec:
    """Return the spec with one container, which requests what is read of the sum of all.

    That is the CPU and the accelerators, in which the cost is counted. The agent stays: hints go to
    it.
    """
    spec = replace(
        pod.spec,
        containers=_requests_of(pod.spec.containers, VictimContainer),
        initContainers=_requests_of(pod.spec.initContainers, VictimContainer),
        resources=_usual(pod.spec.resources),
        overhead=_first(pod.spec.overhead, _MAX_RESOURCES),
    )
    amounts = pod_requests.of_pod(pod_state.view_of(replace(pod, spec=spec)).spec)
    total = {"cpu": amounts.get("cpu", 0)}
    accelerators = [name for name in amounts if cost.is_accelerator(name)]
    if accelerators:
        total[accelerators[0]] = sum(amounts[name] for name in accelerators)
    requests = {name: quantity.render(amount) for name, amount in total.items()}
    has_agent = agent.has_agent(pod.spec.initContainers)
    return replace(
        spec,
        containers=(VictimContainer(resources=ResourceRequirements(requests=requests)),),
        initContainers=(VictimContainer(name=agent.NAME),) if has_agent else None,
        resources=None,
        overhead=None,
    )


def _prune_status(status: VictimPodStatus) -> VictimPodStatus:
    conditions = status.conditions or ()
    lists = (
        status.containerStatuses or (),
        status.initContainerStatuses or (),
        status.ephemeralContainerStatuses or (),
    )
    if max(map(len, (*lists, conditions))) <= _MAX_STATUSES:
        return status
    containers, init_containers, ephemeral = map(_differing, lists)
    return replace(
        status,
        conditions=conditions[:_MAX_STATUSES],
        containerStatuses=containers,
        initContainerStatuses=init_containers,
        ephemeralContainerStatuses=ephemeral,
    )


class _Kind(NamedTuple):
    """What is read of a container's state, besides when it ended."""

    is_running: bool
    has_ended: bool
    has_failed: bool


def _differing(statuses: Sequence[ContainerStatus]) -> Sequence[ContainerStatus]:
    """Return one status of each kind, the one of the container that ended last."""
    last: dict[_Kind, tuple[str, ContainerStatus]] = {}
    for status in statuses:
        running = status.state.running if status.state else None
        ended = status.state.terminated if status.state else None
        kind = _Kind(running is not None, ended is not None, bool(ended and ended.exitCode))
        # The API server writes all of these times in UTC and in one form: texts are in their order.
        ended_at = (ended.finishedAt if ended else None) or ""
        if kind not in last or ended_at > last[kind][0]:
            last[kind] = ended_at, status
    return tuple(status for _, status in last.values())


def prune(pod: P) -> P:
    """Return the pod as it counts for the room on nodes; a usual one keeps all.

    A large one keeps its resources. Where it may run is not kept, as if it might run anywhere; one
    with anti-affinity keeps all others away.
    """
    metadata, spec = prune_metadata(pod.metadata, _MAX_USUAL_BYTES_ON_NODES), pod.spec
    if _has_many_resources(spec) or len(msgspec.json.encode(spec)) > _MAX_USUAL_SPEC_BYTES:
        resources = _usual(spec.resources)
        spec = PodSpec(
            priority=spec.priority,
            priorityClassName=spec.priorityClassName,
            preemptionPolicy=spec.preemptionPolicy,
            schedulingGroup=spec.schedulingGroup,
            # Enough of others beside our own for the pod to count as full.
            schedulingGates=(spec.schedulingGates or ())[: MAX_ENTRIES + 2],
            schedulerName=spec.schedulerName[:_MAX_NAME_LENGTH],
            activeDeadlineSeconds=spec.activeDeadlineSeconds,
            nodeName=spec.nodeName,
            affinity=_KEEPS_ALL_AWAY if node_fit.anti_affinity_of(spec, "") else None,
            containers=_requests_of(spec.containers, SchedulingContainer),
            initContainers=_requests_of(spec.initContainers, SchedulingContainer),
            resources=resources,
            overhead=_first(spec.overhead, _MAX_RESOURCES),
        )
    if metadata is pod.metadata and spec is pod.spec:
        return pod
    return replace(pod, metadata=metadata, spec=spec)


def _has_many_resources(spec: PodSpec) -> bool:
    of_containers = (*(spec.containers or ()), *(spec.initContainers or ()))
    stated = sum(_count_resources(one.resources) for one in of_containers)
    return stated + _count_resources(spec.resources) + len(spec.overhead or ()) > _MAX_RESOURCES


def _requests_of(containers: Sequence[C] | None, container: type[C]) -> Sequence[C]:
    return [
        container(resources=resources, restartPolicy=one.restartPolicy)
        for one, resources in _usual_containers(containers or ())
    ]


def prune_metadata(metadata: M, usual_bytes: int = _MAX_USUAL_BYTES) -> M:
    """Return the metadata without what no decision reads; a usual pod's keep all."""
    labels, annotations = labels_of(metadata), annotations_of(metadata)
    sizes = map(kept_texts.size_of_entries, (labels, annotations))
    if sum(sizes) > usual_bytes:
        labels, annotations = kept_texts.of_large_pod(labels, annotations)
        metadata = replace(metadata, labels=labels, annotations=annotations)
    if any(owners.clip(each) is not each for each in metadata.ownerReferences or ()):
        clipped = tuple(map(owners.clip, metadata.ownerReferences or ()))
        metadata = replace(metadata, ownerReferences=clipped)
    if _has_many_owners(metadata):
        metadata = replace(metadata, ownerReferences=_main_owner(metadata))
    if _has_many_finalizers(metadata):
        # So many that the pod counts as full: no write ever carries them.
        metadata = replace(metadata, finalizers=_first_finalizers(metadata))
    return metadata


def _has_many_owners(metadata: ObjectMeta) -> bool:
    found = metadata.ownerReferences or ()
    size = sum(
        _OBJECT_BYTES + kept_texts.size_of((one.apiVersion, one.kind, one.name, one.uid))
        for one in found
    )
    return len(found) > 1 and (len(found) > _MAX_OWNERS or size > _MAX_OWNERS_BYTES)


def _has_many_finalizers(metadata: ObjectMeta) -> bool:
    names = metadata.finalizers or ()
    return len(names) > MAX_ENTRIES or kept_texts.size_of(names) > _MAX_FINALIZERS_BYTES


def _main_owner(metadata: ObjectMeta) -> Sequence[OwnerReference]:
    owner = controller_of(metadata)
    return tuple((metadata.ownerReferences or ())[:1]) if owner is None else (owner,)


def _first_finalizers(metadata: ObjectMeta) -> Sequence[str]:
    """Return ours and the first of others, and one text so often that they are too many."""
    names = metadata.finalizers or ()
    ours = [keys.CLEANUP_FINALIZER] if keys.CLEANUP_FINALIZER in names else []
    others = (name for name in names if name != keys.CLEANUP_FINALIZER)
    first = list(islice(others, _SHOWN_FINALIZERS))
    return (*ours, *first, *[_MORE] * (MAX_ENTRIES + 1 - len(first)))


def _usual_containers(containers: Sequence[C]) -> Iterator[tuple[C, ResourceRequirements | None]]:
    """Yield the containers that are kept, each with its resources that are."""
    left = _MAX_RESOURCES
    for one in containers[:_MAX_CONTAINERS]:
        resources = _usual(one.resources, left)
        left -= _count_resources(resources)
        yield one, resources


def _count_resources(resources: ResourceRequirements | None) -> int:
    if resources is None:
        return 0
    return len(resources.requests or ()) + len(resources.limits or ())


def _usual(
    resources: ResourceRequirements | None, most: int = _MAX_RESOURCES
) -> ResourceRequirements | None:
    """Return the first requests, and then limits: at most so many together."""
    if resources is None or _count_resources(resources) <= most:
        return resources
    requests = _first(resources.requests, most)
    limits = _first(resources.limits, most - len(requests or ()))
    return replace(resources, requests=requests, limits=limits)


def _first(amounts: Mapping[str, V] | None, most: int) -> Mapping[str, V] | None:
    if amounts is None or len(amounts) <= most:
        return amounts
    return dict(islice(amounts.items(), most))

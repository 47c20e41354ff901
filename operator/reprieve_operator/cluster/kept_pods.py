"""What is kept of a pod for as long as it exists: what decisions depend on, and no more.

A pod may have 1.5 MB, in labels, annotations, finalizers, owners, containers and resources. Without
this, a hundred such pods of one tenant would have the operator killed for its memory, again and
again, and no victim in the cluster would get notice: if they are marked, or while a gang waits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import msgspec

from reprieve_policy import keys
from reprieve_policy.checkpointing import contract
from reprieve_policy.kube import owners
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
from reprieve_policy.lifecycle import mark
from reprieve_policy.preemption.selection import node_fit

from . import pod_state
from .pods import MAX_ENTRIES, ContainerStatus, VictimContainer, VictimPod, VictimPodStatus

M = TypeVar("M", bound=ObjectMeta)
P = TypeVar("P", bound=Pod)
V = TypeVar("V")

C = TypeVar("C", VictimContainer, SchedulingContainer)

_MAX_USUAL_CHARACTERS = 32 * 1024
"""Characters of labels and annotations that are kept, whatever they are."""
_ENTRY_CHARACTERS = 64
"""Counted for each of them besides its text. Without this, 10,000 labels of three letters would be
kept, which take twenty times their text."""
_MAX_TEXT_LENGTH = max(contract.MAX_ANSWER, mark.MAX_ANNOTATION) + 1
"""Characters of a long annotation of a pod with more. A text that is cut off here is one that is
too long to be read, before and after."""
_LONG_KEYS = frozenset(
    {
        keys.EVICTION,
        keys.CHECKPOINT_REQUEST,
        keys.CHECKPOINT_ANSWER,
        keys.KOORDINATOR_SOFT_EVICTION,
    }
)
_MAX_VALUE_LENGTH = 1024
"""Characters of any other annotation of it; a longer one is left out."""
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
_MAX_CONTAINERS = 200
"""The resources of further ones do not count in the cost of the pod."""
_MAX_RESOURCES = 256
"""Requests and limits of all containers, or init containers, of a pod together: as the above."""
_MAX_STATUSES = 1000
"""Of containers, init containers and containers for debugging, which the kubelet writes.

A compromised one, with 100,000 of each, would end the operator for the whole cluster.
"""
_POLICY_KEYS = keys.every_key()


def prune_victim(pod: VictimPod) -> VictimPod:
    """Return the pod without what no decision reads; a usual one keeps all but some conditions."""
    pod = pod_state.without_other_conditions(pod)
    metadata, spec, status = prune_metadata(pod.metadata), pod.spec, _prune_status(pod.status)
    containers = _prune_containers(spec.containers)
    init_containers = _prune_containers(spec.initContainers)
    resources, overhead = _usual(spec.resources), _first(spec.overhead, _MAX_RESOURCES)
    is_same = (
        metadata is pod.metadata
        and containers is spec.containers
        and init_containers is spec.initContainers
        and resources is spec.resources
        and overhead is spec.overhead
        and status is pod.status
    )
    if is_same:
        return pod
    spec = replace(
        spec,
        containers=containers,
        initContainers=init_containers,
        resources=resources,
        overhead=overhead,
    )
    return replace(pod, metadata=metadata, spec=spec, status=status)


def _prune_status(status: VictimPodStatus) -> VictimPodStatus:
    lists: Sequence[Sequence[ContainerStatus]] = (
        status.containerStatuses or (),
        status.initContainerStatuses or (),
        status.ephemeralContainerStatuses or (),
    )
    if max(map(len, lists)) <= _MAX_STATUSES:
        return status
    containers, init_containers, ephemeral = (entries[:_MAX_STATUSES] for entries in lists)
    return replace(
        status,
        containerStatuses=containers,
        initContainerStatuses=init_containers,
        ephemeralContainerStatuses=ephemeral,
    )


def prune(pod: P) -> P:
    """Return the pod as it counts for the room on nodes; a usual one keeps all.

    A large one keeps its resources. Where it may run is not kept, as if it might run anywhere; one
    with anti-affinity keeps all others away.
    """
    metadata, spec = prune_metadata(pod.metadata), pod.spec
    if _has_many_resources(spec) or len(msgspec.json.encode(spec)) > _MAX_USUAL_SPEC_BYTES:
        resources = _usual(spec.resources)
        spec = PodSpec(
            priority=spec.priority,
            priorityClassName=spec.priorityClassName,
            preemptionPolicy=spec.preemptionPolicy,
            schedulingGroup=spec.schedulingGroup,
            # Enough of others beside our own for the pod to count as full.
            schedulingGates=(spec.schedulingGates or ())[: MAX_ENTRIES + 2],
            schedulerName=spec.schedulerName[:_MAX_VALUE_LENGTH],
            activeDeadlineSeconds=spec.activeDeadlineSeconds,
            nodeName=spec.nodeName,
            affinity=_KEEPS_ALL_AWAY if node_fit.anti_affinity_of(spec, "") else None,
            containers=_requests_of(spec.containers),
            initContainers=_requests_of(spec.initContainers),
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


def _requests_of(
    containers: Sequence[SchedulingContainer] | None,
) -> Sequence[SchedulingContainer]:
    return [
        SchedulingContainer(resources=resources, restartPolicy=one.restartPolicy)
        for one, resources in _usual_containers(containers or ())
    ]


def prune_metadata(metadata: M) -> M:
    """Return the metadata without what no decision reads; a usual pod's keep all."""
    labels, annotations = labels_of(metadata), annotations_of(metadata)
    if _count_characters(labels) + _count_characters(annotations) > _MAX_USUAL_CHARACTERS:
        metadata = replace(
            metadata,
            labels={key: text for key, text in labels.items() if key in _POLICY_KEYS},
            annotations={
                key: text[:_MAX_TEXT_LENGTH]
                for key, text in annotations.items()
                if key in _LONG_KEYS or (key in _POLICY_KEYS and len(text) <= _MAX_VALUE_LENGTH)
            },
        )
    if len(metadata.ownerReferences or ()) > _MAX_OWNERS:
        metadata = replace(metadata, ownerReferences=_main_owner(metadata))
    if any(owners.clip(each) is not each for each in metadata.ownerReferences or ()):
        clipped = tuple(map(owners.clip, metadata.ownerReferences or ()))
        metadata = replace(metadata, ownerReferences=clipped)
    if len(metadata.finalizers or ()) > MAX_ENTRIES:
        # So many that the pod counts as full: no write ever carries them.
        metadata = replace(metadata, finalizers=_first_finalizers(metadata))
    return metadata


def _count_characters(entries: Mapping[str, str]) -> int:
    texts = sum(map(len, entries.keys())) + sum(map(len, entries.values()))
    return texts + _ENTRY_CHARACTERS * len(entries)


def _main_owner(metadata: ObjectMeta) -> Sequence[OwnerReference]:
    owner = controller_of(metadata)
    return tuple((metadata.ownerReferences or ())[:1]) if owner is None else (owner,)


def _first_finalizers(metadata: ObjectMeta) -> Sequence[str]:
    names = metadata.finalizers or ()
    ours = [name for name in names if name == keys.CLEANUP_FINALIZER]
    return (*ours, *islice((name for name in names if name not in ours), MAX_ENTRIES + 1))


def _prune_containers(
    containers: Sequence[VictimContainer] | None,
) -> Sequence[VictimContainer] | None:
    found = containers or ()
    kept = [
        one if resources is one.resources else replace(one, resources=resources)
        for one, resources in _usual_containers(found)
    ]
    is_same = len(kept) == len(found) and all(
        one is other for one, other in zip(kept, found, strict=True)
    )
    return containers if is_same else kept


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

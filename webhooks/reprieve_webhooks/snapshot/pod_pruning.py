"""Reduces a pod to the fields that decisions read, within a limit of size.

A pod may be as large as etcd accepts, 1.5 MB, and a user who may create pods may create many.
Without the limit, they would fill the memory of the webhooks.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from reprieve_policy import keys
from reprieve_policy.kube import owners, pod_requests
from reprieve_policy.kube.conditions import DISRUPTION_TARGET, Condition
from reprieve_policy.kube.objects import (
    ResourceRequirements,
    annotations_of,
    controller_of,
    labels_of,
)
from reprieve_policy.kube.pods import (
    HostPort,
    Pod,
    PodSpec,
    SchedulingAffinity,
    SchedulingContainer,
    SchedulingNodeAffinity,
    SchedulingNodeSelector,
    SchedulingVolume,
)
from reprieve_policy.kube.values import quantity
from reprieve_policy.preemption import cost
from reprieve_policy.preemption.selection import node_fit

from . import encoded_pods
from .encoded_pods import EncodedPod

P = TypeVar("P", bound=Pod)

MAX_ENCODED_BYTES = 16 * 1024
"""Bytes of a pod as it is kept; a usual one has less than one thousand. A pod that is larger is
reduced further, and never to more than three times this size."""
_MAX_VALUE_LENGTH = 4096
"""Characters of an annotation."""
_MAX_VALUE_LENGTH_OF_LARGE = 256
_MAX_RESOURCES, _MAX_RESOURCE_NAME_LENGTH = 64, 64
"""Of a large pod: resources, and the characters of their names."""
_MAX_PORTS = 32
_POLICY_KEYS = keys.every_key()
"""The labels and annotations that a policy reads."""
_MARK_KEYS = frozenset({keys.EVICTION, keys.KOORDINATOR_SOFT_EVICTION})
"""They show that a pod is leaving already, which must be known of every pod."""
_MATCHES_NO_NODE = SchedulingNodeAffinity(
    requiredDuringSchedulingIgnoredDuringExecution=SchedulingNodeSelector(nodeSelectorTerms=[])
)
_ANY_LIMITING_VOLUME = [SchedulingVolume(persistentVolumeClaim={})]
"""Stands for all volumes of a pod if one of them limits its nodes."""
_MAX_CONDITION_LENGTH = 64
"""Characters of each text of a condition: those that are read have fewer."""
_READ_CONDITIONS = frozenset({"PodScheduled", DISRUPTION_TARGET})


def prune(pod: P) -> tuple[P, EncodedPod]:
    """Return the pod as it is kept, and its encoding."""
    kept = _drop_unread_fields(pod)
    encoded = encoded_pods.encode(kept)
    if encoded.size <= MAX_ENCODED_BYTES:
        return kept, encoded
    kept = _prune_large(kept)
    return kept, encoded_pods.encode(kept)


def _drop_unread_fields(pod: P) -> P:
    """Leave out the fields that no decision reads."""
    kept = {
        key: text
        for key, text in annotations_of(pod.metadata).items()
        if key in _POLICY_KEYS and len(text) <= _MAX_VALUE_LENGTH
    }
    controller = controller_of(pod.metadata)
    metadata = replace(
        pod.metadata,
        annotations=kept or None,
        finalizers=None,
        creationTimestamp=None,
        ownerReferences=None if controller is None else [owners.clip(controller)],
    )
    spec = replace(
        pod.spec,
        schedulerName=pod.spec.schedulerName[:_MAX_VALUE_LENGTH_OF_LARGE],
        volumes=_ANY_LIMITING_VOLUME if node_fit.volumes_limit_nodes(pod.spec) else None,
        containers=_prune_containers(pod.spec.containers),
        initContainers=_prune_containers(pod.spec.initContainers),
    )
    read = first_conditions(pod, _READ_CONDITIONS)
    return replace(
        pod, metadata=metadata, spec=spec, status=replace(pod.status, conditions=read or None)
    )


def first_conditions(pod: Pod, types: Collection[str]) -> Sequence[Condition]:
    """Return the first condition of each of these types; a kubelet may write any number."""
    every = pod.status.conditions or ()
    first = {one.type: one for one in reversed(every) if one.type in types}
    return [
        Condition(
            type=one.type,
            status=one.status[:_MAX_CONDITION_LENGTH],
            reason=one.reason and one.reason[:_MAX_CONDITION_LENGTH],
            lastTransitionTime=one.lastTransitionTime
            and one.lastTransitionTime[:_MAX_CONDITION_LENGTH],
        )
        for one in first.values()
    ]


def _prune_large(pod: P) -> P:
    """Keep of a pod that is too large only what a policy reads.

    It can be a victim like any other, except that budgets no longer select it by its own labels.
    Resources and host ports beyond any usual number do not count. While it waits no node fits it,
    so that it gets no victims: its constraints on nodes are not kept.
    """
    metadata = replace(
        pod.metadata,
        labels=_prune_metadata(labels_of(pod.metadata)),
        annotations=_prune_metadata(annotations_of(pod.metadata)),
    )
    return replace(pod, metadata=metadata, spec=_fits_no_node(_merge_containers(pod.spec)))


def _merge_containers(spec: PodSpec) -> PodSpec:
    """Sum the requests of all containers in one container."""
    amounts = pod_requests.of_pod(spec)
    names = sorted(
        (name for name in amounts if len(name) <= _MAX_RESOURCE_NAME_LENGTH), key=_resource_rank
    )[:_MAX_RESOURCES]
    ports = sorted(node_fit.host_ports_of(spec))[:_MAX_PORTS]
    merged = SchedulingContainer(
        ports=[
            HostPort(hostIP=port.address, protocol=port.protocol, hostPort=port.number)
            for port in ports
        ],
        resources=ResourceRequirements(
            requests={name: quantity.render(amounts[name]) for name in names}
        ),
    )
    return replace(spec, containers=[merged], initContainers=None, resources=None, overhead=None)


def _resource_rank(name: str) -> tuple[bool, bool, str]:
    """Rank the resources of every node first, then accelerators, in which a cost is counted."""
    return "/" in name, not cost.is_accelerator(name), name


def _fits_no_node(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        affinity=SchedulingAffinity(nodeAffinity=_MATCHES_NO_NODE),
        nodeSelector=None,
        tolerations=None,
        topologySpreadConstraints=None,
        resourceClaims=None,
        schedulingGates=list(spec.schedulingGates or ())[:1],
    )


def _prune_metadata(entries: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in entries.items() if len(text) <= _max_length_of(key)}


def _max_length_of(key: str) -> int:
    return (
        _MAX_VALUE_LENGTH
        if key in _MARK_KEYS
        else _MAX_VALUE_LENGTH_OF_LARGE
        if key in _POLICY_KEYS
        else -1
    )


def _prune_containers(
    containers: Sequence[SchedulingContainer] | None,
) -> Sequence[SchedulingContainer] | None:
    if containers is None:
        return None
    return [
        SchedulingContainer(
            name=container.name,
            ports=[port for port in container.ports or () if port.hostPort],
            resources=container.resources,
            restartPolicy=container.restartPolicy,
        )
        for container in containers
    ]

"""What is kept of a pod: that by which anything is decided, and no more than so much of it.

A pod may be as large as etcd takes, 1.5 MB, and whoever may create pods may create many. Without this, they fill our memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from reprieve_policy import keys
from reprieve_policy.kube import pod_requests, quantity
from reprieve_policy.kube.objects import ResourceRequirements, annotations_of, labels_of
from reprieve_policy.preemption import cost
from reprieve_policy.preemption.selection import node_fit
from reprieve_policy.preemption.selection.api_objects import (
    Affinity,
    Choice,
    Container,
    HostPort,
    NodeAffinity,
    Pod,
    PodSpec,
)

MAX_ENCODED_BYTES = 16 * 1024
"""Bytes of a pod as it is kept: a usual one has less than one thousand. What is left of a larger one is never three times as much."""
_MAX_VALUE_LENGTH = 4096
"""Characters of an annotation."""
_MAX_VALUE_LENGTH_OF_LARGE = 256
_MAX_RESOURCES, _MAX_RESOURCE_NAME_LENGTH = 64, 64
"""Of a large one: resources, and the characters of their names."""
_MAX_PORTS = 32
_POLICY_KEYS = frozenset(
    text
    for name, text in vars(keys).items()
    if name.isupper() and isinstance(text, str) and "/" in text
)
"""Of labels and annotations, those that a policy reads."""
_MARK_KEYS = frozenset({keys.EVICTION, keys.EVICTION_REQUEST, keys.KOORDINATOR_SOFT_EVICTION})
"""That it goes already must be known of any."""
_MATCHES_NO_NODE = NodeAffinity(
    requiredDuringSchedulingIgnoredDuringExecution=Choice(nodeSelectorTerms=[])
)
_ENCODE = msgspec.msgpack.Encoder().encode


def prune(pod: Pod) -> tuple[Pod, bytes]:
    """Return the pod as it is kept, and the same packed."""
    kept = _drop_unread_fields(pod)
    packed = _ENCODE(kept)
    if len(packed) <= MAX_ENCODED_BYTES:
        return kept, packed
    kept = _prune_large(kept)
    return kept, _ENCODE(kept)


def _drop_unread_fields(pod: Pod) -> Pod:
    """Leave out what nothing is decided by."""
    kept = {
        key: text
        for key, text in annotations_of(pod.metadata).items()
        if len(text) <= _MAX_VALUE_LENGTH
    }
    spec = replace(
        pod.spec,
        volumes=None,
        containers=_prune_containers(pod.spec.containers),
        initContainers=_prune_containers(pod.spec.initContainers),
    )
    return replace(pod, metadata=replace(pod.metadata, annotations=kept), spec=spec)


def _prune_large(pod: Pod) -> Pod:
    """Leave of one that is too large what a policy reads.

    It is no less a victim: but for its own labels, of which budgets select it no more. Resources and host ports beyond any usual
    number take no room. While it waits no node suits it, so that it takes no victims: what it asks of nodes is not known.
    """
    metadata = replace(
        pod.metadata,
        labels=_prune_metadata(labels_of(pod.metadata)),
        annotations=_prune_metadata(annotations_of(pod.metadata)),
        ownerReferences=[owner for owner in pod.metadata.ownerReferences or () if owner.controller][
            :1
        ],
        finalizers=None,
    )
    return replace(pod, metadata=metadata, spec=_fits_no_node(_merge_containers(pod.spec)))


def _merge_containers(spec: PodSpec) -> PodSpec:
    """Put what all containers ask for into one."""
    amounts = pod_requests.of_pod(spec)
    names = sorted(
        (name for name in amounts if len(name) <= _MAX_RESOURCE_NAME_LENGTH), key=_resource_rank
    )[:_MAX_RESOURCES]
    ports = sorted(node_fit.host_ports_of(spec))[:_MAX_PORTS]
    one = Container(
        ports=[
            HostPort(hostIP=port.address, protocol=port.protocol, hostPort=port.number)
            for port in ports
        ],
        resources=ResourceRequirements(
            requests={name: quantity.render(amounts[name]) for name in names}
        ),
    )
    return replace(spec, containers=[one], initContainers=None, resources=None, overhead=None)


def _resource_rank(name: str) -> tuple[bool, bool, str]:
    """Rank what every node has first, then devices: a cost is counted in them."""
    return "/" in name, not cost.is_accelerator(name), name


def _fits_no_node(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        affinity=Affinity(nodeAffinity=_MATCHES_NO_NODE),
        nodeSelector=None,
        tolerations=None,
        topologySpreadConstraints=None,
        resourceClaims=None,
        schedulingGates=list(spec.schedulingGates or ())[:1],
        evictionResponders=None,
    )


def _prune_metadata(found: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in found.items() if len(text) <= _max_length_of(key)}


def _max_length_of(key: str) -> int:
    return (
        _MAX_VALUE_LENGTH
        if key in _MARK_KEYS
        else _MAX_VALUE_LENGTH_OF_LARGE
        if key in _POLICY_KEYS
        else -1
    )


def _prune_containers(containers: Sequence[Container] | None) -> Sequence[Container] | None:
    if containers is None:
        return None
    return [
        Container(
            name=found.name,
            ports=[port for port in found.ports or () if port.hostPort],
            resources=found.resources,
            restartPolicy=found.restartPolicy,
        )
        for found in containers
    ]

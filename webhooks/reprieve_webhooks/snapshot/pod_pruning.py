"""What is kept of a pod: that by which anything is decided, and no more than so much of it.

A pod may be as large as etcd takes, 1.5 MB, and whoever may create pods may create many. Without this, they fill our memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from reprieve_policy import keys
from reprieve_policy.kube import pod_requests, quantity
from reprieve_policy.kube.objects import Requirements, annotations_of, labels_of
from reprieve_policy.preemption import cost
from reprieve_policy.preemption.selection import pod_constraints
from reprieve_policy.preemption.selection.api_objects import (
    Affinity,
    Choice,
    Container,
    HostPort,
    NodeAffinity,
    Pod,
    PodSpec,
)

LARGEST = 16 * 1024
"""Bytes of a pod as it is kept: a usual one has less than one thousand. What is left of a larger one is never three times as much."""
_LONGEST = 4096
"""Characters of an annotation."""
_LONGEST_OF_LARGE = 256
_MOST_AMOUNTS, _LONGEST_AMOUNT = 64, 64
"""Of a large one: resources, and the characters of their names."""
_MOST_PORTS = 32
_READ = frozenset(text for name, text in vars(keys).items() if name.isupper() and isinstance(text, str) and "/" in text)
"""Of labels and annotations, those that a policy reads."""
_ASKS = frozenset({keys.EVICTION, keys.EVICTION_REQUEST, keys.KOORDINATOR_SOFT_EVICTION})
"""That it goes already must be known of any."""
_NOWHERE = NodeAffinity(requiredDuringSchedulingIgnoredDuringExecution=Choice(nodeSelectorTerms=[]))
_PACK = msgspec.msgpack.Encoder().encode


def trim(pod: Pod) -> tuple[Pod, bytes]:
    """Return the pod as it is kept, and the same packed."""
    kept = _without_rest(pod)
    packed = _PACK(kept)
    if len(packed) <= LARGEST:
        return kept, packed
    kept = _of_large(kept)
    return kept, _PACK(kept)


def _without_rest(pod: Pod) -> Pod:
    """Leave out what nothing is decided by."""
    kept = {key: text for key, text in annotations_of(pod.metadata).items() if len(text) <= _LONGEST}
    spec = replace(
        pod.spec,
        volumes=None,
        containers=_bare(pod.spec.containers),
        initContainers=_bare(pod.spec.initContainers),
    )
    return replace(pod, metadata=replace(pod.metadata, annotations=kept), spec=spec)


def _of_large(pod: Pod) -> Pod:
    """Leave of one that is too large what a policy reads.

    It is no less a victim: but for its own labels, of which budgets select it no more. Resources and host ports beyond any usual
    number take no room. While it waits no node suits it, so that it takes no victims: what it asks of nodes is not known.
    """
    metadata = replace(
        pod.metadata,
        labels=_read(labels_of(pod.metadata)),
        annotations=_read(annotations_of(pod.metadata)),
        ownerReferences=[owner for owner in pod.metadata.ownerReferences or () if owner.controller][:1],
        finalizers=None,
    )
    return replace(pod, metadata=metadata, spec=_placed_nowhere(_folded(pod.spec)))


def _folded(spec: PodSpec) -> PodSpec:
    """Put what all containers ask for into one."""
    amounts = pod_requests.of_pod(spec)
    names = sorted((name for name in amounts if len(name) <= _LONGEST_AMOUNT), key=_rank_of_amount)[:_MOST_AMOUNTS]
    ports = sorted(pod_constraints.ports_of(spec))[:_MOST_PORTS]
    one = Container(
        ports=[HostPort(hostIP=port.address, protocol=port.protocol, hostPort=port.number) for port in ports],
        resources=Requirements(requests={name: quantity.render(amounts[name]) for name in names}),
    )
    return replace(spec, containers=[one], initContainers=None, resources=None, overhead=None)


def _rank_of_amount(name: str) -> tuple[bool, bool, str]:
    """Rank what every node has first, then devices: a cost is counted in them."""
    return "/" in name, not cost.is_accelerator(name), name


def _placed_nowhere(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        affinity=Affinity(nodeAffinity=_NOWHERE),
        nodeSelector=None,
        tolerations=None,
        topologySpreadConstraints=None,
        resourceClaims=None,
        schedulingGates=list(spec.schedulingGates or ())[:1],
        evictionResponders=None,
    )


def _read(found: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in found.items() if len(text) <= _longest(key)}


def _longest(key: str) -> int:
    return _LONGEST if key in _ASKS else _LONGEST_OF_LARGE if key in _READ else -1


def _bare(containers: Sequence[Container] | None) -> Sequence[Container] | None:
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

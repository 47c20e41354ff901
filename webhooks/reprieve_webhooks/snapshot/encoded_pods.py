"""Pods as `pod_pruning` keeps them: encoded in three parts, two of which a template's pods share.

Beside the pod's own part, the metadata of its workload and its spec are one value for all pods that
are equal in them. Without this, each pod would take some 1.5 KB of text that thousands of others
have, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from reprieve_policy.kube.conditions import Condition
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference
from reprieve_policy.kube.pods import Pod, PodSpec, PodStatus

_ENCODE = msgspec.msgpack.Encoder().encode


class EncodedPod(NamedTuple):
    """One pod. Equal pods have equal encodings."""

    own: bytes
    workload: bytes
    """Its Namespace, labels and owners."""
    spec: bytes
    """Without the node."""

    @property
    def size(self) -> int:
        """The bytes of all parts."""
        return len(self.own) + len(self.workload) + len(self.spec)


class _Condition(NamedTuple):
    """A condition without the names of its fields, which would be a third of a pod's own part."""

    type: str
    status: str
    reason: str | None
    last_transition_time: str | None


class _Own(msgspec.Struct, array_like=True, gc=False):
    """What few other pods have in common with a pod."""

    name: str | None
    uid: str | None
    annotations: Mapping[str, str] | None
    deletion_timestamp: str | None
    node: str | None
    phase: str
    start_time: str | None
    nominated_node: str | None
    conditions: Sequence[_Condition] | None


class _SharedMetadata(msgspec.Struct, array_like=True, gc=False):
    """What the pods of a workload have in common."""

    namespace: str | None
    labels: Mapping[str, str] | None
    owners: Sequence[OwnerReference] | None


_DECODE_OWN = msgspec.msgpack.Decoder(_Own).decode
_DECODE_METADATA = msgspec.msgpack.Decoder(_SharedMetadata).decode
_DECODE_SPEC = msgspec.msgpack.Decoder(PodSpec).decode


def encode(pod: Pod) -> EncodedPod:
    """Return the parts of a pod, without its finalizers and creation time, which pruning drops."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    own = _Own(
        metadata.name,
        metadata.uid,
        metadata.annotations,
        metadata.deletionTimestamp,
        spec.nodeName,
        status.phase,
        status.startTime,
        status.nominatedNodeName,
        None if status.conditions is None else [_encoded(one) for one in status.conditions],
    )
    shared = _SharedMetadata(metadata.namespace, metadata.labels, metadata.ownerReferences)
    return EncodedPod(_ENCODE(own), _ENCODE(shared), _ENCODE(replace(spec, nodeName=None)))


def decode(encoded: EncodedPod) -> Pod:
    """Return the pod of these parts."""
    own, workload = _DECODE_OWN(encoded.own), _DECODE_METADATA(encoded.workload)
    metadata = ObjectMeta(
        name=own.name,
        namespace=workload.namespace,
        uid=own.uid,
        labels=workload.labels,
        annotations=own.annotations,
        deletionTimestamp=own.deletion_timestamp,
        ownerReferences=workload.owners,
    )
    spec = replace(_DECODE_SPEC(encoded.spec), nodeName=own.node)
    status = PodStatus(
        phase=own.phase,
        startTime=own.start_time,
        nominatedNodeName=own.nominated_node,
        conditions=None if own.conditions is None else [_decoded(one) for one in own.conditions],
    )
    return Pod(metadata=metadata, spec=spec, status=status)


def _encoded(one: Condition) -> _Condition:
    return _Condition(one.type, one.status, one.reason, one.lastTransitionTime)


def _decoded(one: _Condition) -> Condition:
    return Condition(
        type=one.type,
        status=one.status,
        reason=one.reason,
        lastTransitionTime=one.last_transition_time,
    )

"""Pods as they are kept: encoded in three parts, two of which the pods of a template share.

Beside the pod's own part, the metadata of its workload and its spec are one value for all pods that
are equal in them. Without this, each pod would take some 1.5 KB of text that thousands of others
have, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

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


class _Own(msgspec.Struct, array_like=True, gc=False):
    """What few other pods have in common with a pod."""

    name: str | None
    uid: str | None
    annotations: Mapping[str, str] | None
    deletion_timestamp: str | None
    creation_timestamp: str | None
    node: str | None
    status: PodStatus


class _SharedMetadata(msgspec.Struct, array_like=True, gc=False):
    """What the pods of a workload have in common."""

    namespace: str | None
    labels: Mapping[str, str] | None
    owners: Sequence[OwnerReference] | None
    finalizers: Sequence[str] | None


_DECODE_OWN = msgspec.msgpack.Decoder(_Own).decode
_DECODE_METADATA = msgspec.msgpack.Decoder(_SharedMetadata).decode
_DECODE_SPEC = msgspec.msgpack.Decoder(PodSpec).decode


def encode(pod: Pod) -> EncodedPod:
    """Return the parts of a pod."""
    metadata, spec = pod.metadata, pod.spec
    own = _Own(
        metadata.name,
        metadata.uid,
        metadata.annotations,
        metadata.deletionTimestamp,
        metadata.creationTimestamp,
        spec.nodeName,
        pod.status,
    )
    shared = _SharedMetadata(
        metadata.namespace, metadata.labels, metadata.ownerReferences, metadata.finalizers
    )
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
        finalizers=workload.finalizers,
        creationTimestamp=own.creation_timestamp,
        deletionTimestamp=own.deletion_timestamp,
        ownerReferences=workload.owners,
    )
    spec = replace(_DECODE_SPEC(encoded.spec), nodeName=own.node)
    return Pod(metadata=metadata, spec=spec, status=own.status)

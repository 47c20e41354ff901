"""Pods as they are kept: encoded in three parts, two of which the pods of a template share.

Beside the pod's own part, its labels and the rest are one value for all pods that are equal in it.
Without this, each pod would take some 1.5 KB of text that thousands of others have, too.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec

from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.kube.pods import Pod, PodStatus

_ENCODE = msgspec.msgpack.Encoder().encode
_NO_STATUS = PodStatus()


class EncodedPod(NamedTuple):
    """One pod. Equal pods have equal encodings."""

    own: bytes
    labels: bytes
    template: bytes
    """The pod without what is in the other parts."""

    @property
    def size(self) -> int:
        """The bytes of all parts."""
        return len(self.own) + len(self.labels) + len(self.template)


class _Own(msgspec.Struct, array_like=True, gc=False):
    """What few other pods have in common with a pod."""

    name: str | None
    uid: str | None
    annotations: Mapping[str, str] | None
    deletion_timestamp: str | None
    node: str | None
    status: PodStatus


_DECODE_OWN = msgspec.msgpack.Decoder(_Own).decode
_DECODE_LABELS = msgspec.msgpack.Decoder(Mapping[str, str] | None).decode
_DECODE_TEMPLATE = msgspec.msgpack.Decoder(Pod).decode


def encode(pod: Pod) -> EncodedPod:
    """Return the parts of a pod."""
    metadata, spec = pod.metadata, pod.spec
    own = _Own(
        metadata.name,
        metadata.uid,
        metadata.annotations,
        metadata.deletionTimestamp,
        spec.nodeName,
        pod.status,
    )
    template = Pod(
        metadata=ObjectMeta(
            namespace=metadata.namespace,
            finalizers=metadata.finalizers,
            creationTimestamp=metadata.creationTimestamp,
            ownerReferences=metadata.ownerReferences,
        ),
        spec=replace(spec, nodeName=None),
        status=_NO_STATUS,
    )
    return EncodedPod(_ENCODE(own), _ENCODE(metadata.labels), _ENCODE(template))


def decode(encoded: EncodedPod) -> Pod:
    """Return the pod of these parts."""
    own, template = _DECODE_OWN(encoded.own), _DECODE_TEMPLATE(encoded.template)
    metadata = replace(
        template.metadata,
        name=own.name,
        uid=own.uid,
        annotations=own.annotations,
        deletionTimestamp=own.deletion_timestamp,
        labels=_DECODE_LABELS(encoded.labels),
    )
    return Pod(metadata=metadata, spec=replace(template.spec, nodeName=own.node), status=own.status)

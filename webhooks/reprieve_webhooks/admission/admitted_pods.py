"""Pods that were admitted without a finding, so that the next one like them is admitted at once.

The pods of one workload differ in what no rule reads: their names, and what follows from these. All
else that was decoded of the first one is the key of the others, with the namespace and the user. It
holds until a watch learns something that rules read. A pod with a violation or a warning is never
remembered; nor is one whose verdict follows from other pods, from an object that was read for it
alone, or from a permission.
"""

from typing import Protocol

import msgspec
from msgspec.structs import replace

from reprieve_policy.admission import permissions
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import gang_objects, job_requests, membership
from reprieve_policy.keys import COMPLETION_INDEX
from reprieve_policy.kube.objects import ObjectMeta, Resource, pod_views
from reprieve_runtime.bounded_dict import BoundedDict

from .review import AdmissionRequest

MAX_PODS, MAX_BYTES = 256, 16 * 1024
"""In all 4 MB. The key of a pod of 4 KB has 1.5 KB, and that of one of 30 KB has 8 KB."""

_NUMBERED = frozenset(
    {COMPLETION_INDEX, "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"}
)
"""Labels and annotations in which the pods of one workload differ; no rule reads their values."""
_TOKEN_VOLUME = b"kube-api-access-"
"""The volume with a pod's token; the API server adds five letters to its name, others each time."""
_LETTERS = 5
_ANY_LETTERS = _TOKEN_VOLUME + b"\xff" * _LETTERS
"""No text in UTF-8 has these bytes."""

_ENCODE = msgspec.msgpack.Encoder().encode
_Key = tuple[str, str, bytes]


class WatchedFacts(Protocol):
    """What watches know of the cluster."""

    @property
    def version(self) -> int:
        """A number that grows with every change of what watches tell the rules about a pod."""

    def are_watched(self, namespace: str, facts: Facts) -> bool:
        """Return whether the watches told all of this: no object was read for one review."""


class AdmittedPods:
    """The pods of one replica."""

    def __init__(self, source: WatchedFacts) -> None:
        self._source = source
        self._versions: BoundedDict[_Key, int] = BoundedDict(MAX_PODS)

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def version(self) -> int:
        """The version of the facts now."""
        return self._source.version

    def key_of(self, request: AdmissionRequest, resource: Resource) -> _Key | None:
        """Return what a pod has in common with others of its workload; `None` if it cannot count.

        Whether the review is a dry run is left out: only what reads other pods depends on it.
        """
        if resource.kind != "Pod" or request.operation != "CREATE":
            return None
        shared = _ENCODE(replace(resource, metadata=_without_own(resource.metadata)))
        if len(shared) > MAX_BYTES:
            return None
        return request.namespace, request.user_info.username, _without_letters(shared)

    def includes(self, key: _Key) -> bool:
        """Return whether a pod with this key was admitted, by what is known now."""
        return self._versions.get(key) == self._source.version

    def add(self, key: _Key, pod: Resource, facts: Facts, version: int) -> None:
        """Remember a pod without a finding, unless it says nothing about the next one.

        `version` is that from before its facts were gathered.
        """
        if (
            version == self._source.version
            and self._source.are_watched(key[0], facts)
            and _stands_alone(pod, facts)
        ):
            self._versions[key] = version


def _without_own(metadata: ObjectMeta) -> ObjectMeta:
    shared = replace(metadata, name=None, uid=None, creationTimestamp=None)
    for field in ("labels", "annotations"):
        entries = getattr(metadata, field)
        if entries and not _NUMBERED.isdisjoint(entries):
            kept = {key: "" if key in _NUMBERED else value for key, value in entries.items()}
            shared = replace(shared, **{field: kept})
    return shared


def _without_letters(shared: bytes) -> bytes:
    at = shared.find(_TOKEN_VOLUME)
    name = shared[at : at + len(_ANY_LETTERS)]
    return shared.replace(name, _ANY_LETTERS) if at >= 0 and name.isascii() else shared


def _stands_alone(pod: Resource, facts: Facts) -> bool:
    """Return whether the rules read no other pod, no object of a gang and no permission for it."""
    view = next(pod_views(pod))
    gang = membership.read(view)
    return not (
        (gang is not None and gang.is_declared)
        or gang_objects.named_by(view)
        or job_requests.names_quota(view)
        or permissions.required_permissions(pod, None, facts)
    )

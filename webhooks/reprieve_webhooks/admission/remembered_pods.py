"""Answers to new pods, so that the next ones of the same template get theirs at once.

Pods of one template differ in what no rule reads: the names of the pod and its owner, and what
follows from these. All else that was decoded of a pod is its key, with the namespace and the user.
The second pod with a key has its answer remembered; if the first one had, pods of which no two are
alike would take a tenth more. An answer holds until a watch learns something that rules or defaults
read. No answer is remembered that follows from other pods, from an object that was read for this
pod alone, or from a permission.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from reprieve_policy.admission import permissions
from reprieve_policy.checkpointing import agent
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import gang_objects, gate, job_requests, membership
from reprieve_policy.keys import COMPLETION_INDEX, JOB, JOB_UID
from reprieve_policy.kube.objects import ObjectMeta, Resource, pod_views
from reprieve_policy.verdict import Change, Verdict
from reprieve_runtime.bounded_dict import BoundedDict

from .review import AdmissionRequest
from .struct_twins import replaced

MAX_PODS, MAX_BYTES = 256, 16 * 1024
"""For each webhook. The key of a pod of 4 KB has 1.5 KB, of one of 30 KB 8 KB; the names of its
namespace and user are counted in it."""

_MAX_SEEN = 4096
"""Hashes of keys that were seen once; the hash of a text differs in each process."""

_OWN = frozenset(
    {
        COMPLETION_INDEX,
        JOB,
        JOB_UID,
        "apps.kubernetes.io/pod-index",
        "controller-uid",
        "job-name",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels and annotations that controllers write to tell their pods apart. Of these, rules only read
whether there is a name; the ledger of the owner reads more."""
_ANY_NAME = "x"
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - a name
"""The volume with a pod's token; the API server adds five letters to its name, others each time."""
_LETTERS = 5
_ANY_LETTERS = _TOKEN_VOLUME.encode() + b"\xff" * _LETTERS
"""No text in UTF-8 has these bytes."""

_UNKNOWN = -1, None
_ENCODE = msgspec.msgpack.Encoder().encode
Key = tuple[str, bytes]
"""The namespace, and what a pod has in common with others of its template."""


class WatchedState(Protocol):
    """What watches know of the cluster."""

    @property
    def version(self) -> int:
        """A number that grows with every change of what watches tell about a pod."""

    def are_watched(self, namespace: str, facts: Facts) -> bool:
        """Return whether the watches told all of this: no object was read for one review."""

    def inherits_nothing(self, pod: Resource, namespace: str) -> bool:
        """Return whether no owner of the pod keeps a ledger, for this pod or for another one."""


class RememberedPods:
    """The answers of one replica."""

    def __init__(self, source: WatchedState) -> None:
        self._source = source
        self._latest: tuple[Resource, Key | None] | None = None
        """The last pod with its key, which is asked for again where it has no answer yet."""
        self._seen: BoundedDict[int, None] = BoundedDict(_MAX_SEEN)
        # With the version of the facts.
        self._verdicts: BoundedDict[Key, tuple[int, Verdict | None]] = BoundedDict(MAX_PODS)
        self._defaults: BoundedDict[Key, tuple[int, tuple[Change, ...] | None]] = BoundedDict(
            MAX_PODS
        )

    def __len__(self) -> int:
        return len(self._verdicts) + len(self._defaults)

    @property
    def version(self) -> int:
        """The version of the facts now."""
        return self._source.version

    def key_of(self, request: AdmissionRequest, resource: Resource) -> Key | None:
        """Return what a pod has in common with others of its template; `None` if it cannot count.

        Whether the review is a dry run is left out: only what reads other pods depends on it.
        """
        if resource.kind != "Pod" or request.operation != "CREATE":
            return None
        if self._latest is None or self._latest[0] is not resource:
            self._latest = resource, self._make_key(request, resource)
        return self._latest[1]

    def _make_key(self, request: AdmissionRequest, resource: Resource) -> Key | None:
        pod = replaced(resource, metadata=_without_own(resource.metadata))
        shared = _ENCODE((request.namespace, request.user_info.username, pod))
        if len(shared) > MAX_BYTES:
            return None
        return request.namespace, _without_letters(shared, resource)

    def verdict_of(self, key: Key) -> Verdict | None:
        """Return the verdict on a pod with this key, by what is known now."""
        version, verdict = self._verdicts.get(key, _UNKNOWN)
        return verdict if version == self._source.version else None

    def defaults_of(self, key: Key, pod: Resource) -> tuple[Change, ...] | None:
        """Return the defaults of a pod with this key, by what is known now."""
        version, changes = self._defaults.get(key, _UNKNOWN)
        is_valid = version == self._source.version and self._source.inherits_nothing(pod, key[0])
        return changes if is_valid else None

    def add_verdict(
        self, key: Key, pod: Resource, facts: Facts, version: int, verdict: Verdict
    ) -> None:
        """Remember a verdict, unless it says nothing about the next pod.

        `version` is that from before its facts were gathered.
        """
        if self._is_alike(key, pod, facts, version) and _may_be_shared(verdict):
            self._verdicts[key] = version, verdict

    def add_defaults(
        self, key: Key, pod: Resource, facts: Facts, version: int, changes: tuple[Change, ...]
    ) -> None:
        """Remember the defaults of a pod, unless they say nothing about those of the next one."""
        if (
            self._is_alike(key, pod, facts, version)
            and self._source.inherits_nothing(pod, key[0])
            and not gate.may_be_gated(pod, facts.settings)
            and not agent.wants_agent(next(pod_views(pod)))
        ):
            self._defaults[key] = version, changes

    def _is_alike(self, key: Key, pod: Resource, facts: Facts, version: int) -> bool:
        return (
            self._was_seen(key)
            and version == self._source.version
            and self._source.are_watched(key[0], facts)
            and _stands_alone(pod, facts)
        )

    def _was_seen(self, key: Key) -> bool:
        digest = hash(key)
        was_seen = digest in self._seen
        self._seen[digest] = None
        return was_seen


def _without_own(metadata: ObjectMeta) -> ObjectMeta:
    return replaced(
        metadata,
        name=None,
        uid=None,
        creationTimestamp=None,
        labels=_with_any_names(metadata.labels),
        annotations=_with_any_names(metadata.annotations),
        ownerReferences=[
            (owner.apiVersion, owner.kind, owner.controller)
            for owner in metadata.ownerReferences or ()
        ],
    )


def _with_any_names(entries: Mapping[str, str] | None) -> Mapping[str, str] | None:
    if entries is None or _OWN.isdisjoint(entries):
        return entries
    own = {key: _ANY_NAME for key in _OWN.intersection(entries) if membership.is_name(entries[key])}
    return {**entries, **own}


def _without_letters(shared: bytes, pod: Resource) -> bytes:
    """Leave out the letters, unless a text has them that is not the volume's name."""
    name, uses = _token_volume(pod)
    text = name.encode()
    is_elsewhere = shared.count(text) != uses
    return shared if not name or is_elsewhere else shared.replace(text, _ANY_LETTERS)


def _token_volume(pod: Resource) -> tuple[str, int]:
    """Return the name of the volume with the token, and how often the pod must name it."""
    name, uses = "", 0
    if pod.spec is not None:
        for volume in pod.spec.volumes or ():
            if volume.name.startswith(_TOKEN_VOLUME) and len(volume.name) == len(_ANY_LETTERS):
                name, uses = volume.name, 1
        for containers in (pod.spec.containers or (), pod.spec.initContainers or ()):
            for container in containers:
                for mount in container.volumeMounts or ():
                    uses += mount.name == name
    return name, uses


def _may_be_shared(verdict: Verdict) -> bool:
    """Return whether no text shows the letters that differ, and the texts are not too long."""
    if verdict.is_empty:
        return True
    text = "".join((*map(str, verdict.violations), *verdict.warnings))
    return _TOKEN_VOLUME not in text and len(text) <= MAX_BYTES


def _stands_alone(pod: Resource, facts: Facts) -> bool:
    """Return whether no other pod, no object of a gang and no permission counts for it."""
    view = next(pod_views(pod))
    gang = membership.read(view)
    return not (
        (gang is not None and gang.is_declared)
        or gang_objects.named_by(view)
        or job_requests.names_quota(view)
        or permissions.required_permissions(pod, None, facts)
    )

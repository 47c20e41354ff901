"""Pods that claim to be non-preemptible, and that were created before such claims were checked.

No admission of Reprieve has checked their claim. Since the webhook `claims.reprieve.dev` is there,
none gets in unchecked. It is in the validating configuration, which the operator may not read, and
in a cluster with an earlier version that is older than the webhook. So the operator takes the later
creation time of two objects that it may read: the mutating configuration, and a policy that came to
the manifests in the same version as the webhook.

Whether a user had the right is not known any more: a pod does not say who created it. So the claim
counts, and an Event and a metric say so.
"""

from collections.abc import Iterable
from datetime import datetime

from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption import protection
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

from .cluster.event_recorder import EventRecorder, ObjectReference
from .cluster.pods import VersionedObject
from .cluster.writes import Writes
from .metrics import OperatorMetrics

CONFIGURATION = "reprieve-webhooks"
"""The mutating one: the validating one holds the guard's secret path."""
POLICY = "reprieve-operator-limits"
_NOTE = (
    "the pod says that it is non-preemptible, and was created before Reprieve checked such claims. "
    "It counts; a pod that is created anew is checked"
)


class UncheckedClaims:
    """Counts them in each resync; reports each pod once in a term."""

    def __init__(self, writes: Writes, recorder: EventRecorder, metrics: OperatorMetrics) -> None:
        self._writes = writes
        self._recorder = recorder
        self._metrics = metrics
        self._reported: frozenset[str] = frozenset()
        self._found: set[str] = set()
        self._checked_since: datetime | None = None

    async def begin(self) -> None:
        """Begin a resync: find out since when claims are checked; unknown without the right."""
        since = await self._created_at("mutatingwebhookconfigurations", CONFIGURATION)
        limits = await self._created_at("validatingadmissionpolicies", POLICY)
        if since is not None and limits is not None:
            since = max(since, limits)
        self._checked_since, self._found = since, set()

    async def _created_at(self, resource: str, name: str) -> datetime | None:
        path = object_path(resource, None, name)
        try:
            found = await self._writes.get(path, VersionedObject)
        except ApiError as error:
            if not error.is_forbidden:
                raise
            found = None
        return None if found is None else timestamp.parse(found.metadata.creationTimestamp)

    def add_pods(self, pods: Iterable[VersionedMeta]) -> None:
        """Look at some of the cluster's pods."""
        for metadata in pods:
            if not protection.is_unchecked_claim(metadata, self._checked_since):
                continue
            uid = metadata.uid or ""
            self._found.add(uid)
            if uid not in self._reported:
                about = ObjectReference.for_pod(metadata)
                self._recorder.event(about, "ProtectionUnchecked", _NOTE, once=True)

    def finish(self) -> None:
        """End a resync that has seen all pods."""
        self._reported = frozenset(self._found)
        self._metrics.unchecked_claims.set(len(self._found))

"""A slow periodic list of all pods, metadata only.

It finds marks that no webhook labelled, states whose label is gone, stale labels and finalizers of
ours, gangs whose pods diverge, and claims from before the installation.
"""

import logging
from collections.abc import Awaitable, Callable

from reprieve_operator.clock import Clock
from reprieve_policy import keys
from reprieve_policy.kube.objects import VersionedMeta, annotations_of, labels_of
from reprieve_policy.lifecycle import mark
from reprieve_policy.verdict import Violation
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from .cluster import pod_state
from .cluster.event_recorder import EventRecorder, ObjectReference
from .cluster.namespace_rests import NamespaceRests
from .cluster.overloads import Overloads
from .cluster.pods import PAGE_SIZE, WRITABLE, VersionedObject
from .cluster.retries import GONE_OR_CHANGED
from .cluster.writes import Writes
from .gangs.divergence import DivergenceMonitor
from .unchecked_claims import UncheckedClaims
from .victims.registry import ReconcilerRegistry

_log = logging.getLogger(__name__)


class PodResync:
    """The resync of one term.

    Remembers only which unreadable marks it has reported, and which Namespaces wait.
    """

    def __init__(
        self,
        api: Api,
        writes: Writes,
        registry: ReconcilerRegistry,
        recorder: EventRecorder,
        divergence: DivergenceMonitor,
        claims: UncheckedClaims,
        clock: Clock,
    ) -> None:
        self._api = api
        self._writes = writes
        self._registry = registry
        self._recorder = recorder
        self._divergence = divergence
        self._claims = claims
        self._rests = NamespaceRests(clock)
        self._overloads = Overloads()
        self._reported: dict[str, str] = {}

    async def run_once(self) -> None:
        """Check all pods once; raises `ApiError`, also where the API server is overloaded."""
        self._overloads.begin_round()
        self._divergence.begin()
        unreadable: dict[str, str] = {}
        await self._claims.begin()
        async for pods, _ in self._api.list_pages(
            object_path("pods"),
            VersionedObject,
            params=WRITABLE,
            metadata_only=True,
            limit=PAGE_SIZE,
        ):
            for pod in pods:
                self._claims.add_pods([pod.metadata])
                await self._resync_pod(pod.metadata, unreadable)
                self._overloads.raise_if_many()
                self._divergence.add_pod(pod.metadata)
        self._rests.end_round()
        self._overloads.end_round()
        # Only pods that still exist are remembered.
        self._reported = unreadable
        self._claims.finish()
        await self._divergence.check_changed_namespaces()

    async def _resync_pod(self, metadata: VersionedMeta, unreadable: dict[str, str]) -> None:
        if metadata.uid in self._registry:
            return
        if pod_state.is_victim(metadata):
            self._registry.enqueue(metadata)
        elif pod_state.has_cleanup_finalizer(metadata):
            # No eviction is in progress that would remove it.
            await self._repair(self._writes.remove_finalizer, metadata)
        elif metadata.deletionTimestamp is not None:
            return
        elif pod_state.has_stale_label(metadata):
            if await self._repair(self._writes.remove_label, metadata):
                note = (
                    "Reprieve's label was on the pod without a mark or a state: "
                    "the label was removed, and the pod stays"
                )
                self._recorder.event(
                    ObjectReference.for_pod(metadata), "SoftEvictionLeftOver", note
                )
        elif keys.SOFT_EVICTION not in labels_of(metadata):
            await self._label_if_marked(metadata, unreadable)

    async def _repair(
        self, write: Callable[[VersionedMeta], Awaitable[object]], metadata: VersionedMeta
    ) -> bool:
        """Make one write; return whether it was made.

        Raises nothing: one pod that cannot be written, such as one that etcd finds too large, or
        one whose webhook answers as it likes, would keep the resync from all pods after it.
        """
        namespace, uid = metadata.namespace or "", metadata.uid or ""
        if not self._rests.is_due(namespace, uid):
            return False
        try:
            with self._rests.noting_slow(namespace, uid):
                await write(metadata)
        except ApiError as error:
            self._overloads.note_refusal(namespace, error)
            if error.status not in GONE_OR_CHANGED:
                _log.error(
                    "could not repair the pod; it is tried again in a later resync",
                    extra={"pod": metadata.key, "error": str(error)},
                )
            return False
        self._overloads.note_success()
        return True

    async def _label_if_marked(self, metadata: VersionedMeta, unreadable: dict[str, str]) -> None:
        result = mark.read(labels_of(metadata), annotations_of(metadata))
        if isinstance(result, mark.Mark):
            await self._repair(self._writes.add_label, metadata)
        elif isinstance(result, Violation):
            uid, problem = metadata.uid or "", f"{result.path}: {result.detail}"
            unreadable[uid] = problem
            if self._reported.get(uid) != problem:
                note = f"the mark cannot be read, so nothing is evicted: {problem}"
                self._recorder.event(
                    ObjectReference.for_pod(metadata), "SoftEvictionUnreadable", note
                )

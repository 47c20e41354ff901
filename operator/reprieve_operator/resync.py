"""A slow look at all pods, metadata only: marks that no webhook labelled, states whose label is gone, holds of ours, gangs."""

import logging

from reprieve_policy import keys
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.lifecycle import mark
from reprieve_policy.verdict import Violation
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from .cluster import pod_state
from .cluster.event_recorder import EventRecorder, ObjectReference
from .cluster.pods import VersionedMeta, VersionedObject
from .cluster.writes import Writes
from .gangs.divergence import DivergenceMonitor
from .victims.registry import ReconcilerRegistry

_log = logging.getLogger(__name__)

_GONE_OR_CHANGED = (404, 409)
_POD_SPECIFIC_STATUSES = (400, 403, 413, 422)
"""What is wrong with one pod's write is no reason to leave the others unseen."""
_PAGE = 50
"""Pods asked for at once: each may bring 256 KiB of annotations, and a page is in memory whole."""


class PodResync:
    """One term's sweeps; remembers only which unreadable marks it has complained about."""

    def __init__(
        self,
        api: Api,
        effects: Writes,
        registry: ReconcilerRegistry,
        announcer: EventRecorder,
        divergence: DivergenceMonitor,
    ) -> None:
        self._api = api
        self._effects = effects
        self._registry = registry
        self._announcer = announcer
        self._divergence = divergence
        self._reported: dict[str, str] = {}

    async def run_once(self) -> None:
        """Look at all pods; raises `ApiError`."""
        unreadable: dict[str, str] = {}
        async for pods, _ in self._api.list_pages(
            object_path("pods"), VersionedObject, metadata_only=True, limit=_PAGE
        ):
            for pod in pods:
                await self._resync_pod(pod.metadata, unreadable)
                self._divergence.add_pod(pod.metadata)
        # Those that are gone are forgotten, so that this stays as small as the number of such pods.
        self._reported = unreadable
        await self._divergence.check_changed_namespaces()

    async def _resync_pod(self, metadata: VersionedMeta, unreadable: dict[str, str]) -> None:
        if metadata.uid in self._registry:
            return
        try:
            await self._repair(metadata, unreadable)
        except ApiError as error:
            if error.status in _POD_SPECIFIC_STATUSES:
                _log.error("pod passed over", extra={"pod": metadata.key, "error": str(error)})
            elif error.status not in _GONE_OR_CHANGED:
                raise

    async def _repair(self, metadata: VersionedMeta, unreadable: dict[str, str]) -> None:
        if pod_state.is_victim(metadata):
            self._registry.enqueue(metadata)
        elif metadata.deletionTimestamp is not None:
            if pod_state.has_cleanup_finalizer(metadata):
                await self._effects.remove_finalizer(metadata)
        elif pod_state.has_stale_label(metadata):
            await self._effects.remove_label(metadata)
            note = "our label said what no mark and no state bears out: it was taken away, and the pod stays"
            self._announcer.event(ObjectReference.for_pod(metadata), "SoftEvictionLeftOver", note)
        elif keys.SOFT_EVICTION not in labels_of(metadata):
            await self._label_if_marked(metadata, unreadable)

    async def _label_if_marked(self, metadata: VersionedMeta, unreadable: dict[str, str]) -> None:
        found = mark.read(labels_of(metadata), annotations_of(metadata))
        if isinstance(found, mark.Mark):
            await self._effects.add_label(metadata)
        elif isinstance(found, Violation):
            uid, complaint = metadata.uid or "", f"{found.path}: {found.detail}"
            unreadable[uid] = complaint
            if self._reported.get(uid) != complaint:
                note = f"the mark cannot be read, so nothing is evicted: {complaint}"
                self._announcer.event(
                    ObjectReference.for_pod(metadata), "SoftEvictionUnreadable", note
                )

"""A slow look at all pods, metadata only: marks that no webhook labelled, states whose label is gone, holds of ours, gangs."""

import logging

from reprieve_policy import keys
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.lifecycle import mark
from reprieve_policy.verdict import Violation
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from .cluster import pod_state
from .cluster.event_recorder import Announcer, Regarding
from .cluster.pods import Versioned, VersionedMeta
from .cluster.writes import Effects
from .gangs.divergence import GangCensus
from .victims.registry import Keepers

_log = logging.getLogger(__name__)

_GONE_OR_CHANGED = (404, 409)
_THIS_POD_ONLY = (400, 403, 413, 422)
"""What is wrong with one pod's write is no reason to leave the others unseen."""
_PAGE = 50
"""Pods asked for at once: each may bring 256 KiB of annotations, and a page is in memory whole."""


class Sweep:
    """One term's sweeps; remembers only which unreadable marks it has complained about."""

    def __init__(self, api: Api, effects: Effects, keepers: Keepers, announcer: Announcer, census: GangCensus) -> None:
        self._api = api
        self._effects = effects
        self._keepers = keepers
        self._announcer = announcer
        self._census = census
        self._complained: dict[str, str] = {}

    async def run_once(self) -> None:
        """Look at all pods; raises `ApiError`."""
        unreadable: dict[str, str] = {}
        async for pods, _ in self._api.pages(object_path("pods"), Versioned, metadata_only=True, limit=_PAGE):
            for pod in pods:
                await self._look(pod.metadata, unreadable)
                self._census.see(pod.metadata)
        # Those that are gone are forgotten, so that this stays as small as the number of such pods.
        self._complained = unreadable
        await self._census.finish()

    async def _look(self, metadata: VersionedMeta, unreadable: dict[str, str]) -> None:
        if metadata.uid in self._keepers:
            return
        try:
            await self._take_care(metadata, unreadable)
        except ApiError as error:
            if error.status in _THIS_POD_ONLY:
                _log.error("pod passed over", extra={"pod": metadata.key, "error": str(error)})
            elif error.status not in _GONE_OR_CHANGED:
                raise

    async def _take_care(self, metadata: VersionedMeta, unreadable: dict[str, str]) -> None:
        if pod_state.is_victim(metadata):
            self._keepers.look_at(metadata)
        elif metadata.deletionTimestamp is not None:
            if pod_state.has_cleanup_finalizer(metadata):
                await self._effects.let_go(metadata)
        elif pod_state.is_left_over(metadata):
            await self._effects.take_label(metadata)
            note = "our label said what no mark and no state bears out: it was taken away, and the pod stays"
            self._announcer.announce(Regarding.pod(metadata), "SoftEvictionLeftOver", note)
        elif keys.SOFT_EVICTION not in labels_of(metadata):
            await self._label(metadata, unreadable)

    async def _label(self, metadata: VersionedMeta, unreadable: dict[str, str]) -> None:
        found = mark.read(labels_of(metadata), annotations_of(metadata))
        if isinstance(found, mark.Mark):
            await self._effects.request_eviction(metadata)
        elif isinstance(found, Violation):
            uid, complaint = metadata.uid or "", f"{found.path}: {found.detail}"
            unreadable[uid] = complaint
            if self._complained.get(uid) != complaint:
                note = f"the mark cannot be read, so nothing is evicted: {complaint}"
                self._announcer.announce(Regarding.pod(metadata), "SoftEvictionUnreadable", note)

"""The victims of a cluster as they change: one event each time one is marked, moves on, or goes.

Selected by the server: what is streamed grows with the victims, not with the pods.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace

from reprieve_policy import keys
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

_LOG = logging.getLogger(__name__)
_GONE = 410
_NOT_FOUND = 404
_RETRY_SECONDS = 1.0
_FORBIDDEN = (401, 403)


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimStatus:
    """One pod that has to go, as its metadata says."""

    namespace: str
    name: str
    uid: str
    phase: str
    preemption_class: str
    state: Eviction | None
    """`None` until the operator has taken it up."""

    @property
    def is_finished(self) -> bool:
        """True where nothing more will happen to it."""
        return self.phase in TERMINAL


def read(pod: PartialObjectMetadata) -> VictimStatus:
    """Return the victim that a pod is; a state that cannot be read counts as none."""
    labels, text = labels_of(pod.metadata), annotations_of(pod.metadata).get(keys.EVICTION)
    state = None if text is None else eviction.parse(text)
    return VictimStatus(
        namespace=pod.metadata.namespace or "",
        name=pod.metadata.name or "",
        uid=pod.metadata.uid or "",
        phase=labels.get(keys.SOFT_EVICTION) or _phase_unlabelled(state),
        preemption_class=labels.get(keys.PREEMPTION_CLASS, ""),
        state=state,
    )


def _phase_unlabelled(state: Eviction | None) -> Phase:
    """Return the phase of a pod without our label: whoever removes it cancels, before the operator has said so."""
    return Phase.SPARED if state is not None and state.phase is Phase.SPARED else Phase.CANCELLED


async def follow(
    api: Api,
    namespace: str | None,
    *,
    once: bool = False,
    marked: Iterable[PartialObjectMetadata] = (),
) -> AsyncIterator[VictimStatus]:
    """Yield each victim as it is, then as it changes, for ever; or, `once`, as all are now.

    Each of those that were `marked` a moment ago is yielded, also where it is gone, or no victim any more, by the time of the first list.
    One that is gone is yielded a last time, as `gone`; one that stays, as `cancelled` or `spared`. An API server that goes away
    once it has answered is waited for; raises `ApiError` where it has not, or forbids it.
    """
    followed = _VictimWatch(api, object_path("pods", namespace), marked)
    while True:
        try:
            async for victim in followed.list_changes():
                yield victim
            if once:
                return
            async for victim in followed.watch_changes():
                yield victim
        except ApiError as error:
            if once or not followed.version or error.status in _FORBIDDEN:
                raise
            _LOG.debug("interrupted", extra={"error": str(error)})
            if error.status != _GONE:
                await asyncio.sleep(_RETRY_SECONDS)


class _VictimWatch:
    """What was told of the victims so far: each is told of when that is no longer so."""

    def __init__(self, api: Api, path: str, marked: Iterable[PartialObjectMetadata]) -> None:
        self.version = ""
        """From which on they are watched; empty until all were listed once."""
        self._api = api
        self._path = path
        self._params = {"labelSelector": keys.SOFT_EVICTION}
        # As nobody is, so that whatever is seen of them is news.
        self._last_seen = {victim.uid: replace(victim, phase="") for victim in map(read, marked)}

    async def list_changes(self) -> AsyncIterator[VictimStatus]:
        """Yield what a list shows; raises `ApiError`."""
        seen, version = set[str](), ""
        async for page, page_version in self._api.list_pages(
            self._path, PartialObjectMetadata, params=self._params, metadata_only=True
        ):
            version = page_version
            for victim in map(read, page):
                seen.add(victim.uid)
                if self._has_changed(victim):
                    yield victim
        self.version = version
        for uid in self._last_seen.keys() - seen:
            yield await self._read_final_state(self._last_seen[uid])

    async def watch_changes(self) -> AsyncIterator[VictimStatus]:
        """Yield what a watch shows until it ends; raises `ApiError`: nothing is known of what came after."""
        async for event in self._api.watch(
            self._path, PartialObjectMetadata, resource_version=self.version, params=self._params
        ):
            if event.type == "BOOKMARK":
                continue
            victim = read(event.object)
            if event.type == "DELETED":
                yield await self._read_final_state(victim)
            elif self._has_changed(victim):
                yield victim

    def _has_changed(self, victim: VictimStatus) -> bool:
        before, self._last_seen[victim.uid] = self._last_seen.get(victim.uid), victim
        return before != victim

    async def _read_final_state(self, victim: VictimStatus) -> VictimStatus:
        """Return how it ended. A watch says DELETED of a pod that only lost its label too, and shows it as it was before."""
        path = object_path("pods", victim.namespace, victim.name)
        ended = replace(victim, phase=Phase.GONE)
        try:
            pod = await self._api.get(path, PartialObjectMetadata)
            ended = read(pod) if pod.metadata.uid == victim.uid else ended
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
        # Only now: one that could not be looked at is looked at again.
        self._last_seen.pop(victim.uid, None)
        return ended

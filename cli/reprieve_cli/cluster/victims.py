"""The victims of a cluster and their changes: marked, another phase, or gone.

The API server selects them by label: the traffic grows with the victims, not with the pods.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from http import HTTPStatus

from reprieve_policy import keys
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_MARKS = (*mark.REQUESTING_VALUES, mark.MARKED)
_FORBIDDEN = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimStatus:
    """The state of one victim, read from the pod's metadata."""

    namespace: str
    name: str
    uid: str
    phase: str
    preemption_class: str
    state: Eviction | None
    """`None` until the operator has written its state."""

    @property
    def is_finished(self) -> bool:
        """True if the eviction has ended."""
        return self.phase in TERMINAL


def read(pod: PartialObjectMetadata) -> VictimStatus:
    """Return the victim that a pod is; a state that cannot be parsed counts as none."""
    labels, text = labels_of(pod.metadata), annotations_of(pod.metadata).get(keys.EVICTION)
    state = None if text is None else eviction.parse(text)
    return VictimStatus(
        namespace=pod.metadata.namespace or "",
        name=pod.metadata.name or "",
        uid=pod.metadata.uid or "",
        phase=_phase(labels.get(keys.SOFT_EVICTION), state),
        preemption_class=labels.get(keys.PREEMPTION_CLASS, ""),
        state=state,
    )


def _phase(label: str | None, state: Eviction | None) -> str:
    """Return the phase. A new mark on a victim hides it until the operator has seen that."""
    if label in _MARKS and state is not None and state.phase not in TERMINAL:
        return state.phase
    return label or _phase_unlabelled(state)


def _phase_unlabelled(state: Eviction | None) -> Phase:
    """Return the phase of a pod without our label.

    Removing the label cancels the eviction, even before the operator has written that.
    """
    return Phase.SPARED if state is not None and state.phase is Phase.SPARED else Phase.CANCELLED


async def follow(
    api: Api,
    namespace: str | None,
    *,
    once: bool = False,
    marked: Iterable[PartialObjectMetadata] = (),
    report: Callable[[ApiError | None], None] = lambda _: None,
) -> AsyncIterator[VictimStatus]:
    """Yield each victim, then each change, without an end; with `once`, only the current victims.

    Each pod in `marked` is yielded too, even if it is gone or no longer a victim when the first
    list is read. A victim is yielded a last time as `gone`, `cancelled` or `spared`.

    Retries if the API server becomes unreachable after its first answer, and calls `report` with
    each error, and with `None` after each complete list. Raises `ApiError` if it
    has never answered, or if it forbids the request.
    """
    watch = _VictimWatch(api, object_path("pods", namespace), marked)
    while True:
        try:
            async for victim in watch.list_changes():
                yield victim
            report(None)
            if once:
                return
            async for victim in watch.watch_changes():
                yield victim
        except ApiError as error:
            if once or not watch.version or error.status in _FORBIDDEN:
                raise
            _LOG.debug("watch interrupted; listing again", extra={"error": str(error)})
            if error.status != HTTPStatus.GONE:
                report(error)
                await asyncio.sleep(_RETRY_SECONDS)


class _VictimWatch:
    """Lists and watches victims, and yields only what changed since the last yield."""

    def __init__(self, api: Api, path: str, marked: Iterable[PartialObjectMetadata]) -> None:
        self.version = ""
        """The resourceVersion to watch from; empty until the first list is complete."""
        self._api = api
        self._path = path
        self._params = {"labelSelector": keys.SOFT_EVICTION}
        # No pod has an empty phase, so the first state that is read counts as a change.
        self._last_seen = {victim.uid: replace(victim, phase="") for victim in map(read, marked)}

    async def list_changes(self) -> AsyncIterator[VictimStatus]:
        """List all victims and yield the changes; raises `ApiError`."""
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
        """Yield changes until the watch ends; after an `ApiError`, a new list is needed."""
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
        """Return the victim's final state.

        A watch with a selector also sends DELETED for a pod that only lost its label, with the
        object before that change: a GET tells the two cases apart.
        """
        path = object_path("pods", victim.namespace, victim.name)
        ended = replace(victim, phase=Phase.GONE)
        try:
            pod = await self._api.get(path, PartialObjectMetadata)
            ended = read(pod) if pod.metadata.uid == victim.uid else ended
        except ApiError as error:
            if not error.is_not_found:
                raise
        # Only after the GET: without this, a victim whose GET failed would not be read again.
        self._last_seen.pop(victim.uid, None)
        return ended

"""The victims of a cluster as they change: one event each time one is marked, moves on, or goes.

Selected by the server: what is streamed grows with the victims, not with the pods.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

from reprieve_policy import eviction, keys
from reprieve_policy.eviction import Eviction, Phase
from reprieve_policy.life_table import TERMINAL
from reprieve_policy.objects import annotations_of, labels_of
from reprieve_runtime.api import Api, ApiError, PartialObject
from reprieve_runtime.paths import object_path

_LOG = logging.getLogger(__name__)
_GONE = 410
_NOT_FOUND = 404
_RETRY_SECONDS = 1.0
_FORBIDDEN = (401, 403)


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """One pod that has to go, as its metadata says."""

    namespace: str
    name: str
    uid: str
    phase: str
    preemption_class: str
    state: Eviction | None
    """`None` until the operator has taken it up."""

    @property
    def is_over(self) -> bool:
        """True where nothing more will happen to it."""
        return self.phase in TERMINAL


def read(pod: PartialObject) -> Victim:
    """Return the victim that a pod is; a state that cannot be read counts as none."""
    labels, text = labels_of(pod.metadata), annotations_of(pod.metadata).get(keys.EVICTION)
    state = None if text is None else eviction.parse(text)
    return Victim(
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


async def follow(api: Api, namespace: str | None, *, once: bool = False) -> AsyncIterator[Victim]:
    """Yield each victim as it is, then as it changes, for ever; or, `once`, as all are now.

    One that is gone is yielded a last time, as `gone`; one that stays, as `cancelled` or `spared`.
    """
    path, params = object_path("pods", namespace), {"labelSelector": keys.SOFT_EVICTION}
    known: dict[str, Victim] = {}
    while True:
        version, seen = "", set[str]()
        async for page, page_version in api.pages(path, PartialObject, params=params, metadata_only=True):
            version = page_version
            for victim in map(read, page):
                seen.add(victim.uid)
                if known.get(victim.uid) != victim:
                    known[victim.uid] = victim
                    yield victim
        for uid in known.keys() - seen:
            yield await _last_look(api, known.pop(uid))
        if once:
            return
        with contextlib.suppress(_Interrupted):
            async for victim in _changes(api, path, params, version, known):
                yield victim


class _Interrupted(Exception):  # noqa: N818 - no error: it is listed again
    """The watch ended; nothing is known of what came after."""


async def _changes(
    api: Api, path: str, params: Mapping[str, str], version: str, known: dict[str, Victim]
) -> AsyncIterator[Victim]:
    try:
        async for event in api.watch(path, PartialObject, resource_version=version, params=params):
            if event.type == "BOOKMARK":
                continue
            victim = read(event.object)
            if event.type == "DELETED":
                known.pop(victim.uid, None)
                yield await _last_look(api, victim)
            elif known.get(victim.uid) != victim:
                known[victim.uid] = victim
                yield victim
    except ApiError as error:
        if error.status in _FORBIDDEN:
            raise
        _LOG.debug("watch interrupted", extra={"error": str(error)})
        if error.status != _GONE:
            await asyncio.sleep(_RETRY_SECONDS)
    raise _Interrupted


async def _last_look(api: Api, victim: Victim) -> Victim:
    """Return how it ended. A watch says DELETED of a pod that only lost its label too, and shows it as it was before."""
    try:
        pod = await api.get(object_path("pods", victim.namespace, victim.name), PartialObject)
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        return replace(victim, phase=Phase.GONE)
    return read(pod) if pod.metadata.uid == victim.uid else replace(victim, phase=Phase.GONE)

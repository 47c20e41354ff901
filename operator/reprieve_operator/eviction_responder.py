"""The responder to native Evictions: marks the pods that they ask for, writes how far these are, stands them down.

What is to be done is `policy.responder`'s; here Evictions are watched and it is performed. Only those are streamed that name
us, by the label that their controller writes. Where the API server does not serve them, or nobody has given us the right, it
is asked once an interval, so that a server that was upgraded is noticed, and nothing else happens.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from reprieve_policy.eviction_requests import objects, responder
from reprieve_policy.eviction_requests.objects import Asked, EvictionSpec, EvictionStatus, Turn
from reprieve_policy.eviction_requests.responder import Report, Seen
from reprieve_policy.kube.timestamp import render
from reprieve_policy.lifecycle import mark
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Key, Reflector

from .background import beside
from .clock import Clock
from .cluster import pod_state
from .cluster.pods import Pod, VersionedMeta
from .cluster.policy_source import PolicySource
from .cluster.writes import Effects
from .settings import OperatorSettings
from .victims.registry import Keepers

_log = logging.getLogger(__name__)

_FORBIDDEN, _NOT_FOUND = 403, 404
_GONE_OR_CHANGED = (404, 409)
_AT_ONCE = 32
_NOTE = (
    "the operator may not read evictions.lifecycle.k8s.io (ClusterRole reprieve:answer-evictions is not bound to it): "
    "EvictionRequests are not answered"
)
_SELECTOR = f"{objects.NAME} in ({','.join(objects.ROLES)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeEviction:
    """An Eviction as it is served."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: EvictionSpec | None = None
    status: EvictionStatus | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """An Eviction, and what it asks of us."""

    metadata: VersionedMeta
    asked: Asked


class Responder:
    """One term's answers; all that it knows may be lost at any instant."""

    def __init__(
        self,
        api: Api,
        effects: Effects,
        keepers: Keepers,
        policy: PolicySource,
        clock: Clock,
        settings: OperatorSettings,
    ) -> None:
        self._effects = effects
        self._keepers = keepers
        self._policy = policy
        self._clock = clock
        self._settings = settings
        self._known: dict[Key, _Known] = {}
        self._changed = asyncio.Event()
        self._has_said = self._has_failed = False
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._reflector = Reflector(
            api,
            object_path("evictions"),
            NativeEviction,
            self._take_in,
            forget=self._forget,
            params={"labelSelector": _SELECTOR},
            absent_retry_seconds=settings.sweep_interval_seconds,
            absent=(_FORBIDDEN, _NOT_FOUND),
        )

    async def run(self) -> None:
        """Answer until cancelled, or until this replica no longer leads."""
        async with beside(self._reflector.run):
            while True:
                self._changed.clear()
                await self._answer_all()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._changed.wait()

    def _pause(self) -> float:
        is_active = any(known.asked.turn is Turn.OURS for known in self._known.values())
        settings = self._settings
        is_soon = is_active or self._has_failed
        seconds = settings.poll_interval_seconds if is_soon else settings.resync_interval_seconds
        return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - jitter

    def _take_in(self, found: NativeEviction) -> None:
        asked = objects.read(found.metadata.uid or "", found.spec, found.status)
        key = found.metadata.namespace or "", found.metadata.name or ""
        known = self._known.get(key)
        if known is not None and _version(found.metadata) < _version(known.metadata):
            # The watch has not told yet what we wrote: without this, it would be written once more.
            return
        self._known.pop(key, None)
        if asked is not None:
            self._known[key] = _Known(found.metadata, asked)
        self._changed.set()

    def _forget(self, key: Key) -> None:
        self._known.pop(key, None)
        self._changed.set()

    async def _answer_all(self) -> None:
        self._has_failed = False
        self._complain()
        await asyncio.gather(*(self._answer(known) for known in list(self._known.values())))
        if self._reflector.is_served:
            await self._stand_down_abandoned()

    async def _answer(self, known: _Known) -> None:
        if known.asked.turn is Turn.NOT_OURS:
            return
        async with self._turns:
            with self._passing_over(known.metadata):
                await self._take_step(known)

    async def _take_step(self, known: _Known) -> None:
        asked, namespace = known.asked, known.metadata.namespace or ""
        pod = self._keepers.pod(asked.pod.uid)
        if pod is None and asked.turn is Turn.OURS:
            pod = await self._effects.read(namespace, asked.pod.name, asked.pod.uid)
        seen = None if pod is None else _see(pod)
        step = responder.decide(asked, seen, self._clock.now())
        if pod is not None and step.marks:
            request = mark.render_request(asked.uid, asked.requesters)
            label = mark.EVICT if step.insists else mark.MARKED
            await self._effects.request_eviction(pod.metadata, request, label)
        if pod is not None and step.stands_down:
            await self._effects.withdraw_request(pod.metadata)
        if step.report is not None:
            await self._report(known, step.report)

    async def _report(self, known: _Known, report: Report) -> None:
        path = object_path("evictions", known.metadata.namespace, known.metadata.name, "status")
        said = {
            "name": objects.NAME,
            "heartbeatTime": render(report.heartbeat_at),
            "message": report.message,
            **({} if report.expected_at is None else {"expectedCompletionTime": render(report.expected_at)}),
            **({} if report.completed_at is None else {"completionTime": render(report.completed_at)}),
        }
        self._take_in(await self._effects.write_responder(path, known.metadata, said, NativeEviction))

    async def _stand_down_abandoned(self) -> None:
        """Take our mark from pods whose Eviction was deleted, also while nobody watched."""
        known = frozenset(found.asked.uid for found in self._known.values())
        for pod in self._keepers.pods():
            if pod.metadata.deletionTimestamp is None and responder.is_abandoned(pod_state.request_uid(pod), known):
                with self._passing_over(pod.metadata):
                    await self._effects.withdraw_request(pod.metadata)

    @contextlib.contextmanager
    def _passing_over(self, metadata: VersionedMeta) -> Iterator[None]:
        """Leave for the next look what could not be written: one pod's trouble must not be the others'."""
        try:
            yield
        except ApiError as error:
            self._has_failed = True
            if error.status not in _GONE_OR_CHANGED:
                _log.warning("eviction not answered", extra={"object": metadata.key, "error": str(error)})

    def _complain(self) -> None:
        is_barred = self._reflector.absent_as == _FORBIDDEN
        if is_barred and self._policy.current.eviction_responder and not self._has_said:
            self._has_said = True
            _log.warning("evictions cannot be read")
            self._policy.complain("EvictionsUnreadable", _NOTE)


def _see(pod: Pod) -> Seen:
    return Seen(
        names_us=any(found.name == objects.NAME for found in pod.spec.evictionResponders or ()),
        has_ended=pod_state.has_ended(pod),
        mark=pod_state.request_uid(pod),
        is_asked=pod_state.is_requested(pod.metadata) or pod.metadata.deletionTimestamp is not None,
        state=pod_state.state_of(pod.metadata),
        leaves_at=pod_state.deleted_at(pod),
    )


def _version(metadata: VersionedMeta) -> int:
    return int(metadata.resourceVersion) if metadata.resourceVersion.isdigit() else 0

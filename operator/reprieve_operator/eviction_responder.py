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
from reprieve_policy.eviction_requests.objects import (
    EvictionSpec,
    EvictionStatus,
    ResponderAssignment,
    ResponderTurn,
)
from reprieve_policy.eviction_requests.responder import ObservedPod, ResponderReport
from reprieve_policy.kube.timestamp import render
from reprieve_policy.lifecycle import mark
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Key, Reflector

from .background import background
from .clock import Clock
from .cluster import pod_state
from .cluster.pods import VersionedMeta, VictimPod
from .cluster.policy_source import PolicySource
from .cluster.writes import Writes
from .settings import OperatorSettings
from .victims.registry import ReconcilerRegistry

_log = logging.getLogger(__name__)

_FORBIDDEN, _NOT_FOUND = 403, 404
_GONE_OR_CHANGED = (404, 409)
_MAX_CONCURRENT = 32
_NOTE = (
    "the operator may not read evictions.lifecycle.k8s.io (ClusterRole reprieve:answer-evictions is not bound to it): "
    "EvictionRequests are not answered"
)
_SELECTOR = f"{objects.RESPONDER_NAME} in ({','.join(objects.RESPONDER_ROLES)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeEviction:
    """An Eviction as it is served."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: EvictionSpec | None = None
    status: EvictionStatus | None = None


@dataclass(frozen=True, slots=True)
class _WatchedEviction:
    """An Eviction, and what it asks of us."""

    metadata: VersionedMeta
    asked: ResponderAssignment


class EvictionResponder:
    """One term's answers; all that it knows may be lost at any instant."""

    def __init__(
        self,
        api: Api,
        effects: Writes,
        registry: ReconcilerRegistry,
        policy: PolicySource,
        clock: Clock,
        settings: OperatorSettings,
    ) -> None:
        self._effects = effects
        self._keepers = registry
        self._policy = policy
        self._clock = clock
        self._settings = settings
        self._evictions: dict[Key, _WatchedEviction] = {}
        self._changed = asyncio.Event()
        self._is_reported = self._has_failed = False
        self._semaphore = asyncio.Semaphore(_MAX_CONCURRENT)
        self._reflector = Reflector(
            api,
            object_path("evictions"),
            NativeEviction,
            self._on_eviction,
            on_delete=self._forget,
            params={"labelSelector": _SELECTOR},
            absent_retry_seconds=settings.sweep_interval_seconds,
            absent_statuses=(_FORBIDDEN, _NOT_FOUND),
        )

    async def run(self) -> None:
        """Answer until cancelled, or until this replica no longer leads."""
        async with background(self._reflector.run):
            while True:
                self._changed.clear()
                await self._reconcile_all()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._changed.wait()

    def _pause(self) -> float:
        is_active = any(
            known.asked.turn is ResponderTurn.ACTIVE for known in self._evictions.values()
        )
        settings = self._settings
        is_soon = is_active or self._has_failed
        seconds = settings.poll_interval_seconds if is_soon else settings.resync_interval_seconds
        return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - jitter

    def _on_eviction(self, found: NativeEviction) -> None:
        asked = objects.read(found.metadata.uid or "", found.spec, found.status)
        key = found.metadata.namespace or "", found.metadata.name or ""
        known = self._evictions.get(key)
        if known is not None and _resource_version(found.metadata) < _resource_version(
            known.metadata
        ):
            # The watch has not told yet what we wrote: without this, it would be written once more.
            return
        self._evictions.pop(key, None)
        if asked is not None:
            self._evictions[key] = _WatchedEviction(found.metadata, asked)
        self._changed.set()

    def _forget(self, key: Key) -> None:
        self._evictions.pop(key, None)
        self._changed.set()

    async def _reconcile_all(self) -> None:
        self._has_failed = False
        self._report_missing_right()
        await asyncio.gather(*(self._reconcile(known) for known in list(self._evictions.values())))
        if self._reflector.is_served:
            await self._unmark_abandoned()

    async def _reconcile(self, known: _WatchedEviction) -> None:
        if known.asked.turn is ResponderTurn.INACTIVE:
            return
        async with self._semaphore:
            with self._log_api_error(known.metadata):
                await self._apply_step(known)

    async def _apply_step(self, known: _WatchedEviction) -> None:
        asked, namespace = known.asked, known.metadata.namespace or ""
        pod = self._keepers.pod(asked.pod.uid)
        if pod is None and asked.turn is ResponderTurn.ACTIVE:
            pod = await self._effects.read_pod(namespace, asked.pod.name, asked.pod.uid)
        seen = None if pod is None else _observe(pod)
        step = responder.decide(asked, seen, self._clock.now())
        if pod is not None and step.sets_mark:
            request = mark.render_request(asked.uid, asked.requesters)
            label = mark.EVICT if step.sets_own_label else mark.MARKED
            await self._effects.add_label(pod.metadata, request, label)
        if pod is not None and step.removes_mark:
            await self._effects.remove_eviction_request(pod.metadata)
        if step.report is not None:
            await self._write_report(known, step.report)

    async def _write_report(self, known: _WatchedEviction, report: ResponderReport) -> None:
        path = object_path("evictions", known.metadata.namespace, known.metadata.name, "status")
        said = {
            "name": objects.RESPONDER_NAME,
            "heartbeatTime": render(report.heartbeat_at),
            "message": report.message,
            **(
                {}
                if report.expected_at is None
                else {"expectedCompletionTime": render(report.expected_at)}
            ),
            **(
                {}
                if report.completed_at is None
                else {"completionTime": render(report.completed_at)}
            ),
        }
        self._on_eviction(
            await self._effects.write_responder_status(path, known.metadata, said, NativeEviction)
        )

    async def _unmark_abandoned(self) -> None:
        """Take our mark from pods whose Eviction was deleted, also while nobody watched."""
        known = frozenset(found.asked.uid for found in self._evictions.values())
        for pod in self._keepers.pods():
            if pod.metadata.deletionTimestamp is None and responder.is_orphaned_mark(
                pod_state.eviction_request_uid(pod), known
            ):
                with self._log_api_error(pod.metadata):
                    await self._effects.remove_eviction_request(pod.metadata)

    @contextlib.contextmanager
    def _log_api_error(self, metadata: VersionedMeta) -> Iterator[None]:
        """Leave for the next look what could not be written: one pod's trouble must not be the others'."""
        try:
            yield
        except ApiError as error:
            self._has_failed = True
            if error.status not in _GONE_OR_CHANGED:
                _log.warning(
                    "eviction not answered", extra={"object": metadata.key, "error": str(error)}
                )

    def _report_missing_right(self) -> None:
        is_barred = self._reflector.absent_status == _FORBIDDEN
        if is_barred and self._policy.current.eviction_responder and not self._is_reported:
            self._is_reported = True
            _log.warning("evictions cannot be read")
            self._policy.record_warning("EvictionsUnreadable", _NOTE)


def _observe(pod: VictimPod) -> ObservedPod:
    return ObservedPod(
        names_responder=any(
            found.name == objects.RESPONDER_NAME for found in pod.spec.evictionResponders or ()
        ),
        has_ended=pod_state.has_ended(pod),
        mark_request_uid=pod_state.eviction_request_uid(pod),
        is_marked=pod_state.is_requested(pod.metadata)
        or pod.metadata.deletionTimestamp is not None,
        state=pod_state.state_of(pod.metadata),
        deletion_ends_at=pod_state.grace_ends_at(pod),
    )


def _resource_version(metadata: VersionedMeta) -> int:
    return int(metadata.resourceVersion) if metadata.resourceVersion.isdigit() else 0

"""The responder to native Evictions: marks their target pods, reports progress, removes the marks.

`eviction_requests.responder` decides; here Evictions are watched and the decisions performed. The
watch selects the Evictions that name us, by the label that their controller writes. If the API
server does not serve Evictions, or RBAC does not allow the operator to read them, it is asked once
an interval, so that an upgrade of the server is noticed; nothing else happens.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

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
from .cluster.policies import PolicySource
from .cluster.retries import GONE_OR_CHANGED
from .cluster.writes import Writes
from .settings import OperatorSettings
from .victims.registry import ReconcilerRegistry

_log = logging.getLogger(__name__)

_MAX_CONCURRENT = 32
_MISSING_RIGHT_NOTE = (
    "the operator may not read evictions.lifecycle.k8s.io "
    "(ClusterRole reprieve:answer-evictions is not bound to it): "
    "EvictionRequests are not answered"
)
_SELECTOR = f"{objects.RESPONDER_NAME} in ({','.join(objects.RESPONDER_ROLES)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeEviction:
    """An Eviction as the API server returns it."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: EvictionSpec | None = None
    status: EvictionStatus | None = None


@dataclass(frozen=True, slots=True)
class _WatchedEviction:
    """An Eviction, and the part of it that names us."""

    metadata: VersionedMeta
    assignment: ResponderAssignment


class EvictionResponder:
    """Answers Evictions during one term; what it knows may be lost at any time."""

    def __init__(
        self,
        api: Api,
        writes: Writes,
        registry: ReconcilerRegistry,
        policy: PolicySource,
        clock: Clock,
        settings: OperatorSettings,
    ) -> None:
        self._writes = writes
        self._registry = registry
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
            absent_statuses=(HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND),
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
            watched.assignment.turn is ResponderTurn.ACTIVE for watched in self._evictions.values()
        )
        settings = self._settings
        is_soon = is_active or self._has_failed
        seconds = settings.poll_interval_seconds if is_soon else settings.resync_interval_seconds
        return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - jitter

    def _on_eviction(self, native: NativeEviction) -> None:
        assignment = objects.read(native.metadata.uid or "", native.spec, native.status)
        key = native.metadata.namespace or "", native.metadata.name or ""
        watched = self._evictions.get(key)
        if watched is not None and native.metadata.version < watched.metadata.version:
            # The watch does not show our write yet. Without this, it would be made again.
            return
        self._evictions.pop(key, None)
        if assignment is not None:
            self._evictions[key] = _WatchedEviction(native.metadata, assignment)
        self._changed.set()

    def _forget(self, key: Key) -> None:
        self._evictions.pop(key, None)
        self._changed.set()

    async def _reconcile_all(self) -> None:
        self._has_failed = False
        self._report_missing_right()
        await asyncio.gather(
            *(self._reconcile(watched) for watched in list(self._evictions.values()))
        )
        if self._reflector.is_served:
            await self._unmark_abandoned()

    async def _reconcile(self, watched: _WatchedEviction) -> None:
        if watched.assignment.turn is ResponderTurn.INACTIVE:
            return
        async with self._semaphore:
            with self._log_api_error(watched.metadata):
                await self._apply_step(watched)

    async def _apply_step(self, watched: _WatchedEviction) -> None:
        assignment, namespace = watched.assignment, watched.metadata.namespace or ""
        pod = self._registry.pod(assignment.pod.uid)
        if pod is None and assignment.turn is ResponderTurn.ACTIVE:
            pod = await self._writes.read_pod(namespace, assignment.pod.name, assignment.pod.uid)
        seen = None if pod is None else _observe(pod)
        step = responder.decide(assignment, seen, self._clock.now())
        if pod is not None and step.sets_mark:
            request = mark.render_request(assignment.uid, assignment.requesters)
            label = mark.EVICT if step.sets_own_label else mark.MARKED
            await self._writes.add_label(pod.metadata, request, label)
        if pod is not None and step.removes_mark:
            await self._writes.remove_eviction_request(pod.metadata)
        if step.report is not None:
            await self._write_report(watched, step.report)

    async def _write_report(self, watched: _WatchedEviction, report: ResponderReport) -> None:
        path = object_path("evictions", watched.metadata.namespace, watched.metadata.name, "status")
        status = {
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
            await self._writes.write_responder_status(
                path, watched.metadata, status, NativeEviction
            )
        )

    async def _unmark_abandoned(self) -> None:
        """Remove our mark from pods whose Eviction was deleted, also while no operator watched."""
        known_uids = frozenset(watched.assignment.uid for watched in self._evictions.values())
        for pod in self._registry.pods():
            if pod.metadata.deletionTimestamp is None and responder.is_orphaned_mark(
                pod_state.eviction_request_uid(pod), known_uids
            ):
                with self._log_api_error(pod.metadata):
                    await self._writes.remove_eviction_request(pod.metadata)

    @contextlib.contextmanager
    def _log_api_error(self, metadata: VersionedMeta) -> Iterator[None]:
        """Log a write that failed: it is tried again in the next turn, and others go on."""
        try:
            yield
        except ApiError as error:
            self._has_failed = True
            if error.status not in GONE_OR_CHANGED:
                _log.warning(
                    "could not answer the Eviction",
                    extra={"object": metadata.key, "error": str(error)},
                )

    def _report_missing_right(self) -> None:
        is_barred = self._reflector.absent_status == HTTPStatus.FORBIDDEN
        if is_barred and self._policy.current.eviction_responder and not self._is_reported:
            self._is_reported = True
            _log.warning("the operator may not read Evictions")
            self._policy.record_warning("EvictionsUnreadable", _MISSING_RIGHT_NOTE)


def _observe(pod: VictimPod) -> ObservedPod:
    return ObservedPod(
        names_responder=any(
            named.name == objects.RESPONDER_NAME for named in pod.spec.evictionResponders or ()
        ),
        has_ended=pod_state.has_ended(pod),
        mark_request_uid=pod_state.eviction_request_uid(pod),
        is_marked=pod_state.is_requested(pod.metadata)
        or pod.metadata.deletionTimestamp is not None,
        state=pod_state.state_of(pod.metadata),
        deletion_ends_at=pod_state.grace_ends_at(pod),
    )

"""Writes Kubernetes Events: best effort, bounded, and behind all calls about victims.

No Event names the preemptor or the initiator: they may belong to another tenant.
"""

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reprieve_operator.clock import Clock
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.kube.objects import VersionedMeta, controller_of
from reprieve_policy.kube.values import timestamp
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from .call_limiter import CallLimiter, CallPriority
from .pods import VersionedObject

_log = logging.getLogger(__name__)

CONTROLLER = "reprieve.dev/operator"
_QUEUE_SIZE, _QUEUE_SIZE_FOR_NORMAL = 10_000, 8_000
"""The most Events that wait; the difference is reserved for warnings. Events beyond it are only
counted, by Namespace and reason."""
_EVENTS_PER_SECOND = 100
_LIMITER_WAIT_SECONDS = 0.2
"""How long an Event waits for calls about victims: even in a burst, some are written."""
_MAX_NOTE = 1000
"""Bytes; the API server refuses more than 1,024."""

_NORMAL, _WARNING = "Normal", "Warning"
REASONS: dict[str, tuple[str, str]] = {
    "PreemptionRefused": ("Refuse", _NORMAL),
    "CheckpointRequested": ("Hint", _NORMAL),
    "CheckpointNotRequested": ("Delete", _NORMAL),
    "CheckpointAcknowledged": ("Wait", _NORMAL),
    "CheckpointExtended": ("Wait", _NORMAL),
    "CheckpointDeferred": ("Wait", _NORMAL),
    "CheckpointSaved": ("Delete", _NORMAL),
    "CheckpointNotSent": ("Delete", _WARNING),
    "CheckpointUnanswered": ("Delete", _WARNING),
    "CheckpointTimedOut": ("Delete", _WARNING),
    "CheckpointRefused": ("Delete", _WARNING),
    "CheckpointAnswerUnreadable": ("Hint", _WARNING),
    "CheckpointHintByAnnotation": ("Hint", _WARNING),
    "SoftEvictionWaiting": ("Wait", _NORMAL),
    "SoftEvictionDeleting": ("Delete", _NORMAL),
    "SoftEvictionOvertaken": ("Wait", _WARNING),
    "SoftEvictionFinished": ("Finish", _NORMAL),
    "SoftEvictionCancelled": ("Cancel", _NORMAL),
    "SoftEvictionCompleted": ("Complete", _NORMAL),
    "PodPreempted": ("Delete", _NORMAL),
    "PodEvicted": ("Delete", _NORMAL),
    "PodEndedWithoutCheckpoint": ("Delete", _WARNING),
    "SoftEvictionUnreadable": ("Read", _WARNING),
    "SoftEvictionLeftOver": ("Read", _WARNING),
    "SoftEvictionWithoutNotice": ("Delete", _WARNING),
    "GangGoesAsAWhole": ("Hint", _NORMAL),
    "GangTooLarge": ("Hint", _WARNING),
    "SoftEvictionRequeued": ("Create", _NORMAL),
    "SoftEvictionRequeueRefused": ("Create", _WARNING),
    "SoftEvictionNotRequeued": ("Create", _WARNING),
    "SoftEvictionNotCounted": ("Delete", _WARNING),
    "GangDiverges": ("Read", _WARNING),
    "WaitingForBudget": ("Wait", _WARNING),
    "JobSuspended": ("Suspend", _NORMAL),
    "JobResumed": ("Resume", _NORMAL),
    "JobNotResumed": ("Resume", _WARNING),
    "WaitingForFinalizers": ("Wait", _WARNING),
    "WaitingForCleaners": ("Wait", _NORMAL),
    "CleanersTimedOut": ("Delete", _WARNING),
    "CleanupCeilingReached": ("Release", _WARNING),
    "ProtectionUnchecked": ("Read", _WARNING),
    "PolicyUnreadable": ("Read", _WARNING),
    "LostNodesUnreadable": ("Read", _WARNING),
    "LentNodesUnreadable": ("Read", _WARNING),
    "LentNodeReclaimed": ("Reclaim", _NORMAL),
    "GangWaiting": ("Wait", _NORMAL),
    "GangWaitingForRoom": ("Wait", _NORMAL),
    "GangReleased": ("Release", _NORMAL),
    "GangIncomplete": ("Wait", _WARNING),
    "GangHeldBack": ("Delete", _WARNING),
    "GangNotReplaced": ("Wait", _WARNING),
    "GangRoomUnknown": ("Read", _WARNING),
}
"""Every reason, with its action and type."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an Event is about; `namespace` is empty for a node."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"

    @classmethod
    def for_pod(cls, metadata: VersionedMeta) -> "ObjectReference":
        """Return the reference to a pod."""
        return cls("Pod", metadata.namespace or "", metadata.name or "", metadata.uid or "")

    @classmethod
    def for_controller(cls, metadata: VersionedMeta) -> "ObjectReference | None":
        """Return the reference to a pod's controller; `None` if it has none."""
        owner = controller_of(metadata)
        if owner is None:
            return None
        return cls(owner.kind, metadata.namespace or "", owner.name, owner.uid, owner.apiVersion)

    @classmethod
    def for_job(cls, metadata: VersionedMeta) -> "ObjectReference":
        """Return the reference to a Job."""
        return cls(
            "Job", metadata.namespace or "", metadata.name or "", metadata.uid or "", "batch/v1"
        )


@dataclass(frozen=True, slots=True)
class _QueuedEvent:
    """One Event that waits; as a JSON document, it would take three times the memory."""

    regarding: ObjectReference
    reason: str
    note: str
    event_time: datetime
    once: bool = False


class EventRecorder:
    """Queues Events and writes them one after another, behind all calls about victims."""

    def __init__(
        self,
        api: Api,
        call_limiter: CallLimiter,
        reporting_instance: str,
        metrics: OperatorMetrics,
        clock: Clock,
    ) -> None:
        self._api = api
        self._call_limiter = call_limiter
        self._reporting_instance = reporting_instance
        self._metrics = metrics
        self._clock = clock
        self.on_event: Callable[[ObjectReference, str, str], None] = lambda *_: None
        """Called with each Event, also with those that are dropped."""
        self._queue: asyncio.Queue[_QueuedEvent] = asyncio.Queue(_QUEUE_SIZE)
        self._dropped = Counter[tuple[str, str]]()

    def event(
        self, regarding: ObjectReference, reason: str, note: str, *, once: bool = False
    ) -> None:
        """Queue one Event.

        If too many wait, one Event for the Namespace says later how many were dropped. With
        `once`, no replica repeats the same note on the same object for as long as the API server
        keeps the Event.
        """
        _log.info(
            "event",
            extra={
                "reason": reason,
                "object": f"{regarding.namespace}/{regarding.name}",
                "note": note,
            },
        )
        self.on_event(regarding, reason, note)
        limit = _QUEUE_SIZE_FOR_NORMAL if REASONS[reason][1] == _NORMAL else _QUEUE_SIZE
        if self._queue.qsize() < limit:
            self._queue.put_nowait(_QueuedEvent(regarding, reason, note, self._clock.now(), once))
        else:
            self._dropped[_namespace_of(regarding), reason] += 1
            self._metrics.events_dropped.inc()

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            await self._write(await self._queue.get(), _LIMITER_WAIT_SECONDS)
            if self._queue.empty():
                self._record_dropped()
            await asyncio.sleep(1 / _EVENTS_PER_SECOND)

    def _record_dropped(self) -> None:
        dropped, self._dropped = self._dropped, Counter()
        for (namespace, reason), count in dropped.items():
            note = f"Events like this that were dropped because too many waited: {count}"
            self.event(ObjectReference("Namespace", namespace, namespace, ""), reason, note)

    async def drain(self, timeout_seconds: float) -> None:
        """Write what is still queued, for at most so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while not self._queue.empty():
                    await self._write(self._queue.get_nowait(), 0)

    async def _write(self, event: _QueuedEvent, wait_seconds: float) -> None:
        namespace = _namespace_of(event.regarding)
        try:
            async with contextlib.AsyncExitStack() as stack:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await stack.enter_async_context(
                            self._call_limiter.acquire(CallPriority.EVENT, namespace)
                        )
                await self._api.post(
                    object_path("events", namespace), self._build_event(event), VersionedObject
                )
            self._metrics.api_calls.labels("create", "ok").inc()
        except ApiError as error:
            self._metrics.api_calls.labels("create", str(error.status or "unreachable")).inc()
            # 403: a namespace that is being deleted takes no Events. 409: an Event that is written
            # once exists already.
            is_expected = error.is_forbidden or error.is_conflict
            level = logging.DEBUG if is_expected else logging.WARNING
            _log.log(level, "could not write an Event", extra={"error": str(error)})

    def _build_event(self, event: _QueuedEvent) -> dict[str, Any]:
        regarding, (action, event_type) = event.regarding, REASONS[event.reason]
        content = f"{regarding.uid} {event.reason} {event.note}".encode()
        suffix = hashlib.sha256(content).hexdigest()[:16] if event.once else secrets.token_hex(8)
        reference = {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "name": regarding.name,
        }
        if regarding.namespace:
            reference["namespace"] = regarding.namespace
        if regarding.uid:
            reference["uid"] = regarding.uid
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding.name[:200]}.{suffix}",
                "namespace": _namespace_of(regarding),
            },
            "eventTime": timestamp.render_micro(event.event_time),
            "reportingController": CONTROLLER,
            "reportingInstance": self._reporting_instance[:128],
            "action": action,
            "reason": event.reason,
            "regarding": reference,
            "note": event.note.encode()[:_MAX_NOTE].decode("utf-8", "ignore"),
            "type": event_type,
        }


def _namespace_of(regarding: ObjectReference) -> str:
    """Return where the Event is written: those about nodes are in `default`, as the kubelet's."""
    return regarding.namespace or "default"

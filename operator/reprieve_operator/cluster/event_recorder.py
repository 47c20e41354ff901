"""Writes Kubernetes Events: best effort, bounded, and behind all calls about victims.

No Event names the preemptor or the initiator: they may belong to another tenant.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
import secrets
from collections.abc import Callable
from typing import Any

from reprieve_operator.clock import Clock
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.kube.pod_events import CONTROLLER
from reprieve_policy.kube.values import timestamp
from reprieve_runtime.client.api import METADATA_ONLY, Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.waiting import wait_at_most

from .bursts import Bursts
from .call_limiter import CallLimiter, CallPriority
from .event_queue import EventQueue
from .events import REASONS as REASONS  # noqa: PLC0414 - callers import it from here
from .events import ObjectReference as ObjectReference  # noqa: PLC0414 - and this
from .events import QueuedEvent
from .pods import VersionedObject

_log = logging.getLogger(__name__)

_EVENTS_PER_SECOND = 100
_LIMITER_WAIT_SECONDS = 0.2
"""How long an Event waits for calls about victims: even in a burst, some are written."""
_MAX_NOTE = 1000
"""Bytes; the API server refuses more than 1,024."""


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
        self._bursts = Bursts(clock)
        self._queue = EventQueue(self._bursts, on_drop=metrics.events_dropped.inc)
        self._added = asyncio.Event()

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
        event = QueuedEvent(regarding, reason, note, self._clock.now(), once)
        self._queue.add(event, self._clock.monotonic())
        self._added.set()

    def is_burst(self, namespace: str) -> bool:
        """True if many pods of the Namespace had Events within the last minute."""
        return self._bursts.is_burst(namespace)

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            await self._write(await self._next(), _LIMITER_WAIT_SECONDS)
            if not self._queue:
                self._record_dropped()
            await asyncio.sleep(1 / _EVENTS_PER_SECOND)

    async def _next(self) -> QueuedEvent:
        """Wait for the next Event that is due."""
        while True:
            self._added.clear()
            now = self._clock.monotonic()
            event = self._queue.pop(now)
            if event is not None:
                return event
            due = self._queue.next_due()
            await wait_at_most(self._added, math.inf if due is None else due - now)

    def _record_dropped(self) -> None:
        for (namespace, reason), count in self._queue.take_dropped().items():
            note = f"Events like this that were dropped because too many waited: {count}"
            self.event(ObjectReference.for_namespace(namespace), reason, note)

    async def drain(self, timeout_seconds: float) -> None:
        """Write what is still queued, for at most so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while (event := self._queue.pop(math.inf)) is not None:
                    await self._write(event, 0)

    async def _write(self, event: QueuedEvent, wait_seconds: float) -> None:
        namespace = event.namespace
        try:
            async with contextlib.AsyncExitStack() as stack:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await stack.enter_async_context(
                            self._call_limiter.acquire(CallPriority.EVENT, namespace)
                        )
                await self._api.post(
                    object_path("events", namespace),
                    self._build_event(event),
                    VersionedObject,
                    accept=METADATA_ONLY,
                )
            self._metrics.api_calls.labels("create", "ok").inc()
        except ApiError as error:
            self._metrics.api_calls.labels("create", str(error.status or "unreachable")).inc()
            # 403: a namespace that is being deleted takes no Events. 409: an Event that is written
            # once exists already.
            is_expected = error.is_forbidden or error.is_conflict
            level = logging.DEBUG if is_expected else logging.WARNING
            _log.log(level, "could not write an Event", extra={"error": str(error)})

    def _build_event(self, event: QueuedEvent) -> dict[str, Any]:
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
        document = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding.name[:200]}.{suffix}",
                "namespace": event.namespace,
            },
            "eventTime": timestamp.render_micro(event.first_time or event.event_time),
            "reportingController": CONTROLLER,
            "reportingInstance": self._reporting_instance[:128],
            "action": action,
            "reason": event.reason,
            "regarding": reference,
            "note": _note_text(event).encode()[:_MAX_NOTE].decode("utf-8", "ignore"),
            "type": event_type,
        }
        if event.count > 1:
            last = timestamp.render_micro(event.event_time)
            document["series"] = {"count": event.count, "lastObservedTime": last}
        return document


def _note_text(event: QueuedEvent) -> str:
    """Return the note, with the steps that it stands for."""
    if event.count > 1:
        return f"(combined from similar events): {event.note}"
    if not event.earlier:
        return event.note
    earlier = "; ".join(f"{reason}: {note}" for reason, note in event.earlier)
    return f"{event.note} (before that: {earlier})"

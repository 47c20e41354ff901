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
from .namespace_rests import SLOW_SECONDS, rest_seconds
from .pods import VersionedObject

_log = logging.getLogger(__name__)

_EVENTS_PER_SECOND = 100
_LIMITER_WAIT_SECONDS = 0.2
"""How long an Event waits for calls about victims: even in a burst, some are written."""
_MAX_WRITES = 16
"""Events that are written at a time, each of another Namespace: a webhook may cover the Events of
one, and not answer."""
_MAX_NOTE = 1000
"""Bytes; the API server refuses more than 1,024."""


class EventRecorder:
    """Queues Events and writes them behind calls about victims, one of a Namespace at a time."""

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
        self._writes = asyncio.Semaphore(_MAX_WRITES)
        self._limiter_turn = asyncio.Lock()
        """Held by the one Event that waits for calls about victims."""
        self._changed = asyncio.Event()
        """An Event was added, or a write has ended."""

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
        self._changed.set()

    def is_burst(self, namespace: str) -> bool:
        """True if many pods of the Namespace had Events within the last minute."""
        return self._bursts.is_burst(namespace)

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        await self._write_queued(is_draining=False)

    async def drain(self, timeout_seconds: float) -> None:
        """Write what is still queued, for at most so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._write_queued(is_draining=True)

    async def _write_queued(self, *, is_draining: bool) -> None:
        busy: set[str] = set()
        async with asyncio.TaskGroup() as tasks:
            while self._queue or not is_draining:
                event = await self._next(busy, is_draining=is_draining)
                busy.add(event.namespace)
                wait_seconds = 0 if is_draining else _LIMITER_WAIT_SECONDS
                tasks.create_task(self._write_and_rest(event, wait_seconds, busy))
                await asyncio.sleep(0 if is_draining else 1 / _EVENTS_PER_SECOND)

    async def _next(self, busy: set[str], *, is_draining: bool) -> QueuedEvent:
        """Wait for the next Event that is due, of a Namespace that is not busy."""
        while True:
            self._changed.clear()
            pause = math.inf
            if not self._writes.locked():
                now = math.inf if is_draining else self._clock.monotonic()
                event = self._queue.pop(now, busy)
                if event is not None:
                    return event
                self._record_dropped()
                due = self._queue.next_due()
                pause = math.inf if due is None else due - now
            await wait_at_most(self._changed, pause)

    async def _write_and_rest(
        self, event: QueuedEvent, wait_seconds: float, busy: set[str]
    ) -> None:
        """Write an Event; its Namespace is busy until then, and for longer if that was slow.

        Without this, as many Namespaces as there are writes at a time would hold up the Events of
        all others.
        """
        seconds = await self._write(event, wait_seconds)
        self._changed.set()
        if seconds > SLOW_SECONDS:
            await asyncio.sleep(rest_seconds(seconds))
        busy.remove(event.namespace)
        self._changed.set()

    def _record_dropped(self) -> None:
        for (namespace, reason), count in self._queue.take_dropped().items():
            note = f"Events like this that were dropped because too many waited: {count}"
            self.event(ObjectReference.for_namespace(namespace), reason, note)

    async def _write(self, event: QueuedEvent, wait_seconds: float) -> float:
        """Write an Event; return how many seconds the API server took."""
        async with self._writes:
            try:
                await self._wait_for_victims(event.namespace, wait_seconds)
            except asyncio.CancelledError:
                # The term ends: what drains the queue writes it.
                self._queue.put_back(event)
                raise
            called_at = self._clock.monotonic()
            await self._post(event)
            return self._clock.monotonic() - called_at

    async def _wait_for_victims(self, namespace: str, seconds: float) -> None:
        """Wait until no call about victims is before an Event, at most for so long."""
        async with self._limiter_turn:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    # The slot is not kept: Events that get no answer, in many Namespaces, would
                    # take from the shares of calls about victims.
                    async with self._call_limiter.acquire(CallPriority.EVENT, namespace):
                        pass

    async def _post(self, event: QueuedEvent) -> None:
        try:
            await self._api.post(
                object_path("events", event.namespace),
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
                # A part of the name ends with a letter or digit, or the API server refuses it.
                "name": f"{regarding.name[:200].rstrip('-.')}.{suffix}",
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

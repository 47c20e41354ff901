"""The calls to one workload: when to call, the delivery state of the hint, and the newest answer.

Calls run in tasks beside the reconciler, so that a slow workload never delays a cancellation.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallTicket
from reprieve_operator.settings import OperatorSettings
from reprieve_policy.checkpointing.contract import CheckpointAnswer, CheckpointRequest
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.backoff import Backoff, jittered

from . import delivery
from .client import CheckpointClient
from .delivery import DeliveryState
from .endpoints import Endpoint
from .transport import ReplyKind, WorkloadReply

_log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 0.5
_LEAST_CALL_SECONDS = 1.0
_FINAL_POLL_SECONDS = 2.0
"""Time limit of the final poll at a deadline: the victim's time is over and others wait."""
_REST_PER_CALL_SECOND = 4.0
"""Until the next poll, if a call takes longer than the usual time between two: of ten thousand
victims, each waits for the others. Without this, all of the operator's time would go into polls,
and none into what the answers ask for. The wait counts only where the workload's own Namespace has
that many calls: without this, Namespaces whose workloads hang would have those of others polled
less often."""


class CheckpointPoller:
    """Calls to one workload, one at a time."""

    def __init__(
        self,
        client: CheckpointClient,
        settings: OperatorSettings,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._wake = wake
        self._delivery: DeliveryState | None = None
        self._call: asyncio.Task[WorkloadReply] | None = None
        self._ticket: CallTicket | None = None
        """For the call of the first hint, until that call ends."""
        self._next_call_at = self._called_at = 0.0
        self._begun_at: float | None = None
        """When the call stopped waiting for others."""
        self._namespace = ""
        self._backoff = self._new_backoff()
        self._polled_at_deadline: datetime | None = None
        self._expected_end: datetime | None = None
        self.answer: CheckpointAnswer | None = None
        """The newest answer, until `clear_answer`: acting on it may take several tries."""
        self.answer_error = ""
        self.undeliverable_reason = ""
        """Why the declared hint cannot be delivered; empty if it can."""

    def begin_attempt(self) -> None:
        """Start a new attempt that this process has just recorded: the hint is sent next."""
        self._cancel_call()
        self._delivery = DeliveryState.UNSENT
        self._next_call_at = 0.0
        self._backoff = self._new_backoff()

    def reserve_call(self, namespace: str) -> bool:
        """Reserve the call of the first hint; `False` while it waits for others.

        The victim is woken when it may call. A call that is reserved is used by the next hint, or
        released by `release_call`.
        """
        if self._ticket is None:
            self._ticket = self._client.reserve_call(namespace, self._wake)
        return self._ticket.is_granted

    def release_call(self) -> None:
        """Leave the call that was reserved to others, unless it is in progress."""
        if self._ticket is not None and self._call is None:
            self._ticket.release()
            self._ticket = None

    def clear_answer(self, answer: CheckpointAnswer | None) -> None:
        """Drop an answer that was acted on; a newer one is kept."""
        if answer is self.answer:
            self.answer = None

    @property
    def hint_lost(self) -> bool:
        """True if the workload does not confirm a hint that an earlier process recorded."""
        return self._delivery is DeliveryState.LOST

    @property
    def request_forgotten(self) -> bool:
        """True if this process sent the hint and the workload does not (or no longer) know it."""
        return self._delivery in (DeliveryState.FORGOTTEN, DeliveryState.UNATTRIBUTED)

    def stop_attempts(self) -> None:
        """Expect no further attempt."""
        if self._delivery is not None:
            self._delivery = delivery.state_without_attempts(self._delivery)

    def is_final_poll_due(self, state: Eviction, now: datetime) -> bool:
        """True if the deadline has passed and the workload was not polled since."""
        return (
            state.deadline is not None
            and now >= state.deadline
            and self._polled_at_deadline != state.deadline
        )

    def poll(
        self,
        endpoint: Endpoint,
        state: Eviction,
        request: CheckpointRequest,
        now: datetime,
        namespace: str,
        *,
        expected_end: datetime | None = None,
    ) -> float:
        """Start a call if one is due; return the seconds until the next call is due.

        `expected_end` is when the save is expected to end; `None` if that is unknown.
        """
        self._expected_end = expected_end
        if self._call is not None:
            return self._settings.poll_interval_seconds
        is_final = self.is_final_poll_due(state, now)
        wait = self._next_call_at - self._clock.monotonic()
        if wait > 0 and not is_final:
            return wait
        if is_final:
            self._polled_at_deadline = state.deadline
        self._namespace, self._begun_at = namespace, None
        state_before = self._delivery or delivery.initial_state(state)
        self._delivery = state_before
        limit = self._call_timeout(state, now)
        # The final call is never a new hint: the workload would have no time to act on it.
        is_hint = state_before is DeliveryState.UNSENT and not is_final
        if is_hint:
            call = self._client.request_checkpoint(
                endpoint,
                request,
                limit,
                namespace=namespace,
                ticket=self._ticket,
                on_begin=self._note_begin,
            )
        else:
            self.release_call()
            call = self._client.poll(
                endpoint,
                state.eviction_id,
                limit,
                namespace=namespace,
                on_begin=self._note_begin,
            )
        self._called_at = self._clock.monotonic()
        self._call = asyncio.create_task(call)
        self._call.add_done_callback(self._handle_reply)
        return self._settings.poll_interval_seconds

    @property
    def is_calling(self) -> bool:
        """True while a call is in progress."""
        return self._call is not None

    async def close(self) -> None:
        """Cancel the call that is in progress, and wait for its end."""
        call = self._call
        self._cancel_call()
        self.release_call()
        # Without this, an answer to one eviction would count for the next one.
        self.answer = None
        if call is not None:
            # Not `await call`: its cancellation and that of this task would look the same, and
            # the loss of the lease would be missed.
            await asyncio.wait([call])

    def _call_timeout(self, state: Eviction, now: datetime) -> float:
        """Limit a call to the victim's remaining time: a workload that hangs must not exceed it."""
        left = 0.0 if state.deadline is None else (state.deadline - now).total_seconds()
        shortest = _FINAL_POLL_SECONDS if left <= 0 else max(left, _LEAST_CALL_SECONDS)
        return min(self._settings.hint_timeout_seconds, shortest)

    def _handle_reply(self, call: "asyncio.Task[WorkloadReply]") -> None:
        if call is not self._call or call.cancelled():
            return
        self._call = None
        self.release_call()
        error = call.exception()
        if error is not None:
            # Unexpected error while handling the reply: treat the outcome as unknown, so that the
            # hint is not sent again.
            _log.error("checkpoint call failed unexpectedly", exc_info=error)
        reply = (
            WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=type(error).__name__)
            if error is not None
            else call.result()
        )
        assert self._delivery is not None
        _log.debug(
            "workload replied",
            extra={"reply": reply.kind.name, "detail": reply.detail or reply.answer_error},
        )
        self._delivery = delivery.next_state(self._delivery, reply.kind)
        self._next_call_at = self._clock.monotonic() + self._delay_after(reply)
        if self._delivery is DeliveryState.ANSWERED:
            # Without this, an answer that names no request would count before it is known to
            # belong to this request.
            self.answer = reply.answer or self.answer
        self.answer_error = reply.answer_error
        self.undeliverable_reason = reply.detail if reply.kind is ReplyKind.UNDELIVERABLE else ""
        self._wake()

    def _delay_after(self, reply: WorkloadReply) -> float:
        """Return the seconds until the next call.

        Soon if the workload received nothing, seldom if it cannot be polled.
        """
        poll = self._settings.poll_interval_seconds
        if self._delivery is DeliveryState.UNSENT and reply.kind is ReplyKind.UNKNOWN_REQUEST:
            return 0.0
        if self._delivery is DeliveryState.CANNOT_POLL:
            return jittered(self._settings.resync_interval_seconds, 0.1)
        if reply.kind is ReplyKind.NOT_RECEIVED:
            return self._backoff.next_delay()
        took = self._call_seconds()
        if took > poll:
            longest = max(poll, self._settings.resync_interval_seconds)
            return min(_REST_PER_CALL_SECOND * took, longest)
        return self._until_next_poll(jittered(poll, 0.1))

    def _note_begin(self) -> None:
        self._begun_at = self._clock.monotonic()

    def _call_seconds(self) -> float:
        """Return how long the call took; with its wait if that was for its own Namespace."""
        now = self._clock.monotonic()
        if self._client.waits_for_itself(self._namespace):
            return now - self._called_at
        return 0.0 if self._begun_at is None else now - self._begun_at

    def _until_next_poll(self, poll_seconds: float) -> float:
        """Return the seconds until the next poll: the save's expected end comes before the usual.

        Without this, the preemptor would wait for half of a poll's interval longer.
        """
        if self._expected_end is None:
            return poll_seconds
        left = (self._expected_end - self._clock.now()).total_seconds()
        return left if 0 < left < poll_seconds else poll_seconds

    def _new_backoff(self) -> Backoff:
        longest = self._settings.poll_interval_seconds
        return Backoff(min(_FIRST_RETRY_SECONDS, longest), longest, jitter=0.2)

    def _cancel_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

"""The conversation with one workload: when to call, what is known of the hint, and the newest answer.

Calls run beside the keeper, so that a slow workload never delays a cancellation.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime

from reprieve_operator.clock import Clock
from reprieve_operator.settings import OperatorSettings
from reprieve_policy.checkpointing.contract import CheckpointAnswer, CheckpointRequest
from reprieve_policy.lifecycle.eviction import Eviction

from . import delivery
from .client import CheckpointClient
from .delivery import DeliveryState
from .endpoints import Endpoint
from .transport import ReplyKind, WorkloadReply

_log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 0.25
_LEAST_CALL_SECONDS = 1.0
_FINAL_POLL_SECONDS = 2.0
"""For the question before a deadline passes: the victim's time is over, others wait."""


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
        self._next_call_at = 0.0
        self._failed_calls = 0
        self._polled_at_deadline: datetime | None = None
        self.answer: CheckpointAnswer | None = None
        """The newest, until it is forgotten: acting on it may take several tries."""
        self.answer_error = ""
        self.undeliverable_reason = ""
        """Why the way that was declared leads nowhere; empty where it does."""

    def begin_attempt(self) -> None:
        """Note that this process has just written down a new attempt: it is to be told."""
        self._cancel_call()
        self._delivery = DeliveryState.UNSENT
        self._next_call_at, self._failed_calls = 0.0, 0

    def clear_answer(self, answer: CheckpointAnswer | None) -> None:
        """Note that this answer was acted on; a newer one stays."""
        if answer is self.answer:
            self.answer = None

    @property
    def hint_lost(self) -> bool:
        """True where the workload does not say that it knows of a hint that an earlier process wrote down."""
        return self._delivery is DeliveryState.LOST

    @property
    def request_forgotten(self) -> bool:
        """True where the workload was told by this process, and does not say, or no longer, that it knows of this request."""
        return self._delivery in (DeliveryState.FORGOTTEN, DeliveryState.UNATTRIBUTED)

    def stop_attempts(self) -> None:
        """Note that there is no further attempt."""
        if self._delivery is not None:
            self._delivery = delivery.state_without_attempts(self._delivery)

    def is_final_poll_due(self, state: Eviction, now: datetime) -> bool:
        """True where a deadline has come and the workload was not asked since."""
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
    ) -> float:
        """Start a call where one is due; return the seconds until the next is, should nothing else happen."""
        if self._call is not None:
            return self._settings.poll_interval_seconds
        is_last_word = self.is_final_poll_due(state, now)
        wait = self._next_call_at - self._clock.monotonic()
        if wait > 0 and not is_last_word:
            return wait
        if is_last_word:
            self._polled_at_deadline = state.deadline
        knowledge = self._delivery or delivery.initial_state(state)
        self._delivery = knowledge
        limit = self._call_timeout(state, now)
        # The last word is never a new hint: there would be no time left to act on it.
        is_hint = knowledge is DeliveryState.UNSENT and not is_last_word
        if is_hint:
            call = self._client.request_checkpoint(endpoint, request, limit, namespace=namespace)
        else:
            call = self._client.poll(endpoint, state.eviction_id, limit, namespace=namespace)
        self._call = asyncio.create_task(call)
        self._call.add_done_callback(self._handle_reply)
        return self._settings.poll_interval_seconds

    @property
    def is_calling(self) -> bool:
        """True while a call is under way."""
        return self._call is not None

    async def close(self) -> None:
        """End the call that is under way."""
        call = self._call
        self._cancel_call()
        # Without this, what it said of one eviction would be taken for its word on the next.
        self.answer = None
        if call is not None:
            # Not `await call`: its cancellation and our own would look the same, and a lost lease would be missed.
            await asyncio.wait([call])

    def _call_timeout(self, state: Eviction, now: datetime) -> float:
        """Bound a call by what is left of the victim's time: a workload that hangs must not outlive its deadline."""
        left = 0.0 if state.deadline is None else (state.deadline - now).total_seconds()
        shortest = _FINAL_POLL_SECONDS if left <= 0 else max(left, _LEAST_CALL_SECONDS)
        return min(self._settings.hint_timeout_seconds, shortest)

    def _handle_reply(self, call: "asyncio.Task[WorkloadReply]") -> None:
        if call is not self._call or call.cancelled():
            return
        self._call = None
        error = call.exception()
        if error is not None:
            # What a workload answered was thought of by nobody. Without this, it would be told again.
            _log.error("call failed", exc_info=error)
        reply = (
            WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=type(error).__name__)
            if error is not None
            else call.result()
        )
        assert self._delivery is not None
        _log.debug(
            "workload replied",
            extra={"heard": reply.kind.name, "detail": reply.detail or reply.answer_error},
        )
        self._delivery = delivery.next_state(self._delivery, reply.kind)
        self._next_call_at = self._clock.monotonic() + self._delay_after(reply)
        if self._delivery is DeliveryState.ANSWERED:
            # Without this, an answer that names no request would count before it is known to be to this one.
            self.answer = reply.answer or self.answer
        self.answer_error = reply.answer_error
        self.undeliverable_reason = reply.detail if reply.kind is ReplyKind.UNDELIVERABLE else ""
        self._wake()

    def _delay_after(self, reply: WorkloadReply) -> float:
        """Return the seconds until the next call: soon where nothing was received, seldom where nothing can be asked."""
        poll = self._settings.poll_interval_seconds
        if self._delivery is DeliveryState.UNSENT and reply.kind is ReplyKind.UNKNOWN_REQUEST:
            return 0.0
        if self._delivery is DeliveryState.CANNOT_POLL:
            return self._settings.resync_interval_seconds * random.uniform(0.9, 1.0)  # noqa: S311 - jitter
        if reply.kind is ReplyKind.NOT_RECEIVED:
            self._failed_calls += 1
            return min(
                poll, _FIRST_RETRY_SECONDS * 2.0 ** min(self._failed_calls, 10)
            ) * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        return poll * random.uniform(0.9, 1.0)  # noqa: S311 - jitter

    def _cancel_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

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
from reprieve_policy.checkpointing.contract import Answer, Request
from reprieve_policy.lifecycle.eviction import Eviction

from . import delivery
from .client import Switchboard
from .delivery import Knowledge
from .endpoints import Target
from .transport import Heard, Reply

_log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 0.25
_LEAST_CALL_SECONDS = 1.0
_LAST_WORD_SECONDS = 2.0
"""For the question before a deadline passes: the victim's time is over, others wait."""


class Asking:
    """Calls to one workload, one at a time."""

    def __init__(self, lines: Switchboard, settings: OperatorSettings, clock: Clock, wake: Callable[[], None]) -> None:
        self._lines = lines
        self._settings = settings
        self._clock = clock
        self._wake = wake
        self._knowledge: Knowledge | None = None
        self._call: asyncio.Task[Reply] | None = None
        self._next_at = 0.0
        self._refusals = 0
        self._asked_for: datetime | None = None
        self.answer: Answer | None = None
        """The newest, until it is forgotten: acting on it may take several tries."""
        self.complaint = ""
        self.obstacle = ""
        """Why the way that was declared leads nowhere; empty where it does."""

    def begin_attempt(self) -> None:
        """Note that this process has just written down a new attempt: it is to be told."""
        self._drop_call()
        self._knowledge = Knowledge.UNSENT
        self._next_at, self._refusals = 0.0, 0

    def forget_answer(self, answer: Answer | None) -> None:
        """Note that this answer was acted on; a newer one stays."""
        if answer is self.answer:
            self.answer = None

    @property
    def hint_was_lost(self) -> bool:
        """True where the workload does not say that it knows of a hint that an earlier process wrote down."""
        return self._knowledge is Knowledge.LOST

    @property
    def is_forgotten(self) -> bool:
        """True where the workload was told by this process, and does not say, or no longer, that it knows of this request."""
        return self._knowledge in (Knowledge.FORGOTTEN, Knowledge.UNNAMED)

    def give_up_attempts(self) -> None:
        """Note that there is no further attempt."""
        if self._knowledge is not None:
            self._knowledge = delivery.give_up(self._knowledge)

    def is_last_word_due(self, state: Eviction, now: datetime) -> bool:
        """True where a deadline has come and the workload was not asked since."""
        return state.deadline is not None and now >= state.deadline and self._asked_for != state.deadline

    def proceed(self, target: Target, state: Eviction, request: Request, now: datetime, tenant: str) -> float:
        """Start a call where one is due; return the seconds until the next is, should nothing else happen."""
        if self._call is not None:
            return self._settings.poll_interval_seconds
        is_last_word = self.is_last_word_due(state, now)
        wait = self._next_at - self._clock.monotonic()
        if wait > 0 and not is_last_word:
            return wait
        if is_last_word:
            self._asked_for = state.deadline
        knowledge = self._knowledge or delivery.inherit(state)
        self._knowledge = knowledge
        limit = self._limit(state, now)
        # The last word is never a new hint: there would be no time left to act on it.
        is_hint = knowledge is Knowledge.UNSENT and not is_last_word
        if is_hint:
            call = self._lines.ask(target, request, limit, tenant=tenant)
        else:
            call = self._lines.look(target, state.eviction_id, limit, tenant=tenant)
        self._call = asyncio.create_task(call)
        self._call.add_done_callback(self._learn)
        return self._settings.poll_interval_seconds

    @property
    def is_calling(self) -> bool:
        """True while a call is under way."""
        return self._call is not None

    async def close(self) -> None:
        """End the call that is under way."""
        call = self._call
        self._drop_call()
        # Without this, what it said of one eviction would be taken for its word on the next.
        self.answer = None
        if call is not None:
            # Not `await call`: its cancellation and our own would look the same, and a lost lease would be missed.
            await asyncio.wait([call])

    def _limit(self, state: Eviction, now: datetime) -> float:
        """Bound a call by what is left of the victim's time: a workload that hangs must not outlive its deadline."""
        left = 0.0 if state.deadline is None else (state.deadline - now).total_seconds()
        shortest = _LAST_WORD_SECONDS if left <= 0 else max(left, _LEAST_CALL_SECONDS)
        return min(self._settings.hint_timeout_seconds, shortest)

    def _learn(self, call: "asyncio.Task[Reply]") -> None:
        if call is not self._call or call.cancelled():
            return
        self._call = None
        error = call.exception()
        if error is not None:
            # What a workload answered was thought of by nobody. Without this, it would be told again.
            _log.error("call failed", exc_info=error)
        reply = Reply(Heard.UNSURE, detail=type(error).__name__) if error is not None else call.result()
        assert self._knowledge is not None
        _log.debug("workload replied", extra={"heard": reply.heard.name, "detail": reply.detail or reply.complaint})
        self._knowledge = delivery.learn(self._knowledge, reply.heard)
        self._next_at = self._clock.monotonic() + self._pause(reply)
        if self._knowledge is Knowledge.HEARD:
            # Without this, an answer that names no request would count before it is known to be to this one.
            self.answer = reply.answer or self.answer
        self.complaint = reply.complaint
        self.obstacle = reply.detail if reply.heard is Heard.BARRED else ""
        self._wake()

    def _pause(self, reply: Reply) -> float:
        """Return the seconds until the next call: soon where nothing was received, seldom where nothing can be asked."""
        poll = self._settings.poll_interval_seconds
        if self._knowledge is Knowledge.UNSENT and reply.heard is Heard.UNKNOWN_THERE:
            return 0.0
        if self._knowledge is Knowledge.SILENT:
            return self._settings.resync_interval_seconds * random.uniform(0.9, 1.0)  # noqa: S311 - jitter
        if reply.heard is Heard.NOT_RECEIVED:
            self._refusals += 1
            return min(poll, _FIRST_RETRY_SECONDS * 2.0 ** min(self._refusals, 10)) * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        return poll * random.uniform(0.9, 1.0)  # noqa: S311 - jitter

    def _drop_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

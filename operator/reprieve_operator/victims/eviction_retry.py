"""One victim's evictions through the Eviction API: asked again, ever less often, while something stands in their way."""

import random

from reprieve_operator.cluster import event_messages
from reprieve_operator.cluster.event_recorder import ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.retries import GIVE_UP_AFTER
from reprieve_policy.lifecycle import termination
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.client.api import ApiError

from .context import Tools

_REPORT_INTERVAL_SECONDS = 60.0
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 1.0, 30.0
_BUDGET_CAUSE = "DisruptionBudget"
"""What the API server calls the cause."""
_TOO_MANY = 429
_BLOCKING_STATUSES = (400, 403, 422, _TOO_MANY, 500)
"""A budget that allows none; one that is broken; a pod with two; another admission's refusal, which is any of the first three where it
does not say which."""
_UNDECIDED_STATUSES = (0, 404)
"""Nobody answered, or the pod is gone."""


class EvictionRetry:
    """What this process has tried; the victim's ceiling ends the wait, and nobody asks it any more from then on."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.is_blocked = False
        """True where something that may stay so stood in the way when it was tried last: not an API server that is busy, or away."""
        self._failures = 0
        self._next_try_at: float | None = None
        self._reported_at: float | None = None

    async def evict(self, pod: VictimPod, state: Eviction) -> float | None:
        """Evict the pod; return the seconds to wait where something stands in the way, `None` once it goes."""
        now = self._tools.clock.monotonic()
        if self._next_try_at is not None and now < self._next_try_at:
            return self._next_try_at - now
        self.is_blocked = False
        try:
            await self._tools.effects.evict_pod(pod, state)
        except ApiError as error:
            if error.status not in _BLOCKING_STATUSES and not self._is_past_ceiling(state, error):
                raise
            return self._schedule_retry(pod, state, error)
        return None

    def _is_past_ceiling(self, state: Eviction, error: ApiError) -> bool:
        """True a minute beyond the ceiling, whatever is answered.

        Without an end, a webhook that chose its own word for no, or says that it is busy, would hold a victim for ever.
        """
        end = termination.ceiling_of(state, self._tools.policy.current) + GIVE_UP_AFTER
        return (
            state.must_evict
            and error.status not in _UNDECIDED_STATUSES
            and self._tools.clock.now() >= end
        )

    def _schedule_retry(self, pod: VictimPod, state: Eviction, error: ApiError) -> float:
        now = self._tools.clock.monotonic()
        backoff = min(
            _LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(self._failures, 10)
        )
        self._failures += 1
        pause = max(error.retry_after_seconds or 0, backoff * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        until = termination.ceiling_of(state, self._tools.policy.current)
        if self._reported_at is None or now >= self._reported_at + _REPORT_INTERVAL_SECONDS:
            self._reported_at = now
            told = event_messages.waiting_for_budget(
                _refusal_message(error), until, stays=state.must_evict
            )
            self._tools.announcer.event(ObjectReference.for_pod(pod.metadata), *told)
        is_busy = error.status == _TOO_MANY and _BUDGET_CAUSE not in dict(error.causes)
        end = until + GIVE_UP_AFTER if is_busy and state.must_evict else until
        left = (end - self._tools.clock.now()).total_seconds()
        self.is_blocked = not is_busy or left <= 0
        self._next_try_at = now + min(pause, max(0.0, left))
        return self._next_try_at - now


def _refusal_message(error: ApiError) -> str:
    """Return what the API server says of the budget, by name; else what it says at all."""
    return next((message for word, message in error.causes if word == _BUDGET_CAUSE), error.message)

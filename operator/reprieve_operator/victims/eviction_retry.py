"""One victim's evictions through the Eviction API: asked again, ever less often, while something stands in their way."""

import random

from reprieve_operator.cluster import event_messages
from reprieve_operator.cluster.event_recorder import Regarding
from reprieve_operator.cluster.pods import Pod
from reprieve_operator.cluster.retries import PATIENCE
from reprieve_policy.lifecycle import termination
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.client.api import ApiError

from .context import Tools

_REPEAT_SECONDS = 60.0
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 1.0, 30.0
_BUDGET = "DisruptionBudget"
"""What the API server calls the cause."""
_TOO_MANY = 429
_IN_THE_WAY = (400, 403, 422, _TOO_MANY, 500)
"""A budget that allows none; one that is broken; a pod with two; another admission's refusal, which is any of the first three where it
does not say which."""
_LOOK_AGAIN = (0, 404)
"""Nobody answered, or the pod is gone."""


class Evicting:
    """What this process has tried; the victim's ceiling ends the wait, and nobody asks it any more from then on."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.is_held = False
        """True where something that may stay so stood in the way when it was tried last: not an API server that is busy, or away."""
        self._refusals = 0
        self._due_at: float | None = None
        self._said_at: float | None = None

    async def evict(self, pod: Pod, state: Eviction) -> float | None:
        """Evict the pod; return the seconds to wait where something stands in the way, `None` once it goes."""
        now = self._tools.clock.monotonic()
        if self._due_at is not None and now < self._due_at:
            return self._due_at - now
        self.is_held = False
        try:
            await self._tools.effects.evict(pod, state)
        except ApiError as error:
            if error.status not in _IN_THE_WAY and not self._is_over(state, error):
                raise
            return self._wait(pod, state, error)
        return None

    def _is_over(self, state: Eviction, error: ApiError) -> bool:
        """True a minute beyond the ceiling, whatever is answered.

        Without an end, a webhook that chose its own word for no, or says that it is busy, would hold a victim for ever.
        """
        end = termination.ceiling_of(state, self._tools.policy.current) + PATIENCE
        return state.must_evict and error.status not in _LOOK_AGAIN and self._tools.clock.now() >= end

    def _wait(self, pod: Pod, state: Eviction, error: ApiError) -> float:
        now = self._tools.clock.monotonic()
        backoff = min(_LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(self._refusals, 10))
        self._refusals += 1
        pause = max(error.retry_after_seconds or 0, backoff * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        until = termination.ceiling_of(state, self._tools.policy.current)
        if self._said_at is None or now >= self._said_at + _REPEAT_SECONDS:
            self._said_at = now
            told = event_messages.waiting_for_budget(_reason(error), until, stays=state.must_evict)
            self._tools.announcer.announce(Regarding.pod(pod.metadata), *told)
        is_busy = error.status == _TOO_MANY and _BUDGET not in dict(error.causes)
        end = until + PATIENCE if is_busy and state.must_evict else until
        left = (end - self._tools.clock.now()).total_seconds()
        self.is_held = not is_busy or left <= 0
        self._due_at = now + min(pause, max(0.0, left))
        return self._due_at - now


def _reason(error: ApiError) -> str:
    """Return what the API server says of the budget, by name; else what it says at all."""
    return next((message for word, message in error.causes if word == _BUDGET), error.message)

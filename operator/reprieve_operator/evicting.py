"""One victim's evictions through the Eviction API: asked again, ever less often, while something stands in their way."""

import random

from reprieve_policy import ending
from reprieve_policy.eviction import Eviction
from reprieve_runtime.api import ApiError

from . import story
from .announce import Regarding
from .pods import Pod
from .tools import Tools

_REPEAT_SECONDS = 60.0
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 1.0, 30.0
_BUDGET = "DisruptionBudget"
"""What the API server calls the cause."""
_IN_THE_WAY = (403, 429, 500)
"""A budget that allows none; one that is broken, or another admission's refusal; a pod with two budgets."""


class Evicting:
    """What this process has tried; where a ceiling ends the wait, nobody asks it any more from then on."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._refusals = 0
        self._due_at: float | None = None
        self._said_at: float | None = None

    async def evict(self, pod: Pod, state: Eviction) -> float | None:
        """Evict the pod; return the seconds to wait where something stands in the way, `None` once it goes."""
        now = self._tools.clock.monotonic()
        if self._due_at is not None and now < self._due_at:
            return self._due_at - now
        try:
            await self._tools.effects.evict(pod, state)
        except ApiError as error:
            if error.status not in _IN_THE_WAY:
                raise
            return self._wait(pod, state, error)
        return None

    def _wait(self, pod: Pod, state: Eviction, error: ApiError) -> float:
        now = self._tools.clock.monotonic()
        backoff = min(_LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(self._refusals, 10))
        self._refusals += 1
        pause = max(error.retry_after_seconds or 0, backoff * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        until = ending.waits_until(state, self._tools.policy.current)
        if self._said_at is None or now >= self._said_at + _REPEAT_SECONDS:
            self._said_at = now
            told = story.waiting_for_budget(_reason(error), until)
            self._tools.announcer.announce(Regarding.pod(pod.metadata), *told)
        if until is not None:
            pause = min(pause, max(0.0, (until - self._tools.clock.now()).total_seconds()))
        self._due_at = now + pause
        return self._due_at - now


def _reason(error: ApiError) -> str:
    """Return what the API server says of the budget, by name; else what it says at all."""
    return next((message for word, message in error.causes if word == _BUDGET), error.message)

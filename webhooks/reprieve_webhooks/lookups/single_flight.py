"""What the API server is asked in the middle of a review: once for all who want to know, and not more often than bounded.

Whoever reaches the port may send reviews of namespaces and users that never were. Without the bound, each would be a call:
the webhook would be a way to make the API server work for nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from reprieve_runtime.client.api import ApiError

from .rate_limit import Rate, RateLimiter, RateLimits

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_TOO_MANY_REQUESTS = 429
CALLS_PER_SECOND = 50.0
BURST_CALLS = 100
"""A hundred new Namespaces whose first pods come before their watch events, at once; one is the rule."""
DEFAULT_LIMITS = RateLimits(Rate(CALLS_PER_SECOND, BURST_CALLS))
_MAX_ENTRIES = 1000


class RateLimitedError(ApiError):
    """Not asked: the bound is reached. That is not the API server's fault, and who asks may have brought it about."""

    def __init__(self) -> None:
        super().__init__(
            _TOO_MANY_REQUESTS, "TooManyLookups", "too many questions that no watch answers"
        )


@dataclass(frozen=True, slots=True)
class _Call(Generic[V]):
    started_at: float
    result: "asyncio.Future[V]"


class SingleFlight(Generic[K, V]):
    """Questions of one sort, and the latest answers; an answer holds for `remembered_seconds`.

    With 0, only those share an answer who ask while it is on its way.
    """

    def __init__(
        self,
        ttl_seconds: float,
        *,
        limits: RateLimits = DEFAULT_LIMITS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl_seconds = ttl_seconds
        self._monotonic = monotonic
        self._calls: dict[K, _Call[V]] = {}
        self._rate_limiter = RateLimiter(limits, monotonic())

    async def do(self, key: K, ask: Callable[[], Awaitable[V]], *, namespace: str = "") -> V:
        """Return what `ask` returned to somebody a moment ago, or returns now; `TooManyQuestionsError` where it may not be asked.

        `namespace`: whose share is taken, where there are shares.
        """
        now = self._monotonic()
        asked = self._calls.get(key)
        if asked is None or self._is_expired(asked, now) or _has_failed(asked.result):
            if not self._rate_limiter.try_accept(namespace, now):
                raise RateLimitedError
            answer = asyncio.ensure_future(ask())
            # Without this, asyncio complains of a failure that nobody is left to hear of.
            answer.add_done_callback(_has_failed)
            asked = self._store(key, _Call(now, answer))
        # Several may wait for one call: the end of one, whose client went away, must not be the others'.
        return await asyncio.shield(asked.result)

    def _is_expired(self, asked: _Call[V], now: float) -> bool:
        return asked.result.done() and now - asked.started_at >= self._ttl_seconds

    def _store(self, key: K, asked: _Call[V]) -> _Call[V]:
        # Put last: the oldest go first, where there are too many.
        self._calls.pop(key, None)
        self._calls[key] = asked
        if len(self._calls) > _MAX_ENTRIES:
            del self._calls[next(iter(self._calls))]
        return asked


def _has_failed(answer: "asyncio.Future[V]") -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)

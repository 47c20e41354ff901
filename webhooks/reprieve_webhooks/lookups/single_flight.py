"""Shares one call to the API server between all reviews that need its result, and limits the rate.

Any client that reaches the port can send reviews of Namespaces and users that do not exist. Without
the limit, each such review would cost a call, and the webhook would be a way to load the API
server.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, TypeVar

from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.api import ApiError

from .rate_limit import Rate, RateLimiter, RateLimits

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

CALLS_PER_SECOND = 50.0
BURST_CALLS = 100
"""A hundred new Namespaces at once, whose first pods come before their watch events; normally one.
"""
DEFAULT_LIMITS = RateLimits(Rate(CALLS_PER_SECOND, BURST_CALLS))
_MAX_ENTRIES = 1000


class RateLimitedError(ApiError):
    """The rate limit refused the call.

    The API server is not at fault, and the user under review may have caused it.
    """

    def __init__(self) -> None:
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            "TooManyLookups",
            "too many lookups of objects that no watch has",
        )


@dataclass(frozen=True, slots=True)
class _Call(Generic[V]):
    started_at: float
    result: "asyncio.Future[V]"


class SingleFlight(Generic[K, V]):
    """Calls of one kind and their latest results; a result is reused for `ttl_seconds`.

    With 0, callers share a result only while the call is under way.
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
        self._calls: BoundedDict[K, _Call[V]] = BoundedDict(_MAX_ENTRIES)
        self._rate_limiter = RateLimiter(limits, monotonic())

    async def do(self, key: K, start: Callable[[], Awaitable[V]], *, namespace: str = "") -> V:
        """Return the result of `start`, or of a recent call for the same key.

        Raises `RateLimitedError` where no call may be made. `namespace`: whose share of the rate
        the call takes, where there are shares.
        """
        now = self._monotonic()
        call = self._calls.get(key)
        if call is None or self._is_expired(call, now) or _has_failed(call.result):
            if not self._rate_limiter.try_accept(namespace, now):
                raise RateLimitedError
            result = asyncio.ensure_future(start())
            # Retrieves the exception. Without this, asyncio complains of a failed call whose
            # callers have all gone away.
            result.add_done_callback(_has_failed)
            call = self._calls[key] = _Call(now, result)
        # Several callers may wait for one call: the cancellation of one, whose client went away,
        # must not cancel the others.
        return await asyncio.shield(call.result)

    def _is_expired(self, call: _Call[V], now: float) -> bool:
        return call.result.done() and now - call.started_at >= self._ttl_seconds


def _has_failed(result: "asyncio.Future[V]") -> bool:
    return result.done() and (result.cancelled() or result.exception() is not None)

"""Shares one call between all callers that need its result, for a while, and limits the rate."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Generic, TypeVar

from .bounded_dict import BoundedDict
from .client.api_error import ApiError
from .rate_limit import RateLimiter, RateLimits

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_RESULTS = 1000


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

    The age of a result counts from the start of its call. With 0, callers share a result only while
    the call is under way. `ttl_seconds` may depend on the result. A failed call is never reused.
    """

    def __init__(
        self,
        ttl_seconds: float | Callable[[V], float],
        *,
        limits: RateLimits | None,
        max_results: int = _MAX_RESULTS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`limits`: `None` where the number of calls is bounded otherwise."""
        self._ttl_seconds = ttl_seconds
        self._monotonic = monotonic
        self._calls: BoundedDict[K, _Call[V]] = BoundedDict(max_results)
        self._rate_limiter = None if limits is None else RateLimiter(limits, monotonic())

    async def do(self, key: K, start: Callable[[], Awaitable[V]], *, namespace: str = "") -> V:
        """Return the result of `start`, or of a recent call for the same key.

        Raises `RateLimitedError` where no call may be made. `namespace`: whose share of the rate
        the call takes, where there are shares.
        """
        now = self._monotonic()
        self._drop_old(now)
        call = self._calls.get(key)
        if call is None or _has_failed(call.result) or self._is_expired(call, now):
            if self._rate_limiter and not self._rate_limiter.try_accept(namespace, now):
                raise RateLimitedError
            result = asyncio.ensure_future(start())
            result.add_done_callback(partial(self._drop_failed, key))
            call = self._calls[key] = _Call(now, result)
            del result
        try:
            # Several callers may wait for one call: the cancellation of one, whose client went
            # away, must not cancel the others.
            return await asyncio.shield(call.result)
        finally:
            # An exception refers to the frames of all callers. Without this, this frame would refer
            # to it in turn, and what the callers hold would stay until a garbage collection.
            del call

    def _drop_failed(self, key: K, result: "asyncio.Future[V]") -> None:
        """Drop a failed call at once, with what its exception refers to.

        It retrieves the exception, too. Without this, asyncio complains of a failed call whose
        callers have all gone away.
        """
        call = self._calls.get(key)
        if _has_failed(result) and call is not None and call.result is result:
            del self._calls[key]

    def _drop_old(self, now: float) -> None:
        """Drop the results that are not reused any more; the calls that began first come first.

        Without this, a thousand results would stay in memory, each as large as its call allows.
        """
        while self._calls:
            key, call = next(iter(self._calls.items()))
            if not (_has_failed(call.result) or self._is_expired(call, now)):
                return
            del self._calls[key]

    def _is_expired(self, call: _Call[V], now: float) -> bool:
        """True if the result is too old; a call that is under way is not."""
        if not call.result.done():
            return False
        ttl = self._ttl_seconds
        seconds = ttl(call.result.result()) if callable(ttl) else ttl
        return now - call.started_at >= seconds


def _has_failed(result: "asyncio.Future[V]") -> bool:
    return result.done() and (result.cancelled() or result.exception() is not None)

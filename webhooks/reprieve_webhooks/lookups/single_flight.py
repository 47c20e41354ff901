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

from .rate_limit import Allowance, Bounds, Rate

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_TOO_MANY = 429
CALLS_PER_SECOND = 50.0
BURST_CALLS = 100
"""A hundred new Namespaces whose first pods come before their watch events, at once; one is the rule."""
BOUNDS = Bounds(Rate(CALLS_PER_SECOND, BURST_CALLS))
_MAX_REMEMBERED = 1000


class TooManyQuestionsError(ApiError):
    """Not asked: the bound is reached. That is not the API server's fault, and who asks may have brought it about."""

    def __init__(self) -> None:
        super().__init__(_TOO_MANY, "TooManyLookups", "too many questions that no watch answers")


@dataclass(frozen=True, slots=True)
class _Asked(Generic[V]):
    at: float
    answer: "asyncio.Future[V]"


class Questions(Generic[K, V]):
    """Questions of one sort, and the latest answers; an answer holds for `remembered_seconds`.

    With 0, only those share an answer who ask while it is on its way.
    """

    def __init__(
        self, remembered_seconds: float, *, bounds: Bounds = BOUNDS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._remembered_seconds = remembered_seconds
        self._monotonic = monotonic
        self._asked: dict[K, _Asked[V]] = {}
        self._allowance = Allowance(bounds, monotonic())

    async def answer(self, key: K, ask: Callable[[], Awaitable[V]], *, namespace: str = "") -> V:
        """Return what `ask` returned to somebody a moment ago, or returns now; `TooManyQuestionsError` where it may not be asked.

        `namespace`: whose share is taken, where there are shares.
        """
        now = self._monotonic()
        asked = self._asked.get(key)
        if asked is None or self._is_over(asked, now) or _has_failed(asked.answer):
            if not self._allowance.take(namespace, now):
                raise TooManyQuestionsError
            answer = asyncio.ensure_future(ask())
            # Without this, asyncio complains of a failure that nobody is left to hear of.
            answer.add_done_callback(_has_failed)
            asked = self._remember(key, _Asked(now, answer))
        # Several may wait for one call: the end of one, whose client went away, must not be the others'.
        return await asyncio.shield(asked.answer)

    def _is_over(self, asked: _Asked[V], now: float) -> bool:
        return asked.answer.done() and now - asked.at >= self._remembered_seconds

    def _remember(self, key: K, asked: _Asked[V]) -> _Asked[V]:
        # Put last: the oldest go first, where there are too many.
        self._asked.pop(key, None)
        self._asked[key] = asked
        if len(self._asked) > _MAX_REMEMBERED:
            del self._asked[next(iter(self._asked))]
        return asked


def _has_failed(answer: "asyncio.Future[V]") -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)

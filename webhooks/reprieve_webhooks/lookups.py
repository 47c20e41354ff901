"""One object read from the API server because no watch has it yet: once for all who ask, and not more often than bounded.

Whoever reaches the port may send reviews of namespaces that never were, and whoever writes objects may name
PriorityClasses that are not there. Without the bound, each would be a call: the webhook would be a way to make the API
server work for nothing.
"""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from reprieve_runtime.api import Api, ApiError
from reprieve_runtime.paths import object_path

_NOT_FOUND = 404
_TOO_MANY = 429
REMEMBERED_SECONDS = 1.0
"""An answer holds for so long, also that there is no such object; what a watch learns meanwhile goes before it."""
CALLS_PER_SECOND = 50.0
BURST_CALLS = 100
"""A hundred new Namespaces whose first pods come before their watch events, at once; one is the rule."""
_MAX_REMEMBERED = 1000

_IS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?").fullmatch
"""What can be the name of an object. Users write it: without this, `..` would ask for another path."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Asked(Generic[T]):
    at: float
    answer: "asyncio.Future[T | None]"


class Lookups(Generic[T]):
    """Looks objects up by collection, name and namespace."""

    def __init__(
        self,
        api: Api,
        decode_as: type[T],
        *,
        timeout_seconds: float,
        remembered_seconds: float = REMEMBERED_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._decode_as = decode_as
        self._timeout_seconds = timeout_seconds
        self._remembered_seconds = remembered_seconds
        self._monotonic = monotonic
        self._asked: dict[str, _Asked[T]] = {}
        self._calls_left = float(BURST_CALLS)
        self._counted_at = monotonic()

    async def find(self, resource: str, name: str, namespace: str | None = None) -> T | None:
        """Return the object, `None` where there is none; `ApiError` where that cannot be known now."""
        if not _IS_NAME(name) or not _IS_NAME(namespace or "all"):
            return None
        now, path = self._monotonic(), object_path(resource, namespace, name)
        asked = self._asked.get(path)
        if asked is None or now - asked.at > self._remembered_seconds or _has_failed(asked.answer):
            self._spend_call(now)
            answer = asyncio.ensure_future(self._read(path))
            # Without this, asyncio complains of a failure that nobody is left to hear of.
            answer.add_done_callback(_has_failed)
            asked = self._remember(path, _Asked(now, answer))
        # Several may wait for one call: the end of one, whose client went away, must not be the others'.
        return await asyncio.shield(asked.answer)

    async def _read(self, path: str) -> T | None:
        try:
            text = await self._api.request("GET", path, timeout_seconds=self._timeout_seconds)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return msgspec.json.decode(text, type=self._decode_as)

    def _spend_call(self, now: float) -> None:
        self._calls_left = min(BURST_CALLS, self._calls_left + (now - self._counted_at) * CALLS_PER_SECOND)
        self._counted_at = now
        if self._calls_left < 1:
            raise ApiError(_TOO_MANY, "TooManyLookups", "too many names that no watch has seen")
        self._calls_left -= 1

    def _remember(self, path: str, asked: _Asked[T]) -> _Asked[T]:
        # Put last: the oldest go first, where there are too many.
        self._asked.pop(path, None)
        self._asked[path] = asked
        if len(self._asked) > _MAX_REMEMBERED:
            del self._asked[next(iter(self._asked))]
        return asked


def _has_failed(answer: "asyncio.Future[T | None]") -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)

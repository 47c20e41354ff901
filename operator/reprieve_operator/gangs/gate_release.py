"""Takes the gang gate from pods: each version of a pod is tried once, and one that cannot be changed now again later."""

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import NamedTuple

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.writes import Effects
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.reflector import Key

from .gate_pods import Held

_log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
_GONE_OR_CHANGED = (404, 409)
_FOR_EVER = float("inf")


class _Tried(NamedTuple):
    """A version of a pod that is not tried again before `until`."""

    version: str
    until: float


class Releaser:
    """Remembers what it has just done, until the watch shows it."""

    def __init__(self, effects: Effects, clock: Clock) -> None:
        self._effects = effects
        self._clock = clock
        self._tried: dict[Key, _Tried] = {}

    def has_tried(self, held: Held) -> bool:
        """True for a pod that was tried as it is now, and need not be tried again yet."""
        tried = self._tried.get(_key(held))
        if tried is None or tried.version != held.metadata.resourceVersion:
            return False
        return self._clock.monotonic() < tried.until

    async def release(self, pods: Sequence[Held]) -> list[Held]:
        """Release pods; return those that are."""
        is_free = await asyncio.gather(*(self._release_one(held) for held in pods))
        return list(itertools.compress(pods, is_free))

    def forget(self, key: Key) -> None:
        """The pod is gone, or has lost our label."""
        self._tried.pop(key, None)

    async def _release_one(self, held: Held) -> bool:
        until, error = _FOR_EVER, await self._try(held)
        # One that is gone or has changed meanwhile, the watch brings as it is now.
        if error is not None and error.status not in _GONE_OR_CHANGED:
            _log.warning("pod not released", extra={"pod": held.metadata.key, "error": str(error)})
            until = self._clock.monotonic() + RETRY_SECONDS
        self._tried[_key(held)] = _Tried(held.metadata.resourceVersion, until)
        return error is None

    async def _try(self, held: Held) -> ApiError | None:
        try:
            await self._effects.release_gate(held.metadata, held.other_gates if held.is_gated else None)
        except ApiError as error:
            return error
        return None


def _key(held: Held) -> Key:
    return held.metadata.namespace or "", held.metadata.name or ""

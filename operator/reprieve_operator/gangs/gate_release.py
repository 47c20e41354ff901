"""Takes the gang gate from pods: each version of a pod is tried once, and one that cannot be changed now again later."""

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import NamedTuple

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.writes import Writes
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.reflector import Key

from .gate_pods import LabelledPod

_log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
_GONE_OR_CHANGED = (404, 409)
_NO_RETRY = float("inf")


class _Attempt(NamedTuple):
    """A version of a pod that is not tried again before `until`."""

    resource_version: str
    retry_at: float


class GateReleaser:
    """Remembers what it has just done, until the watch shows it."""

    def __init__(self, effects: Writes, clock: Clock) -> None:
        self._effects = effects
        self._clock = clock
        self._attempts: dict[Key, _Attempt] = {}

    def was_attempted(self, held: LabelledPod) -> bool:
        """True for a pod that was tried as it is now, and need not be tried again yet."""
        tried = self._attempts.get(_key(held))
        if tried is None or tried.resource_version != held.metadata.resourceVersion:
            return False
        return self._clock.monotonic() < tried.retry_at

    async def release(self, pods: Sequence[LabelledPod]) -> list[LabelledPod]:
        """Release pods; return those that are."""
        is_free = await asyncio.gather(*(self._release_one(held) for held in pods))
        return list(itertools.compress(pods, is_free))

    def forget(self, key: Key) -> None:
        """The pod is gone, or has lost our label."""
        self._attempts.pop(key, None)

    async def _release_one(self, held: LabelledPod) -> bool:
        until, error = _NO_RETRY, await self._remove_gate(held)
        # One that is gone or has changed meanwhile, the watch brings as it is now.
        if error is not None and error.status not in _GONE_OR_CHANGED:
            _log.warning("pod not released", extra={"pod": held.metadata.key, "error": str(error)})
            until = self._clock.monotonic() + RETRY_SECONDS
        self._attempts[_key(held)] = _Attempt(held.metadata.resourceVersion, until)
        return error is None

    async def _remove_gate(self, held: LabelledPod) -> ApiError | None:
        try:
            await self._effects.remove_gate(
                held.metadata, held.other_gates if held.is_gated else None
            )
        except ApiError as error:
            return error
        return None


def _key(held: LabelledPod) -> Key:
    return held.metadata.namespace or "", held.metadata.name or ""

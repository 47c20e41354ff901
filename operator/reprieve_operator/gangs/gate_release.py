"""Removes the gang gate from pods: tries each version of a pod once, and retries after errors."""

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
_NO_RETRY = float("inf")


class _Attempt(NamedTuple):
    """A version of a pod that is not tried again before `retry_at`."""

    resource_version: str
    retry_at: float


class GateReleaser:
    """Removes gates, and remembers its attempts until the watch shows their results."""

    def __init__(self, writes: Writes, clock: Clock) -> None:
        self._writes = writes
        self._clock = clock
        self._attempts: dict[Key, _Attempt] = {}

    def was_attempted(self, pod: LabelledPod) -> bool:
        """True if this version of the pod was tried and its retry is not due yet."""
        attempt = self._attempts.get(_key(pod))
        if attempt is None or attempt.resource_version != pod.metadata.resourceVersion:
            return False
        return self._clock.monotonic() < attempt.retry_at

    async def release(self, pods: Sequence[LabelledPod]) -> list[LabelledPod]:
        """Release pods; return those that were released."""
        is_released = await asyncio.gather(*(self._release_one(pod) for pod in pods))
        return list(itertools.compress(pods, is_released))

    def forget(self, key: Key) -> None:
        """Forget a pod that is gone, or has lost Reprieve's label."""
        self._attempts.pop(key, None)

    async def _release_one(self, pod: LabelledPod) -> bool:
        retry_at, error = _NO_RETRY, await self._remove_gate(pod)
        # The watch shows the new version of a pod that is gone or has changed.
        if error is not None and not error.is_gone_or_changed:
            extra = {"pod": pod.metadata.key, "error": str(error)}
            _log.warning("could not remove the gang gate from a pod", extra=extra)
            retry_at = self._clock.monotonic() + RETRY_SECONDS
        self._attempts[_key(pod)] = _Attempt(pod.metadata.resourceVersion, retry_at)
        return error is None

    async def _remove_gate(self, pod: LabelledPod) -> ApiError | None:
        try:
            await self._writes.remove_gate(pod.metadata, pod.other_gates if pod.is_gated else None)
        except ApiError as error:
            return error
        return None


def _key(pod: LabelledPod) -> Key:
    return pod.metadata.namespace or "", pod.metadata.name or ""

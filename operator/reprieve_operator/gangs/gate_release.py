"""Writes what the gate decides: each version of a pod is tried once, and again after errors."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.writes import Writes
from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.reflector import Key

from .gate_pods import LabelledPod

_log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
_NO_RETRY = float("inf")
_MAX_PODS = 50_000
"""Pods; beyond that, the oldest are forgotten. A pod that goes before the answer to its write comes
is not forgotten otherwise."""


class _Attempt(NamedTuple):
    """A write to one version of a pod; another is not tried before `retry_at`.

    One that is under way counts as made: a gate that is being removed may be gone already.
    """

    resource_version: str
    retry_at: float
    has_left: bool = False
    """The pod has lost the label, or is gone: the gate has no more to do with it."""
    released_at: datetime | None = None
    """When its gate was removed, of a pod whose gang is not placed yet."""


class GateWriter:
    """Removes gates and labels, replaces pods, and remembers it until the watch shows the result.

    Without the memory, a gang would be released a second time, or another one beside it.
    """

    def __init__(self, writes: Writes, clock: Clock) -> None:
        self._writes = writes
        self._clock = clock
        self._attempts: BoundedDict[Key, _Attempt] = BoundedDict(_MAX_PODS)

    def observe(self, pod: LabelledPod) -> LabelledPod | None:
        """Return the pod as it is after the last write to it; `None` if it has lost the label."""
        attempt = self._attempt_on(pod)
        if attempt is None or not (attempt.has_left or attempt.released_at):
            return pod
        return None if attempt.released_at is None else pod.as_released(attempt.released_at)

    async def release(self, pods: Sequence[LabelledPod]) -> list[LabelledPod]:
        """Remove the gates of pods whose gang is not placed yet; return those that were written."""
        now = self._clock.now().replace(microsecond=0)

        async def remove(pod: LabelledPod) -> None:
            await self._writes.release_from_gate(pod.metadata, pod.other_gates, now)

        return await self._write_each(pods, remove, released_at=now)

    async def let_go(self, pods: Sequence[LabelledPod]) -> list[LabelledPod]:
        """Remove gates and labels; return the pods that were written."""

        async def remove(pod: LabelledPod) -> None:
            gates = pod.other_gates if pod.member.is_gated else None
            await self._writes.remove_gate(pod.metadata, gates)

        return await self._write_each(pods, remove)

    async def replace(self, pods: Sequence[LabelledPod]) -> list[LabelledPod]:
        """Have pods replaced by their controller; return those that were written.

        A pod without a node is deleted. One on a node gets notice: it is marked. The first comes
        before the second: a mark includes all pods of the gang that the gate does not hold.
        """
        unbound = [pod for pod in pods if not pod.member.is_bound]
        bound = [pod for pod in pods if pod.member.is_bound]
        deleted = await self._write_each(
            unbound, lambda pod: self._writes.delete_unscheduled(pod.metadata)
        )
        if len(deleted) < len(unbound):
            return deleted
        return deleted + await self._write_each(
            bound, lambda pod: self._writes.request_eviction(pod.metadata)
        )

    def forget(self, key: Key) -> None:
        """Forget a pod that is gone, or has lost Reprieve's label."""
        self._attempts.pop(key, None)

    async def _write_each(
        self,
        pods: Sequence[LabelledPod],
        write: Callable[[LabelledPod], Awaitable[None]],
        released_at: datetime | None = None,
    ) -> list[LabelledPod]:
        due = [pod for pod in pods if self._is_due(pod)]
        results = await asyncio.gather(*(self._write(pod, write, released_at) for pod in due))
        return list(itertools.compress(due, results))

    def _is_due(self, pod: LabelledPod) -> bool:
        attempt = self._attempt_on(pod)
        return attempt is None or self._clock.monotonic() >= attempt.retry_at

    def _attempt_under_way(self, pod: LabelledPod) -> _Attempt:
        released_at = self._clock.now() if pod.member.is_gated else None
        return _Attempt(pod.metadata.resourceVersion, _NO_RETRY, released_at=released_at)

    def _attempt_on(self, pod: LabelledPod) -> _Attempt | None:
        """Return the last write to this version of the pod."""
        attempt = self._attempts.get(_key(pod))
        is_same = attempt and attempt.resource_version == pod.metadata.resourceVersion
        return attempt if is_same else None

    async def _write(
        self,
        pod: LabelledPod,
        write: Callable[[LabelledPod], Awaitable[None]],
        released_at: datetime | None,
    ) -> bool:
        version = pod.metadata.resourceVersion
        self._attempts[_key(pod)] = self._attempt_under_way(pod)
        try:
            await write(pod)
        except ApiError as error:
            retry_at = _NO_RETRY
            # The watch shows the new version of a pod that is gone or has changed.
            if not error.is_gone_or_changed:
                extra = {"pod": pod.metadata.key, "error": str(error)}
                _log.warning("could not write to a pod of a gang", extra=extra)
                retry_at = self._clock.monotonic() + RETRY_SECONDS
            self._attempts[_key(pod)] = _Attempt(version, retry_at)
            return False
        except BaseException:
            # Without this, a pod whose write was cancelled would count as released for ever.
            self._attempts.pop(_key(pod), None)
            raise
        self._attempts[_key(pod)] = _Attempt(
            version, _NO_RETRY, has_left=released_at is None, released_at=released_at
        )
        return True


def _key(pod: LabelledPod) -> Key:
    return pod.metadata.namespace or "", pod.metadata.name or ""

"""What is known of one victim's object, and what wakes its reconciler. No decision is made here."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import kept_pods, pod_state
from reprieve_operator.cluster.call_limiter import CallPriority
from reprieve_operator.cluster.pods import VictimPod, without_version
from reprieve_operator.cluster.writes import Writes
from reprieve_runtime.client.api import ApiError

_CONFLICTS_IN_A_ROW = 3
"""After so many, others write to the pod all the time: it is written by its uid alone."""


@dataclass(frozen=True, slots=True)
class VictimRef:
    """Identifies one pod. The uid is needed: another pod of the same name may follow it."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """`namespace/name`, for logs."""
        return f"{self.namespace}/{self.name}"


class PodTracker:
    """Keeps the newest version of one pod, from the watch, from reads and from the writes."""

    def __init__(
        self,
        ref: VictimRef,
        writes: Writes,
        clock: Clock,
        *,
        reread_seconds: float,
        may_reread: Callable[[], bool] = lambda: True,
        on_change: Callable[[VictimPod, Callable[[], None]], None] = lambda *_: None,
    ) -> None:
        """`may_reread` is asked before a read that nothing but the time asks for.

        `on_change` gets each newer version of the pod, and what wakes its reconciler.
        """
        self.ref = ref
        self.pod: VictimPod | None = None
        """The victim as it was seen last."""
        self._writes = writes
        self._clock = clock
        self._reread_seconds, self._may_reread = reread_seconds, may_reread
        self._on_change = on_change
        self._has_changed = False
        self._waiter: asyncio.Future[None] | None = None
        self._must_reread = self._is_gone = False
        self._conflicts = 0
        self._is_written_by_uid = self._has_lost_label = False
        self._read_at = clock.monotonic()

    @property
    def pod_to_write(self) -> VictimPod | None:
        """The pod, without its version if writes to it met one conflict after another.

        What its owner writes then is no mark and no state: those take rights of their own.
        """
        if self.pod is None or self._conflicts < _CONFLICTS_IN_A_ROW:
            return self.pod
        return without_version(self.pod)

    @property
    def is_unmarked_meanwhile(self) -> bool:
        """True if our label was removed before a write by the uid alone, which set it again."""
        return self._is_written_by_uid and self._has_lost_label

    @property
    def _is_read_needed(self) -> bool:
        return self._must_reread or self.pod is None

    def on_pod_written(self, pod: VictimPod) -> None:
        """Store what a write has made of the pod, unless the watch has shown that version already.

        The watch also shows what admission webhooks changed in the same call. Without this, a
        finalizer that one of them added would be removed with ours. A pod that was written by its
        uid alone is read: it may have changed before.
        """
        self._conflicts = 0
        if not pod.metadata.resourceVersion:
            self._is_written_by_uid = True
            self.request_reread()
            return
        version = pod.metadata.version
        if self.pod is None or not version or version > self.pod.metadata.version:
            self.on_pod_update(pod)

    def on_pod_update(self, pod: VictimPod) -> None:
        """Store a pod that the watch returned, unless a newer version is known.

        A version that is known already, such as that of an own write, does not wake the reconciler.
        """
        known = -1 if self.pod is None else self.pod.metadata.version
        version = pod.metadata.version
        if version >= known:
            self._has_lost_label &= not pod_state.is_requested(pod.metadata)
            self.pod = kept_pods.prune_victim(pod)
            # The answer to the removal of our finalizer may come after the watch showed the end.
            self._is_gone &= pod_state.is_about_to_go(pod)
            self._read_at = self._clock.monotonic()
            self._on_change(pod, self.wake)
        if version > known or not version:
            self.wake()

    def wake(self) -> None:
        """End the wait of the reconciler."""
        self._has_changed = True
        if self._waiter is not None:
            _end_wait(self._waiter)

    def on_conflict(self) -> None:
        """Note that a write for this victim was refused because its object has changed."""
        self._conflicts += 1

    def invalidate(self) -> None:
        """Have the pod read before it is used again: what is known of it may be old."""
        self._must_reread = True

    def request_reread(self) -> None:
        """Have the pod read at once: it left the watch, or an event may have been missed."""
        self.invalidate()
        self.wake()

    def on_left_watch(self) -> None:
        """Note that the watch no longer shows the pod: it is gone, or our label is.

        Of a pod that nothing held any more, only its end is left. Any other is read.
        """
        self._is_gone = self.pod is not None and pod_state.is_about_to_go(self.pod)
        self._has_lost_label = True
        self.request_reread()

    def discard_changes(self) -> None:
        """Forget what has changed so far: only later changes end the wait."""
        self._has_changed = False

    async def wait_for_change(self, seconds: float, at_least_seconds: float = 0.0) -> None:
        """Wait until something changes, or for so many seconds; a change ends no shorter wait.

        An `asyncio.Event` with a time-out would take 2 KB more, of each of ten thousand victims.
        """
        if at_least_seconds:
            await asyncio.sleep(at_least_seconds)
            seconds -= at_least_seconds
        if seconds <= 0 or self._has_changed:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, _end_wait, self._waiter)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    async def refresh(self, priority: CallPriority) -> bool:
        """Read the pod where what is known is missing, doubtful or old; true if it was read.

        `pod` is `None` afterwards if the pod is gone. Raises `ApiError`.
        """
        if not (self._is_read_needed or (self._is_due() and self._may_reread())):
            return False
        self._read_at = self._clock.monotonic()
        if self._is_gone:
            self.pod = None
            return True
        known, was_requested, self._must_reread = self.pod, self._must_reread, False
        try:
            pod = await self._writes.read_pod(
                self.ref.namespace, self.ref.name, self.ref.uid, priority
            )
        except ApiError:
            self._must_reread |= was_requested
            if self._is_read_needed:
                raise
            # Only a periodic read. Polling the workload goes on while the API server is away.
            return False
        if pod is None:
            self.pod = None
        elif (
            self.pod is known
            or self.pod is None
            or self.pod.metadata.version <= pod.metadata.version
        ):
            self.pod = kept_pods.prune_victim(pod)
            self._on_change(pod, self.wake)
        # Else the watch has shown a newer version than was read.
        return True

    def _is_due(self) -> bool:
        return self._clock.monotonic() - self._read_at >= self._reread_seconds


def _end_wait(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)

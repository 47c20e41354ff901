"""One victim before TERMINATING: the request to its workload, the answer, the states in between.

What is decided is in `lifecycle.machine`; how the workload is reached is in `checkpoint_session`.
"""

from collections.abc import Callable
from datetime import timedelta

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_policy.checkpointing.contract import CheckpointAnswer
from reprieve_policy.lifecycle import cleanup, machine
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.lifecycle.machine import LifecycleDecision, ObservedVictim
from reprieve_runtime.client.api import ApiError

from .checkpoint_session import CheckpointSession
from .cleaner_report import CleanerReport

_MAX_POSTPONE_SECONDS = 15.0
"""After the hint: an operator that follows one that ended does not begin to count anew."""
_MAX_BUSY_POSTPONE_SECONDS = 300.0
"""In place of `_MAX_POSTPONE_SECONDS` while many calls to the API server are in progress: as long
as the evictions of ten thousand victims take. Without the two busy limits, each of them would cost
two more writes, and all would wait longer."""
_MAX_UNWRITTEN_SECONDS = 5.0
"""How long a victim waits for its call before that is written."""
MAX_BUSY_UNWRITTEN_SECONDS = 25.0
"""In place of `_MAX_UNWRITTEN_SECONDS` while many calls are in progress. The guard lets a marked
pod be deleted to which no operator writes for a minute (`GRACE_AFTER_CEILING_SECONDS`)."""


class Notice:
    """Gives one workload its notice; what it knows beyond the pod may be lost at any time."""

    def __init__(
        self,
        session: CheckpointSession,
        writes: Writes,
        recorder: EventRecorder,
        clock: Clock,
        *,
        adds_finalizer: Callable[[VictimPod, Eviction], bool],
        cleaner_report: CleanerReport,
        on_pod_written: Callable[[VictimPod], None],
    ) -> None:
        self.can_persist_state = True
        """False if the pod's annotations leave no room for the state of an eviction."""
        self._session = session
        self._writes = writes
        self._recorder = recorder
        self._clock = clock
        self._adds_finalizer = adds_finalizer
        self._cleaner_report = cleaner_report
        self._on_pod_written = on_pod_written
        self._queued_since: float | None = None
        self._unsent: tuple[str, int] | None = None
        """The eviction and the attempt that this process tried to write, while it does not know
        whether it did."""

    @property
    def hint_lost(self) -> bool:
        """True if the workload certainly lost the hint."""
        return self._session.poller.hint_lost

    @property
    def request_forgotten(self) -> bool:
        """True if the workload no longer knows the request that it once answered."""
        return self._session.poller.request_forgotten

    def on_state_read(self, state: Eviction) -> None:
        """Send the hint of an attempt that was written though the API server's answer was lost.

        Without this, it would be taken for an attempt of an earlier process. With three lost
        answers in a row, no attempt would be left, and the workload would never be asked.
        """
        if self._unsent == (state.eviction_id, state.attempt):
            self._begin_attempt()

    def current_answer(self, pod: VictimPod, state: Eviction) -> CheckpointAnswer | None:
        """Return what the workload says now, by a call or in its annotation."""
        return self._session.current_answer(pod, state)

    def clear_answer(self, answer: CheckpointAnswer | None) -> None:
        """Drop an answer that was taken into account."""
        self._session.poller.clear_answer(answer)

    def reserve_call(self, pod: VictimPod) -> bool:
        """Reserve the call of the first hint; `False` while it waits for other calls."""
        return self._session.reserve_call(pod)

    def release_call(self) -> None:
        """Leave the call that was reserved to others."""
        self._session.poller.release_call()

    def stop_lost_attempts(self) -> None:
        """Send no further hint to a workload for which no attempt is left."""
        if self.hint_lost or self.request_forgotten:
            self._session.poller.stop_attempts()

    def needs_final_poll(self, pod: VictimPod, state: Eviction, seen: ObservedVictim) -> bool:
        """True if the deadline has come and the workload was not polled since."""
        return self._session.needs_final_poll(pod, state, seen)

    def is_postponed(
        self, pod: VictimPod, decision: LifecycleDecision, answer: CheckpointAnswer | None
    ) -> bool:
        """True while the write that says that the workload saves is put off.

        In a burst, such writes would hold up the ones that others wait for. They are put off for
        a bounded time only, because users read them.
        """
        hinted_at = decision.eviction.hinted_at
        if hinted_at is None or not machine.may_postpone_write(decision, answer):
            return False
        if self.hint_lost or self.request_forgotten:
            # The workload has lost the request since it gave this answer. The request is sent again
            # only once the answer is written.
            return False
        namespace = pod.metadata.namespace or ""
        is_burst = self._recorder.is_burst(namespace)
        usual_seconds = _MAX_POSTPONE_SECONDS if is_burst else 0.0
        longest = _MAX_BUSY_POSTPONE_SECONDS if self._writes.is_busy(namespace) else usual_seconds
        elapsed = self._clock.now() - hinted_at
        # Before the hint: the clock was set back.
        return timedelta() <= elapsed < timedelta(seconds=longest)

    def unwritten_wait(self, pod: VictimPod, decision: LifecycleDecision) -> float:
        """Return for how many seconds a victim still waits for its call before that is written.

        At most `_MAX_UNWRITTEN_SECONDS`: then the caller asks again, because the API server may be
        less busy.
        """
        if not machine.is_hint_queued(decision.eviction):
            return 0.0
        now = self._clock.monotonic()
        self._queued_since = self._queued_since or now
        is_busy = self._writes.is_busy(pod.metadata.namespace or "")
        longest = MAX_BUSY_UNWRITTEN_SECONDS if is_busy else _MAX_UNWRITTEN_SECONDS
        left = min(self._queued_since + longest - now, _MAX_UNWRITTEN_SECONDS)
        if decision.eviction.deadline is not None:
            left = min(left, (decision.eviction.deadline - self._clock.now()).total_seconds())
        return max(0.0, left)

    def poll(self, pod: VictimPod, state: Eviction) -> float:
        """Poll the workload if that is due; return the seconds until there is more to do."""
        pause = self._session.poll(pod, state)
        if not cleanup.waits_for_cleaners(state):
            return pause
        return min(pause, self._cleaner_report.before_sigterm(pod, state))

    async def write(self, pod: VictimPod, decision: LifecycleDecision, *, begins: bool) -> bool:
        """Write a phase in which the workload has time; raises `ApiError`.

        Return `False` if the pod has no room for the first state: the eviction then goes on
        without notice. Without this, such a pod would stay forever.
        """
        state = decision.eviction
        is_hint = any(move.to is Phase.HINTED or move.resends_hint for move in decision.transitions)
        is_sent_next = is_hint and not machine.is_hint_queued(state)
        self._unsent = (state.eviction_id, state.attempt) if is_sent_next else None
        try:
            await self._write_state(pod, state, begins=begins)
        except ApiError as error:
            if not (begins and error.is_object_too_large):
                raise
            self.can_persist_state = False
            note = (
                "the pod's annotations leave no room for the state of an eviction, "
                "so the pod is evicted without notice"
            )
            self._recorder.event(
                ObjectReference.for_pod(pod.metadata), "SoftEvictionWithoutNotice", note
            )
            return False
        if is_sent_next:
            self._begin_attempt()
        return True

    async def cancel(self, pod: VictimPod, state: Eviction) -> None:
        """Tell a workload that got a hint that its pod stays."""
        await self._session.cancel(pod, state)

    async def close(self) -> None:
        """End the call to the workload that is under way."""
        await self._session.poller.close()

    def _begin_attempt(self) -> None:
        self._unsent = None
        self._session.poller.begin_attempt()

    async def _write_state(self, pod: VictimPod, state: Eviction, *, begins: bool) -> None:
        """Write the state, with the request if the annotation carries it."""
        if state.phase is Phase.REPRIEVED:
            self._on_pod_written(await self._writes.write_state(pod, state, None, begins=False))
            return
        endpoint = self._session.endpoint(pod)
        request = self._session.annotation_request(pod, state)
        self._on_pod_written(
            await self._writes.write_state(
                pod,
                state,
                request,
                begins=begins,
                adds_finalizer=self._adds_finalizer(pod, state),
            )
        )
        if begins and isinstance(endpoint, str):
            self._session.report_annotation_fallback(pod, endpoint)

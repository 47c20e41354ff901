"""One victim from TERMINATING on: the ledger, the condition, the deletion, the wait for finalizers.

Whether the victim is deleted is decided before (`lifecycle.machine`), and by which call in
`lifecycle.termination`. What this process knows of the deletion may be lost at any time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.victims.reporter import Reporter
from reprieve_policy.lifecycle import cleanup, termination
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.lifecycle.machine import LifecycleDecision
from reprieve_policy.lifecycle.termination import EvictionMethod
from reprieve_runtime.client.api import ApiError

from .deletion_wait import DeletionWait
from .eviction_retry import EvictionRetry
from .handover import ReplacementHandover
from .job_suspension import JobSuspension
from .state_writer import TerminationStateWriter

_SETS_DISRUPTION_TARGET = (
    EvictionMethod.DELETE,
    EvictionMethod.SET_DISRUPTION_CONDITION,
    EvictionMethod.SUSPEND,
)
"""Where the operator writes the condition `DisruptionTarget`; it does so in time, because the
control plane removes the condition after two minutes."""


class Termination:
    """Brings one victim to its end."""

    def __init__(
        self,
        *,
        writes: Writes,
        state_writer: TerminationStateWriter,
        job_suspension: JobSuspension,
        handover: ReplacementHandover,
        deletion_wait: DeletionWait,
        eviction_retry: EvictionRetry,
        reporter: Reporter,
        reread_seconds: float,
        on_pod_written: Callable[[VictimPod], None],
    ) -> None:
        self._writes = writes
        self._state_writer = state_writer
        self._job_suspension = job_suspension
        self._handover = handover
        self._deletion_wait = deletion_wait
        self._eviction_retry = eviction_retry
        self._reporter = reporter
        self._reread_seconds = reread_seconds
        self._on_pod_written = on_pod_written
        self._is_delete_requested = False
        self._is_end_unconfirmed = False
        """True while the API server's answer to the deletion is missing."""

    @property
    def unpersisted_state(self) -> Eviction | None:
        """The state, if the pod has no room for it."""
        return self._state_writer.unpersisted_state

    def is_stuck(self, pod: VictimPod | None) -> bool:
        """True if the victim still exists long after its grace period."""
        return self._deletion_wait.is_stuck(pod)

    @property
    def is_eviction_blocked(self) -> bool:
        """True if the API server did not allow the eviction at the last try."""
        return self._eviction_retry.is_blocked

    def on_reread(self) -> None:
        """Note that the pod was read: if the DELETE does not show in it, it is made again."""
        self._is_delete_requested = False

    async def terminate(self, pod: VictimPod, decision: LifecycleDecision) -> float:
        """Delete the victim; return the seconds until there is more to do."""
        state = decision.eviction
        if pod.metadata.deletionTimestamp is not None:
            return await self._wait_for_deletion(pod, decision)
        if self._is_delete_requested:
            # The watch does not show the DELETE yet. What it delivers meanwhile (a status, the
            # API server's condition) is older.
            return self._reread_seconds
        method = await self._job_suspension.decide_method(pod, state)
        await self._handover.record(pod, state)
        pod = await self._state_writer.write_terminating(
            pod, decision, sets_condition=method in _SETS_DISRUPTION_TARGET
        )
        # After the decision is written: a pod that is deleted by another client before that is
        # not stored, and so not created again.
        await self._handover.store_replacement(pod, state)
        pause = await self._perform(method, pod, state)
        if pause is not None:
            return min(pause, self._reread_seconds)
        self._is_delete_requested = True
        return self._reread_seconds

    async def write_finished(self, pod: VictimPod, state: Eviction) -> VictimPod:
        """Write the last state of a pod that ended by itself.

        If it failed, what its replacement inherits is written before.
        """
        is_inherited = termination.counts_as_preempted(state, has_failed=pod_state.has_failed(pod))
        await self._handover.record(pod, state, is_inherited=is_inherited)
        if is_inherited:
            await self._handover.store_replacement(pod, state)
        written = await self._state_writer.write_finished(pod, state)
        self._handover.on_victim_gone(pod.metadata.uid or "")
        return written

    async def write_cancelled(self, pod: VictimPod, state: Eviction) -> VictimPod:
        """Write the last state of a pod that stays; its ledger entry is taken back before."""
        if termination.is_recorded_in_ledger(state):
            await self._handover.retract(pod, state)
        await self._handover.publish_checkpoint(pod, state)
        written = await self._state_writer.write_cancelled(pod, state)
        self._handover.on_victim_gone(pod.metadata.uid or "")
        self._handover.reset()
        self._eviction_retry.reset()
        self._is_end_unconfirmed = False
        return written

    async def release_unwritten(self, pod: VictimPod, refused_for: timedelta) -> None:
        """Remove our finalizer at its ceiling, though writes that come before are refused."""
        if pod.metadata.deletionTimestamp is None:
            return
        if self._deletion_wait.may_remove_unwritten(pod, refused_for):
            await self.release(pod)

    async def release(self, pod: VictimPod) -> None:
        """Remove our finalizer."""
        self._on_pod_written(
            replace(pod, metadata=await self._writes.remove_finalizer(pod.metadata))
        )

    def on_pod_gone(self, uid: str, last: VictimPod | None) -> None:
        """Note that the victim is gone; `last` is its last known version."""
        state = None if last is None else pod_state.state_of(last.metadata)
        if last is not None and state is not None:
            self._report_unconfirmed_end(last, state)
            # The watch may show that the pod of a suspended Job is gone, and not its deletion.
            self._job_suspension.report_deletion(last, state)
        self._handover.on_victim_gone(
            uid, has_finished=last is not None and pod_state.has_completed(last)
        )

    async def _perform(
        self, method: EvictionMethod, pod: VictimPod, state: Eviction
    ) -> float | None:
        """Evict by the method; return the seconds until the next try, `None` if it is done."""
        match method:
            case EvictionMethod.DELETE:
                return await self._delete(pod, state)
            case EvictionMethod.EVICT:
                return await self._evict(pod, state)
            case EvictionMethod.SUSPEND:
                return await self._job_suspension.suspend(pod, state)
            case EvictionMethod.SET_DISRUPTION_CONDITION | EvictionMethod.WAIT:
                return self._job_suspension.wait(state)

    async def _delete(self, pod: VictimPod, state: Eviction) -> float | None:
        with self._unconfirmed_end():
            is_deleted = await self._writes.delete_pod(pod, state)
        if is_deleted:
            self._report_end(pod, state)
        else:
            self._report_unconfirmed_end(pod, state)
        return None

    async def _evict(self, pod: VictimPod, state: Eviction) -> float | None:
        with self._unconfirmed_end():
            pause = await self._eviction_retry.evict(pod, state)
        if pause is None:
            self._report_end(pod, state)
        return pause

    @contextmanager
    def _unconfirmed_end(self) -> Iterator[None]:
        """Note, if the answer to a call is missing, that the pod may be deleted by it.

        Also later: then the next call finds the pod changed, or gone.
        """
        try:
            yield
        except ApiError as error:
            self._is_end_unconfirmed |= error.is_unanswered
            raise

    def _report_end(self, pod: VictimPod, state: Eviction) -> None:
        self._is_end_unconfirmed = False
        self._job_suspension.forget()
        self._reporter.report_deleted(pod, state)

    def _report_unconfirmed_end(self, pod: VictimPod, state: Eviction) -> None:
        """Report, once, a deletion whose answer was lost."""
        if self._is_end_unconfirmed:
            self._report_end(pod, state)

    async def _wait_for_deletion(self, pod: VictimPod, decision: LifecycleDecision) -> float:
        state = decision.eviction
        if self._handover.is_retracted:
            # The pod was deleted before the cancellation could be written: its replacement
            # inherits what was recorded.
            await self._handover.record(pod, state)
        self._report_unconfirmed_end(pod, state)
        self._job_suspension.report_deletion(pod, state)
        if decision.transitions:
            # Another client has deleted the pod. What its replacement inherits is written before
            # the state, so that an operator that is killed between the two does it again.
            is_inherited = cleanup.inherits_if_overtaken(state)
            await self._handover.record(pod, state, is_inherited=is_inherited)
            pod = await self._state_writer.write_deleted_by_others(pod, decision)
        if pod_state.has_completed(pod) and not pod.metadata.ownerReferences:
            # While the pod exists. Without this, it would be created again if the operator were
            # killed as the pod disappears.
            await self._handover.forget_replacement(pod)
        pause = self._deletion_wait.report_finalizers(pod, state)
        if self._deletion_wait.may_remove_finalizer(pod):
            await self.release(pod)
        return pause

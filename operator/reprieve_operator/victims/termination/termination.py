"""One victim from TERMINATING on: the ledger, the condition, the deletion, the wait for finalizers.

Whether the victim is deleted is decided before (`lifecycle.machine`), and by which call in
`lifecycle.termination`. What this process knows of the deletion may be lost at any time.
"""

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.retries import GIVE_UP_AFTER, is_object_too_large
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.replacements.owner_jobs import OwnerJobs
from reprieve_operator.victims.reporter import Reporter
from reprieve_policy.kube.objects import controller_of
from reprieve_policy.lifecycle import termination
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.lifecycle.machine import LifecycleDecision
from reprieve_policy.lifecycle.termination import EvictionMethod
from reprieve_runtime.client.api import ApiError

from .deletion_wait import DeletionWait
from .eviction_retry import EvictionRetry
from .handover import ReplacementHandover

_log = logging.getLogger(__name__)

_SETS_DISRUPTION_TARGET = (
    EvictionMethod.DELETE,
    EvictionMethod.SET_DISRUPTION_CONDITION,
    EvictionMethod.SUSPEND,
)
"""Where the operator writes the condition `DisruptionTarget`; it does so in time, because the
control plane removes the condition after two minutes."""
_JOB_POLL_SECONDS = 2.0
"""Between two reads of the other pods of a Job."""


class Termination:
    """Brings one victim to its end."""

    def __init__(
        self,
        *,
        writes: Writes,
        policy: PolicySource,
        jobs: OwnerJobs,
        handover: ReplacementHandover,
        deletion_wait: DeletionWait,
        eviction_retry: EvictionRetry,
        reporter: Reporter,
        recorder: EventRecorder,
        clock: Clock,
        resync_seconds: float,
        on_pod_update: Callable[[VictimPod], None],
        on_state_written: Callable[[VictimPod, LifecycleDecision], None],
    ) -> None:
        self.unpersisted_state: Eviction | None = None
        """The state, if the pod has no room for it."""
        self._writes = writes
        self._policy = policy
        self._jobs = jobs
        self._handover = handover
        self._deletion_wait = deletion_wait
        self._eviction_retry = eviction_retry
        self._reporter = reporter
        self._recorder = recorder
        self._clock = clock
        self._resync_seconds = resync_seconds
        self._on_pod_update = on_pod_update
        self._on_state_written = on_state_written
        self._is_delete_requested = False
        self._waits_for_job = False
        self._actions: dict[
            EvictionMethod, Callable[[VictimPod, Eviction], Awaitable[float | None]]
        ] = {
            EvictionMethod.DELETE: self._delete,
            EvictionMethod.EVICT: self._evict,
            EvictionMethod.SUSPEND: self._suspend_job,
            EvictionMethod.SET_DISRUPTION_CONDITION: self._wait_for_job,
            EvictionMethod.WAIT: self._wait_for_job,
        }

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
            return self._resync_seconds
        method = await self._decide_method(pod, state)
        await self._handover.record(pod, state)
        pod = await self._write_terminating_state(pod, decision, method)
        # After the decision is written: a pod that is deleted by another client before that is
        # not stored, and so not created again.
        await self._handover.store_replacement(pod, state)
        pause = await self._actions[method](pod, state)
        if pause is not None:
            return min(pause, self._resync_seconds)
        self._is_delete_requested = True
        return self._resync_seconds

    async def write_finished(self, pod: VictimPod, state: Eviction) -> VictimPod:
        """Write the last state of a pod that ended by itself.

        If it failed, what its replacement inherits is written before.
        """
        is_inherited = termination.counts_as_preempted(state, has_failed=pod_state.has_failed(pod))
        await self._handover.record(pod, state, is_inherited=is_inherited)
        if is_inherited:
            await self._handover.store_replacement(pod, state)
        return await self._write_terminal_state(self._writes.write_finished, pod, state)

    async def write_cancelled(self, pod: VictimPod, state: Eviction) -> VictimPod:
        """Write the last state of a pod that stays; its ledger entry is taken back before."""
        if termination.is_recorded_in_ledger(state):
            await self._handover.retract(pod, state)
        await self._handover.publish_checkpoint(pod, state)
        written = await self._write_terminal_state(self._writes.write_cancelled, pod, state)
        self._handover.reset()
        self._eviction_retry.reset()
        return written

    def on_pod_gone(self, uid: str, last: VictimPod | None) -> None:
        """Note that the victim is gone; `last` is its last known version."""
        self._handover.on_victim_gone(
            uid, has_finished=last is not None and pod_state.has_completed(last)
        )

    async def _write_terminal_state(
        self, write: Callable[..., Awaitable[VictimPod]], pod: VictimPod, state: Eviction
    ) -> VictimPod:
        """Write a state that ends the eviction; a pod without room for it loses its label only."""
        try:
            written = await write(pod, state)
        except ApiError as error:
            if not is_object_too_large(error):
                raise
            written = await write(pod, state, has_room=False)
        # Without this, a state that never fitted would be acted on again and again.
        self.unpersisted_state = None
        self._handover.on_victim_gone(pod.metadata.uid or "")
        return written

    async def _decide_method(self, pod: VictimPod, state: Eviction) -> EvictionMethod:
        settings = self._policy.current
        job = await self._jobs.get(pod) if termination.depends_on_job(state, settings) else None
        return termination.decide_method(state, job, settings, self._clock.now())

    async def _suspend_job(self, pod: VictimPod, state: Eviction) -> float:
        backoff = timedelta(seconds=self._policy.current.suspended_job_backoff_seconds)
        until = await self._jobs.suspend(pod, backoff)
        if until is not None:
            owner = controller_of(pod.metadata)
            assert owner is not None
            job = ObjectReference(
                "Job", pod.metadata.namespace or "", owner.name, owner.uid, "batch/v1"
            )
            self._recorder.event(job, *event_messages.job_suspended(until))
        return await self._wait_for_job(pod, state)

    async def _wait_for_job(self, pod: VictimPod, state: Eviction) -> float:  # noqa: ARG002 - the signature of all actions
        self._waits_for_job = True
        return _JOB_POLL_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - jitter

    async def _delete(self, pod: VictimPod, state: Eviction) -> float | None:
        if await self._writes.delete_pod(pod, state):
            self._reporter.report_deleted(pod, state)
        return None

    async def _evict(self, pod: VictimPod, state: Eviction) -> float | None:
        pause = await self._eviction_retry.evict(pod, state)
        if pause is None:
            self._reporter.report_deleted(pod, state)
        return pause

    async def _write_terminating_state(
        self, pod: VictimPod, decision: LifecycleDecision, method: EvictionMethod
    ) -> VictimPod:
        """Write the state, and the condition where that is ours, unless the pod shows them."""
        state, sets_condition = decision.eviction, method in _SETS_DISRUPTION_TARGET
        is_written = self.unpersisted_state is not None or pod_state.state_of(pod.metadata) == state
        if is_written and not (sets_condition and not pod_state.has_disruption_target(pod)):
            return pod
        pod = await self._write_state_and_condition(pod, state, sets_condition=sets_condition)
        self._on_pod_update(pod)
        self._on_state_written(pod, decision)
        return pod

    async def _write_state_and_condition(
        self, pod: VictimPod, state: Eviction, *, sets_condition: bool
    ) -> VictimPod:
        if self.unpersisted_state is None:
            try:
                if not sets_condition:
                    return await self._writes.write_state(pod, state, None, begins=False)
                return await self._writes.write_disruption_target(pod, state)
            except ApiError as error:
                self._continue_unpersisted(pod, state, error)
            self.unpersisted_state = state
        if sets_condition:
            try:
                return await self._writes.write_disruption_target(pod, None)
            except ApiError as error:
                self._continue_unpersisted(pod, state, error)
        return pod

    def _continue_unpersisted(self, pod: VictimPod, state: Eviction, error: ApiError) -> None:
        """Continue without a write if the pod is full, or refused it a minute past the ceiling.

        In all other cases, raise the error.
        """
        until = termination.ceiling_of(state, self._policy.current) + GIVE_UP_AFTER
        may_retry = error.is_unreachable or error.is_conflict
        is_late = not may_retry and self._clock.now() >= until
        if not (is_late or is_object_too_large(error)):
            raise error
        _log.warning(
            "could not write the terminating state; the eviction continues",
            extra={"pod": pod.metadata.key, "error": str(error)},
        )

    async def _wait_for_deletion(self, pod: VictimPod, decision: LifecycleDecision) -> float:
        state = decision.eviction
        if self._handover.is_retracted:
            # The pod was deleted before the cancellation could be written: its replacement
            # inherits what was recorded.
            await self._handover.record(pod, state)
        if self._waits_for_job:
            self._waits_for_job = False
            self._reporter.report_suspended(pod, state)
        if decision.transitions:
            # Another client has deleted the pod.
            await self._handover.publish_checkpoint(pod, state)
            try:
                pod = await self._writes.write_state(pod, state, None, begins=False)
            except ApiError as error:
                if not is_object_too_large(error):
                    raise
                self.unpersisted_state = state
            self._on_pod_update(pod)
            self._on_state_written(pod, decision)
        if pod_state.has_completed(pod) and not pod.metadata.ownerReferences:
            # While the pod exists. Without this, it would be created again if the operator were
            # killed as the pod disappears.
            await self._handover.forget_replacement(pod)
        pause = self._deletion_wait.report_finalizers(pod)
        if self._deletion_wait.may_remove_finalizer(pod):
            self._on_pod_update(
                replace(pod, metadata=await self._writes.remove_finalizer(pod.metadata))
            )
        return pause

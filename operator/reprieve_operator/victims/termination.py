"""One victim from TERMINATING on: the ledger, the condition, its end, and the wait for whoever holds the object.

Whether it goes is decided before (`life`), how by `ending`; what this process knows of the end may be lost at any instant.
"""

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.event_recorder import ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.retries import (
    GIVE_UP_AFTER,
    OptionalWriteDeadline,
    is_object_too_large,
    is_permanent,
)
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.kube.objects import controller_of
from reprieve_policy.lifecycle import termination
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.lifecycle.machine import LifecycleDecision
from reprieve_policy.lifecycle.termination import EvictionMethod
from reprieve_runtime.client.api import ApiError

from .context import Tools
from .deletion_wait import DeletionWait
from .eviction_retry import EvictionRetry

_log = logging.getLogger(__name__)

_RETRIABLE_STATUSES = (0, 409)
"""Nobody answered, or the picture was old."""
_SETS_DISRUPTION_TARGET = (
    EvictionMethod.DELETE,
    EvictionMethod.SET_DISRUPTION_CONDITION,
    EvictionMethod.SUSPEND,
)
"""Where the condition that says "disrupted" is ours to write, in time: the control plane takes it back after two minutes."""
_JOB_POLL_SECONDS = 2.0
"""Between two looks at the other pods of a Job."""


class Termination:
    """Between one keeper and the end of its victim."""

    def __init__(
        self,
        tools: Tools,
        on_pod_update: Callable[[VictimPod], None],
        on_state_written: Callable[[VictimPod, LifecycleDecision], None],
    ) -> None:
        self.unpersisted_state: Eviction | None = None
        """The state, where the pod has no room for it."""
        self._tools = tools
        self._on_pod_update = on_pod_update
        self._on_state_written = on_state_written
        self._deletion_wait = DeletionWait(tools)
        self._eviction_retry = EvictionRetry(tools)
        self._optional_write_deadline = OptionalWriteDeadline(tools.clock)
        self._is_in_ledger = False
        self._is_ledger_retracted = False
        self._is_checkpoint_published = False
        self._is_replacement_stored = False
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
        """True where the victim is there long after its grace was over."""
        return self._deletion_wait.is_stuck(pod)

    @property
    def is_eviction_blocked(self) -> bool:
        """True where the API server would not let the victim be evicted."""
        return self._eviction_retry.is_blocked

    def on_reread(self) -> None:
        """Take note that the pod was read: should the DELETE not show in it, it is made again."""
        self._is_delete_requested = False

    async def terminate(self, pod: VictimPod, decision: LifecycleDecision) -> float:
        """Bring the victim to its end; return the seconds until there is more to do, should nothing happen before."""
        state, resync = decision.eviction, self._tools.settings.resync_interval_seconds
        if pod.metadata.deletionTimestamp is not None:
            return await self._wait_for_deletion(pod, decision)
        if self._is_delete_requested:
            # The watch has not told yet; what it tells meanwhile (a status, the API server's condition) is older.
            return resync
        way = await self._decide_action(pod, state)
        await self._record_in_ledger(pod, state)
        pod = await self._write_terminating_state(pod, decision, way)
        # After the decision is written: of one that somebody deletes before, nothing is kept, so it does not come back.
        await self._store_replacement(pod, state)
        pause = await self._actions[way](pod, state)
        if pause is not None:
            return min(pause, resync)
        self._is_delete_requested = True
        return resync

    async def write_finished(self, pod: VictimPod, state: Eviction) -> VictimPod:
        """Write the last state of a pod that ended by itself; of one that failed, what its replacement inherits before."""
        is_inherited = termination.counts_as_preempted(state, has_failed=pod_state.has_failed(pod))
        await self._record_in_ledger(pod, state, is_inherited=is_inherited)
        if is_inherited:
            await self._store_replacement(pod, state)
        return await self._write_terminal_state(self._tools.effects.write_finished, pod, state)

    async def write_cancelled(self, pod: VictimPod, state: Eviction) -> VictimPod:
        """Write the last state of a pod that stays; before, take back what was left on its owner."""
        if termination.is_recorded_in_ledger(state):
            await self._retract_from_ledger(pod, state)
        await self._publish_checkpoint(pod, state)
        stayed = await self._write_terminal_state(self._tools.effects.write_cancelled, pod, state)
        # It may be asked for again, and save anew.
        self._is_in_ledger = self._is_ledger_retracted = self._is_checkpoint_published = (
            self._is_replacement_stored
        ) = False
        self._eviction_retry = EvictionRetry(self._tools)
        return stayed

    def on_pod_gone(self, uid: str, last: VictimPod | None) -> None:
        """Take note that the victim is gone, as it was seen last."""
        self._tools.requeuer.on_victim_gone(
            uid, has_finished=last is not None and pod_state.has_completed(last)
        )

    async def _write_terminal_state(
        self, write: Callable[..., Awaitable[VictimPod]], pod: VictimPod, state: Eviction
    ) -> VictimPod:
        """Write a state after which the pod is nobody's victim, or, where there is no room for it, that it is none."""
        try:
            written = await write(pod, state)
        except ApiError as error:
            if not is_object_too_large(error):
                raise
            written = await write(pod, state, has_room=False)
        # Without this, a state that never fitted would be acted on again and again.
        self.unpersisted_state = None
        self._tools.requeuer.on_victim_gone(pod.metadata.uid or "")
        return written

    async def _decide_action(self, pod: VictimPod, state: Eviction) -> EvictionMethod:
        settings = self._tools.policy.current
        job = (
            await self._tools.jobs.get(pod) if termination.depends_on_job(state, settings) else None
        )
        return termination.decide_method(state, job, settings, self._tools.clock.now())

    async def _suspend_job(self, pod: VictimPod, state: Eviction) -> float:
        backoff = timedelta(seconds=self._tools.policy.current.suspended_job_backoff_seconds)
        until = await self._tools.jobs.suspend(pod, backoff)
        if until is not None:
            owner = controller_of(pod.metadata)
            assert owner is not None
            about = ObjectReference(
                "Job", pod.metadata.namespace or "", owner.name, owner.uid, "batch/v1"
            )
            self._tools.announcer.event(about, *event_messages.job_suspended(until))
        return await self._wait_for_job(pod, state)

    async def _wait_for_job(self, pod: VictimPod, state: Eviction) -> float:  # noqa: ARG002 - as the other ways
        self._waits_for_job = True
        return _JOB_POLL_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - jitter

    async def _delete(self, pod: VictimPod, state: Eviction) -> float | None:
        if await self._tools.effects.delete_pod(pod, state):
            self._tools.tally.report_deleted(pod, state)
        return None

    async def _evict(self, pod: VictimPod, state: Eviction) -> float | None:
        pause = await self._eviction_retry.evict(pod, state)
        if pause is None:
            self._tools.tally.report_deleted(pod, state)
        return pause

    async def _write_terminating_state(
        self, pod: VictimPod, decision: LifecycleDecision, way: EvictionMethod
    ) -> VictimPod:
        """Write the state and, where the API server does not, the condition; whatever of it the pod does not show."""
        state, announces = decision.eviction, way in _SETS_DISRUPTION_TARGET
        is_written = self.unpersisted_state is not None or pod_state.state_of(pod.metadata) == state
        if is_written and not (announces and not pod_state.has_disruption_target(pod)):
            return pod
        pod = await self._write_state_and_condition(pod, state, way)
        self._on_pod_update(pod)
        self._on_state_written(pod, decision)
        return pod

    async def _write_state_and_condition(
        self, pod: VictimPod, state: Eviction, way: EvictionMethod
    ) -> VictimPod:
        effects, announces = self._tools.effects, way in _SETS_DISRUPTION_TARGET
        if self.unpersisted_state is None:
            try:
                if not announces:
                    return await effects.write_state(pod, state, None, begins=False)
                return await effects.write_disruption_target(pod, state)
            except ApiError as error:
                self._continue_unpersisted(pod, state, error)
            self.unpersisted_state = state
        if announces:
            try:
                return await effects.write_disruption_target(pod, None)
            except ApiError as error:
                self._continue_unpersisted(pod, state, error)
        return pod

    def _continue_unpersisted(self, pod: VictimPod, state: Eviction, error: ApiError) -> None:
        """Raise what the pod's write came to, unless the pod is full, or a minute beyond the ceiling still refused: it must go."""
        until = termination.ceiling_of(state, self._tools.policy.current) + GIVE_UP_AFTER
        is_late = error.status not in _RETRIABLE_STATUSES and self._tools.clock.now() >= until
        if not (is_late or is_object_too_large(error)):
            raise error
        _log.warning("end not written", extra={"pod": pod.metadata.key, "error": str(error)})

    async def _wait_for_deletion(self, pod: VictimPod, decision: LifecycleDecision) -> float:
        if self._is_ledger_retracted:
            # It was to stay, and went before that could be written: its replacement inherits what was counted.
            await self._record_in_ledger(pod, decision.eviction)
        if self._waits_for_job:
            self._waits_for_job = False
            self._tools.tally.report_suspended(pod, decision.eviction)
        if decision.transitions:
            # Somebody else has deleted it.
            await self._publish_checkpoint(pod, decision.eviction)
            try:
                pod = await self._tools.effects.write_state(
                    pod, decision.eviction, None, begins=False
                )
            except ApiError as error:
                if not is_object_too_large(error):
                    raise
                self.unpersisted_state = decision.eviction
            self._on_pod_update(pod)
            self._on_state_written(pod, decision)
        if pod_state.has_completed(pod) and not pod.metadata.ownerReferences:
            # While it is there. Without this, an operator killed as it disappears would have it made anew.
            await self._write_optional(
                "bare pod not forgotten",
                pod,
                self._tools.requeuer.forget_replacement(pod.metadata.uid or ""),
            )
        pause = self._deletion_wait.report_finalizers(pod)
        if self._deletion_wait.may_remove_finalizer(pod):
            self._on_pod_update(
                replace(pod, metadata=await self._tools.effects.remove_finalizer(pod.metadata))
            )
        return pause

    async def _record_in_ledger(
        self, pod: VictimPod, state: Eviction, *, is_inherited: bool = True
    ) -> None:
        """Leave on the pod's owner what its replacement inherits; where none does, only when it has saved."""
        if not (is_inherited and self._may_be_recreated(pod)):
            await self._publish_checkpoint(pod, state)
            return
        if self._is_in_ledger:
            return
        record = self._tools.ledger.record(pod, state, self._tools.clock.now())
        error = await self._write_optional("ledger not written", pod, record)
        if error is not None:
            self._tools.announcer.event(
                ObjectReference.for_pod(pod.metadata),
                *event_messages.ledger_not_written(error.message),
            )
        self._is_in_ledger = self._is_checkpoint_published = _is_resolved(error)
        self._is_ledger_retracted &= not self._is_in_ledger

    async def _publish_checkpoint(self, pod: VictimPod, state: Eviction) -> None:
        """Say on the pod's owner when it has saved, before the pod's last write: whoever is killed in between says it again."""
        if self._is_checkpoint_published or state.checkpoint is None:
            return
        try:
            await self._tools.ledger.publish_checkpoint(pod, state.checkpoint.saved_at)
        except ApiError as error:
            if error.status in _RETRIABLE_STATUSES and not self._optional_write_deadline.has_passed(
                error
            ):
                raise
            # The pod says it, too. Without this, a broken webhook for owners would keep a victim from being stood down.
            _log.warning(
                "checkpoint not published", extra={"pod": pod.metadata.key, "error": str(error)}
            )
        self._is_checkpoint_published = True

    async def _retract_from_ledger(self, pod: VictimPod, state: Eviction) -> None:
        await self._write_optional(
            "ledger not taken back", pod, self._tools.ledger.retract(pod, state)
        )
        self._is_in_ledger, self._is_ledger_retracted = False, True

    async def _store_replacement(self, pod: VictimPod, state: Eviction) -> None:
        """Keep what will take the place of a pod without an owner."""
        if self._is_replacement_stored or not self._may_be_recreated(pod):
            return
        error = await self._write_optional(
            "bare pod not kept", pod, self._tools.requeuer.store_replacement(pod, state)
        )
        if error is not None:
            self._tools.announcer.event(
                ObjectReference.for_pod(pod.metadata), *event_messages.not_requeued(error.message)
            )
        self._is_replacement_stored = _is_resolved(error)

    async def _write_optional(
        self, what: str, pod: VictimPod, call: Awaitable[None]
    ) -> ApiError | None:
        """Do what is about others than the victim; return with what it was refused once the victim is to wait for it no longer."""
        try:
            await call
        except ApiError as error:
            if not self._optional_write_deadline.has_passed(error):
                raise
            _log.error(what, extra={"pod": pod.metadata.key, "error": str(error)})
            return error
        self._optional_write_deadline.reset()
        return None

    def _may_be_recreated(self, pod: VictimPod) -> bool:
        return (
            pod_state.plan_of(pod, self._tools.policy.current).requeue
            is not checkpoint_plan.Requeue.NEVER
        )


def _is_resolved(error: ApiError | None) -> bool:
    """True where nothing would come of asking again: it is done, or refused for good.

    Whatever else was given up is asked for once more at each turn. Without this, an API server that was away would come back to a
    victim whose replacement inherits nothing.
    """
    return error is None or is_permanent(error)

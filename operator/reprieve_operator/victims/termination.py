"""One victim from TERMINATING on: the ledger, the condition, its end, and the wait for whoever holds the object.

Whether it goes is decided before (`life`), how by `ending`; what this process knows of the end may be lost at any instant.
"""

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.event_recorder import Regarding
from reprieve_operator.cluster.pods import Pod
from reprieve_operator.cluster.retries import PATIENCE, Patience, is_final, is_without_room
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.kube.objects import controller_of
from reprieve_policy.lifecycle import termination
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.lifecycle.machine import Decision
from reprieve_policy.lifecycle.termination import Way
from reprieve_runtime.client.api import ApiError

from .context import Tools
from .deletion_wait import Ending
from .eviction_retry import Evicting

_log = logging.getLogger(__name__)

_LOOK_AGAIN = (0, 409)
"""Nobody answered, or the picture was old."""
_ANNOUNCED = (Way.DELETE, Way.ANNOUNCE, Way.SUSPEND)
"""Where the condition that says "disrupted" is ours to write, in time: the control plane takes it back after two minutes."""
_JOB_SECONDS = 2.0
"""Between two looks at the other pods of a Job."""


class Departure:
    """Between one keeper and the end of its victim."""

    def __init__(self, tools: Tools, see: Callable[[Pod], None], written: Callable[[Pod, Decision], None]) -> None:
        self.unwritten: Eviction | None = None
        """The state, where the pod has no room for it."""
        self._tools = tools
        self._see = see
        self._written = written
        self._ending = Ending(tools)
        self._evicting = Evicting(tools)
        self._patience = Patience(tools.clock)
        self._is_recorded = False
        self._is_retracted = False
        self._is_published = False
        self._is_preserved = False
        self._is_asked = False
        self._waits_for_job = False
        self._ways: dict[Way, Callable[[Pod, Eviction], Awaitable[float | None]]] = {
            Way.DELETE: self._delete,
            Way.EVICT: self._evict,
            Way.SUSPEND: self._suspend,
            Way.ANNOUNCE: self._wait_for_job,
            Way.WAIT: self._wait_for_job,
        }

    def is_stuck(self, pod: Pod | None) -> bool:
        """True where the victim is there long after its grace was over."""
        return self._ending.is_stuck(pod)

    @property
    def is_held(self) -> bool:
        """True where the API server would not let the victim be evicted."""
        return self._evicting.is_held

    def looked(self) -> None:
        """Take note that the pod was read: should the DELETE not show in it, it is made again."""
        self._is_asked = False

    async def proceed(self, pod: Pod, decision: Decision) -> float:
        """Bring the victim to its end; return the seconds until there is more to do, should nothing happen before."""
        state, resync = decision.eviction, self._tools.settings.resync_interval_seconds
        if pod.metadata.deletionTimestamp is not None:
            return await self._wait_for_end(pod, decision)
        if self._is_asked:
            # The watch has not told yet; what it tells meanwhile (a status, the API server's condition) is older.
            return resync
        way = await self._way(pod, state)
        await self._record(pod, state)
        pod = await self._write_end(pod, decision, way)
        # After the decision is written: of one that somebody deletes before, nothing is kept, so it does not come back.
        await self._preserve(pod, state)
        pause = await self._ways[way](pod, state)
        if pause is not None:
            return min(pause, resync)
        self._is_asked = True
        return resync

    async def finish(self, pod: Pod, state: Eviction) -> Pod:
        """Write the last state of a pod that ended by itself; of one that failed, what its replacement inherits before."""
        is_inherited = termination.is_inherited(state, has_failed=pod_state.has_failed(pod))
        await self._record(pod, state, is_inherited=is_inherited)
        if is_inherited:
            await self._preserve(pod, state)
        return await self._write_last(self._tools.effects.write_finished, pod, state)

    async def stay(self, pod: Pod, state: Eviction) -> Pod:
        """Write the last state of a pod that stays; before, take back what was left on its owner."""
        if termination.was_counted(state):
            await self._retract(pod, state)
        await self._publish(pod, state)
        stayed = await self._write_last(self._tools.effects.write_cancelled, pod, state)
        # It may be asked for again, and save anew.
        self._is_recorded = self._is_retracted = self._is_published = self._is_preserved = False
        self._evicting = Evicting(self._tools)
        return stayed

    def vanished(self, uid: str, last: Pod | None) -> None:
        """Take note that the victim is gone, as it was seen last."""
        self._tools.requeuer.ended(uid, has_finished=last is not None and pod_state.has_finished(last))

    async def _write_last(self, write: Callable[..., Awaitable[Pod]], pod: Pod, state: Eviction) -> Pod:
        """Write a state after which the pod is nobody's victim, or, where there is no room for it, that it is none."""
        try:
            written = await write(pod, state)
        except ApiError as error:
            if not is_without_room(error):
                raise
            written = await write(pod, state, has_room=False)
        # Without this, a state that never fitted would be acted on again and again.
        self.unwritten = None
        self._tools.requeuer.ended(pod.metadata.uid or "")
        return written

    async def _way(self, pod: Pod, state: Eviction) -> Way:
        settings = self._tools.policy.current
        job = await self._tools.jobs.look(pod) if termination.concerns_its_job(state, settings) else None
        return termination.decide(state, job, settings, self._tools.clock.now())

    async def _suspend(self, pod: Pod, state: Eviction) -> float:
        backoff = timedelta(seconds=self._tools.policy.current.suspended_job_backoff_seconds)
        until = await self._tools.jobs.suspend(pod, backoff)
        if until is not None:
            owner = controller_of(pod.metadata)
            assert owner is not None
            about = Regarding("Job", pod.metadata.namespace or "", owner.name, owner.uid, "batch/v1")
            self._tools.announcer.announce(about, *event_messages.job_suspended(until))
        return await self._wait_for_job(pod, state)

    async def _wait_for_job(self, pod: Pod, state: Eviction) -> float:  # noqa: ARG002 - as the other ways
        self._waits_for_job = True
        return _JOB_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - jitter

    async def _delete(self, pod: Pod, state: Eviction) -> float | None:
        if await self._tools.effects.delete(pod, state):
            self._tools.tally.deleted(pod, state)
        return None

    async def _evict(self, pod: Pod, state: Eviction) -> float | None:
        pause = await self._evicting.evict(pod, state)
        if pause is None:
            self._tools.tally.deleted(pod, state)
        return pause

    async def _write_end(self, pod: Pod, decision: Decision, way: Way) -> Pod:
        """Write the state and, where the API server does not, the condition; whatever of it the pod does not show."""
        state, announces = decision.eviction, way in _ANNOUNCED
        is_written = self.unwritten is not None or pod_state.state_of(pod.metadata) == state
        if is_written and not (announces and not pod_state.has_disruption_target(pod)):
            return pod
        pod = await self._write(pod, state, way)
        self._see(pod)
        self._written(pod, decision)
        return pod

    async def _write(self, pod: Pod, state: Eviction, way: Way) -> Pod:
        effects, announces = self._tools.effects, way in _ANNOUNCED
        if self.unwritten is None:
            try:
                if not announces:
                    return await effects.write_state(pod, state, None, begins=False)
                return await effects.write_disruption(pod, state)
            except ApiError as error:
                self._go_on_unwritten(pod, state, error)
            self.unwritten = state
        if announces:
            try:
                return await effects.write_disruption(pod, None)
            except ApiError as error:
                self._go_on_unwritten(pod, state, error)
        return pod

    def _go_on_unwritten(self, pod: Pod, state: Eviction, error: ApiError) -> None:
        """Raise what the pod's write came to, unless the pod is full, or a minute beyond the ceiling still refused: it must go."""
        until = termination.ceiling_of(state, self._tools.policy.current) + PATIENCE
        is_late = error.status not in _LOOK_AGAIN and self._tools.clock.now() >= until
        if not (is_late or is_without_room(error)):
            raise error
        _log.warning("end not written", extra={"pod": pod.metadata.key, "error": str(error)})

    async def _wait_for_end(self, pod: Pod, decision: Decision) -> float:
        if self._is_retracted:
            # It was to stay, and went before that could be written: its replacement inherits what was counted.
            await self._record(pod, decision.eviction)
        if self._waits_for_job:
            self._waits_for_job = False
            self._tools.tally.suspended(pod, decision.eviction)
        if decision.moves:
            # Somebody else has deleted it.
            await self._publish(pod, decision.eviction)
            try:
                pod = await self._tools.effects.write_state(pod, decision.eviction, None, begins=False)
            except ApiError as error:
                if not is_without_room(error):
                    raise
                self.unwritten = decision.eviction
            self._see(pod)
            self._written(pod, decision)
        if pod_state.has_finished(pod) and not pod.metadata.ownerReferences:
            # While it is there. Without this, an operator killed as it disappears would have it made anew.
            await self._attempt("bare pod not forgotten", pod, self._tools.requeuer.finished(pod.metadata.uid or ""))
        pause = self._ending.wait(pod)
        if self._ending.may_let_go(pod):
            self._see(replace(pod, metadata=await self._tools.effects.let_go(pod.metadata)))
        return pause

    async def _record(self, pod: Pod, state: Eviction, *, is_inherited: bool = True) -> None:
        """Leave on the pod's owner what its replacement inherits; where none does, only when it has saved."""
        if not (is_inherited and self._may_return(pod)):
            await self._publish(pod, state)
            return
        if self._is_recorded:
            return
        record = self._tools.ledger.record(pod, state, self._tools.clock.now())
        error = await self._attempt("ledger not written", pod, record)
        if error is not None:
            self._tools.announcer.announce(Regarding.pod(pod.metadata), *event_messages.not_counted(error.message))
        self._is_recorded = self._is_published = _is_settled(error)
        self._is_retracted &= not self._is_recorded

    async def _publish(self, pod: Pod, state: Eviction) -> None:
        """Say on the pod's owner when it has saved, before the pod's last write: whoever is killed in between says it again."""
        if self._is_published or state.checkpoint is None:
            return
        try:
            await self._tools.ledger.publish(pod, state.checkpoint.saved_at)
        except ApiError as error:
            if error.status in _LOOK_AGAIN and not self._patience.is_over(error):
                raise
            # The pod says it, too. Without this, a broken webhook for owners would keep a victim from being stood down.
            _log.warning("checkpoint not published", extra={"pod": pod.metadata.key, "error": str(error)})
        self._is_published = True

    async def _retract(self, pod: Pod, state: Eviction) -> None:
        await self._attempt("ledger not taken back", pod, self._tools.ledger.retract(pod, state))
        self._is_recorded, self._is_retracted = False, True

    async def _preserve(self, pod: Pod, state: Eviction) -> None:
        """Keep what will take the place of a pod without an owner."""
        if self._is_preserved or not self._may_return(pod):
            return
        error = await self._attempt("bare pod not kept", pod, self._tools.requeuer.preserve(pod, state))
        if error is not None:
            self._tools.announcer.announce(Regarding.pod(pod.metadata), *event_messages.not_requeued(error.message))
        self._is_preserved = _is_settled(error)

    async def _attempt(self, what: str, pod: Pod, call: Awaitable[None]) -> ApiError | None:
        """Do what is about others than the victim; return with what it was refused once the victim is to wait for it no longer."""
        try:
            await call
        except ApiError as error:
            if not self._patience.is_over(error):
                raise
            _log.error(what, extra={"pod": pod.metadata.key, "error": str(error)})
            return error
        self._patience.renew()
        return None

    def _may_return(self, pod: Pod) -> bool:
        return pod_state.plan_of(pod, self._tools.policy.current).requeue is not checkpoint_plan.Requeue.NEVER


def _is_settled(error: ApiError | None) -> bool:
    """True where nothing would come of asking again: it is done, or refused for good.

    Whatever else was given up is asked for once more at each turn. Without this, an API server that was away would come back to a
    victim whose replacement inherits nothing.
    """
    return error is None or is_final(error)

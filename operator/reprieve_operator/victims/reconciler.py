"""One victim, from mark to end: observe, decide, write, wait. `lifecycle` makes all decisions.

A reconciler holds no state that matters: what it knows beyond the pod (which requests this process
has sent, how long finalizers have held the object) may be lost at any time.
"""

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.retries import GONE_OR_CHANGED, PERMANENT_STATUSES
from reprieve_operator.turns import Turns
from reprieve_policy.checkpointing.contract import CheckpointAnswer
from reprieve_policy.lifecycle import lost_node, machine, termination
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.lifecycle.machine import LifecycleDecision, ObservedVictim
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_runtime.backoff import Backoff
from reprieve_runtime.client.api import ApiError

from .assessment import Assessment, VictimAssessor
from .gang_eviction.eviction import GangEviction
from .gang_eviction.member import GangMember
from .hold import Hold
from .lost_nodes import LostNodeChecker
from .notice import Notice
from .pod_tracker import PodTracker
from .preemptors import Preemptors
from .progress import Progress
from .termination.termination import Termination
from .victim_sets import VictimSets

_log = logging.getLogger(__name__)

_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 0.4, 15.0
_STAYING = (Phase.CANCELLED, Phase.SPARED)
_SHORTEST_PAUSE_SECONDS = 1.0
"""How long of the pause after a refused call no change of the pod ends. Without this, an owner that
writes to the pod all the time would have the operator make a call for each write."""


class VictimReconciler:
    """The task of one victim."""

    def __init__(
        self,
        *,
        tracker: PodTracker,
        progress: Progress,
        assessor: VictimAssessor,
        gang_member: GangMember,
        victim_sets: VictimSets,
        preemptors: Preemptors,
        notice: Notice,
        termination: Termination,
        lost_nodes: LostNodeChecker,
        hold: Hold,
        policy: PolicySource,
        clock: Clock,
        turns: Turns,
        max_retry_after_seconds: float,
    ) -> None:
        self.tracker = tracker
        self.progress = progress
        self._assessor = assessor
        self._gang_member = gang_member
        self._victim_sets = victim_sets
        self._preemptors = preemptors
        self._notice = notice
        self._termination = termination
        self._lost_nodes = lost_nodes
        self._hold = hold
        self._policy = policy
        self._clock = clock
        self._turns = turns
        self._max_retry_after_seconds = max_retry_after_seconds
        self._backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS)
        self._refused_since: float | None = None
        self._unwritten_since: datetime | None = None
        """When the eviction began, while that is not written: it waits for its call, or others
        write to the pod all the time."""
        self.is_done = False
        """True once nothing is left to do: it does not look at the pod again."""

    @property
    def is_stuck(self) -> bool:
        """True if the victim still exists long after its grace period."""
        return self._termination.is_stuck(self.tracker.pod)

    def join_gang(self, gang_eviction: GangEviction) -> None:
        """Evict the pod with its gang: the eviction of another of its pods was requested."""
        self._gang_member.join(gang_eviction)
        self.tracker.wake()

    async def run(self) -> None:
        """Reconcile the victim until there is nothing left to do for it."""
        try:
            while not self.is_done:
                await self._turns.wait()
                self.tracker.discard_changes()
                shortest = 0.0
                try:
                    pause = await self._reconcile()
                    self._refused_since = None
                    self._backoff.reset()
                except ApiError as error:
                    pause = self._retry_delay(error)
                    shortest = min(pause, _SHORTEST_PAUSE_SECONDS)
                    await self._release_at_ceiling()
                if not self.is_done:
                    await self.tracker.wait_for_change(pause, shortest)
        finally:
            self._gang_member.leave()
            await self._notice.close()

    async def _reconcile(self) -> float:
        """Do what is due now; return the seconds until the next reconciliation."""
        last = self.tracker.pod
        if await self.tracker.refresh(self.progress.read_priority):
            self._termination.on_reread()
        pod = self.tracker.pod_to_write
        if pod is None:
            return self._on_pod_gone(last)
        if pod_state.has_cleanup_finalizer(pod.metadata) and self._hold.must_release(pod.metadata):
            await self._termination.release(pod)
            return 0.0
        if await self._confirm(pod):
            return 0.0
        return await self._reconcile_pod(pod)

    async def _reconcile_pod(self, pod: VictimPod) -> float:
        state, begins = self._current_state(pod)
        if state is None or state.phase in TERMINAL:
            self.is_done = True
            return 0.0
        self.progress.on_state_read(state)
        self._notice.on_state_read(state)
        assessment = await self._assess(pod, state) if begins else Assessment(state)
        state = await self._gang_member.look_up_gang(pod, assessment.state, begins=begins)
        is_leaving = state.phase is Phase.TERMINATING
        answer = None if begins or is_leaving else self._notice.current_answer(pod, state)
        seen = self._observe(pod, state, answer, assessment)
        if self._notice.needs_final_poll(pod, state, seen):
            return self._notice.poll(pod, state)
        decision = await self._decide(pod, state, seen)
        if begins and (seconds := self._notice.unwritten_wait(pod, decision)):
            return seconds
        if self._notice.is_postponed(pod, decision, answer):
            return self._notice.poll(pod, state)
        self.progress.on_answer(state, answer)
        if decision.eviction != state or is_leaving:
            pause = await self._apply(pod, decision, begins=begins)
            self._notice.clear_answer(answer)
            return pause
        self._notice.clear_answer(answer)
        self._notice.stop_lost_attempts()
        return self._notice.poll(pod, state)

    def _current_state(self, pod: VictimPod) -> tuple[Eviction | None, bool]:
        """Return the state, and whether the eviction begins with it: its notice is still due."""
        if self._termination.unpersisted_state is not None:
            return self._termination.unpersisted_state, False
        state = pod_state.state_of(pod.metadata)
        if state is not None and pod_state.is_in_progress(state):
            self._unwritten_since = None
            # The workload of a reprieved pod has not been notified yet.
            return state, state.phase is Phase.REPRIEVED
        now = self._unwritten_since or self._clock.now()
        begun = pod_state.initial_state(pod, now) or self._gang_member.initial_state(now)
        self._unwritten_since = None if begun is None else now
        if begun is None:
            return state, False
        return termination.carry_over_budget_hold(begun, state, self._policy.current), True

    async def _assess(self, pod: VictimPod, state: Eviction) -> Assessment:
        assessment = await self._assessor.assess(pod, state)
        protection = assessment.protection
        # A pod without room for a state cannot carry the time until which it is reprieved.
        if protection is None or protection.until is None or self._notice.can_persist_state:
            return assessment
        return replace(assessment, protection=None)

    def _observe(
        self,
        pod: VictimPod,
        state: Eviction,
        answer: CheckpointAnswer | None,
        assessment: Assessment,
    ) -> ObservedVictim:
        has_room, uid = self._notice.can_persist_state, self.tracker.ref.uid
        plan = pod_state.plan_of(pod, self._policy.current, has_room=has_room)
        seen = pod_state.observe(
            pod,
            state,
            answer,
            protection=assessment.protection,
            hint_lost=self._notice.hint_lost,
            request_forgotten=self._notice.request_forgotten,
            has_cleaners=bool(pod_state.pending_cleaners(pod, plan)),
        )
        seen = self._gang_member.observe(seen, state, has_room=has_room)
        has_left = self._preemptors.has_left(uid)
        is_ready = state.phase in (Phase.SETTLED, Phase.SAVED)
        self._victim_sets.on_gang_observed(uid, waits_for_gang=is_ready and not seen.may_terminate)
        return replace(
            seen,
            loses_less_at_once=assessment.loses_less_at_once,
            # A pod without room for a state cannot carry that it waits for the other victims.
            is_set_ready=self._victim_sets.is_ready(uid) or not has_room,
            may_set_grow=self._victim_sets.may_grow(uid) and has_room,
            is_marked=seen.is_marked and not self.tracker.is_unmarked_meanwhile,
            has_preemptor_left=has_left,
            is_node_wanted=has_left and self._preemptors.is_node_wanted(uid),
            eviction_blocked=self._termination.is_eviction_blocked,
        )

    async def _decide(
        self, pod: VictimPod, state: Eviction, seen: ObservedVictim
    ) -> LifecycleDecision:
        settings, now = self._policy.current, self._clock.now()
        plan = pod_state.plan_of(pod, settings, has_room=self._notice.can_persist_state)
        decision = machine.decide(state, seen, plan, settings, now)
        if machine.begins_call(state, decision):
            # Its time begins when its call does.
            if not self._notice.reserve_call(pod):
                queued = replace(seen, has_call_slot=False)
                decision = machine.decide(state, queued, plan, settings, now)
        elif decision.transitions:
            self._notice.release_call()
        if lost_node.needs_node_check(
            state, decision.eviction, settings
        ) and await self._lost_nodes.is_lost(pod):
            return machine.decide(state, replace(seen, is_node_lost=True), plan, settings, now)
        return decision

    async def _apply(self, pod: VictimPod, decision: LifecycleDecision, *, begins: bool) -> float:
        """Perform a decision; only what is written is reported and counted."""
        state = decision.eviction
        if decision.transitions:
            self.progress.on_write(decision)
        if state.phase is Phase.TERMINATING:
            return await self._termination.terminate(pod, decision)
        if state.phase in _STAYING:
            self.tracker.on_pod_written(await self._termination.write_cancelled(pod, state))
            # First its gang: while the workload is told, the last of the others may have saved.
            self.progress.on_state_written(pod, decision)
            await self._notice.cancel(pod, state)
            return 0.0
        if state.phase is Phase.FINISHED:
            self.tracker.on_pod_written(await self._termination.write_finished(pod, state))
        elif not await self._notice.write(pod, decision, begins=begins):
            return 0.0
        self.progress.on_state_written(pod, decision)
        return 0.0

    async def _confirm(self, pod: VictimPod) -> bool:
        """Report a state that was written though the API server's answer was lost.

        Return whether it was: a workload that is told that its pod stays takes its time, and the
        pod is looked at again.
        """
        state = pod_state.state_of(pod.metadata)
        if state is None or self._termination.unpersisted_state is not None:
            return False
        if state.phase in TERMINAL and pod_state.is_requested(pod.metadata):
            return False
        is_confirmed = self.progress.confirm(pod, state)
        if is_confirmed and state.phase in _STAYING:
            await self._notice.cancel(pod, state)
        return is_confirmed

    def _on_pod_gone(self, last: VictimPod | None) -> float:
        """Report the end of a victim that is gone; `last` is its last known version."""
        self.is_done = True
        self._termination.on_pod_gone(self.tracker.ref.uid, last)
        if last is not None:
            self.progress.report_gone(last)
        return 0.0

    async def _release_at_ceiling(self) -> None:
        """Hold a deleted pod no longer than the ceiling, whatever call about it fails."""
        pod = self.tracker.pod_to_write
        if pod is None or self._refused_since is None:
            return
        seconds = self._clock.monotonic() - self._refused_since
        try:
            await self._termination.release_unwritten(pod, timedelta(seconds=seconds))
        except ApiError as error:
            _log.warning(
                "could not remove the finalizer",
                extra={"pod": self.tracker.ref.key, "error": str(error)},
            )

    def _retry_delay(self, error: ApiError) -> float:
        """Return the seconds until the next try: none if what was known of the pod was old."""
        self.tracker.invalidate()
        # Without this, a pod that cannot be written to would keep a call from the others.
        self._notice.release_call()
        is_first = self._refused_since is None
        if self._refused_since is None:
            self._refused_since = self._clock.monotonic()
        if error.is_conflict:
            self.tracker.on_conflict()
        else:
            # A pod that cannot be written to is not deleted without notice: its time begins anew.
            self._unwritten_since = None
        delay = self._backoff.next_delay()
        if error.status in GONE_OR_CHANGED:
            return 0.0 if is_first else delay / 2
        level = logging.ERROR if error.status in PERMANENT_STATUSES else logging.WARNING
        _log.log(level, "call failed", extra={"pod": self.tracker.ref.key, "error": str(error)})
        # A proxy may send any Retry-After.
        requested = min(error.retry_after_seconds or 0, self._max_retry_after_seconds)
        self.tracker.discard_changes()
        return max(requested, delay)

"""One victim, from mark to end: observe, decide, perform, wait. Thin: what follows from what is `life.decide`'s.

A keeper holds no state that matters: whatever it knows beyond the pod (what this process has told the workload, since
when others hold the object) may be lost at any instant.
"""

import asyncio
import logging
import random
from dataclasses import dataclass, replace

from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.call_limiter import CallPriority
from reprieve_operator.cluster.event_recorder import ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.retries import PERMANENT_STATUSES, is_object_too_large
from reprieve_policy.checkpointing.contract import CheckpointAnswer
from reprieve_policy.lifecycle import lost_node, machine, termination
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.lifecycle.machine import LifecycleDecision
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_policy.preemption.protection import Protection
from reprieve_runtime.client.api import ApiError

from .assessment import VictimAssessor
from .checkpoint_session import CheckpointSession
from .context import Tools
from .gang_eviction import GangEviction
from .gang_member import GangMember
from .gang_registry import GangRegistry
from .termination import Termination

_log = logging.getLogger(__name__)

_STALE_STATUSES = (404, 409)
_MAX_POSTPONE_SECONDS = 15.0
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 0.2, 15.0


@dataclass(frozen=True, slots=True)
class VictimRef:
    """Which pod: a name alone may be another pod's tomorrow."""

    namespace: str
    name: str
    uid: str


class VictimReconciler:
    """The task of one victim."""

    def __init__(self, victim: VictimRef, tools: Tools, gangs: GangRegistry) -> None:
        self.victim = victim
        self.phase = Phase.REQUESTED
        self._tools = tools
        self._changed = asyncio.Event()
        self._session = CheckpointSession(tools, self._changed.set)
        self._assessor = VictimAssessor(tools)
        self._gang_member = GangMember(gangs, victim.uid, self._changed.set)
        self._termination = Termination(tools, self.on_pod_update, self._on_state_written)
        self._pod: VictimPod | None = None
        self._must_reread = False
        self._read_at = tools.clock.monotonic()
        self._last_state: Eviction | None = None
        self._last_answer: CheckpointAnswer | None = None
        self._can_persist_state = True
        self._started_at = tools.clock.monotonic()
        self._is_first_write_done = False
        self._postponed_since: float | None = None
        self._failures = 0
        self._is_done = False

    @property
    def pod(self) -> VictimPod | None:
        """The victim as it was seen last."""
        return self._pod

    @property
    def waiting_seconds(self) -> float:
        """How long its first write has been due; 0 once that is made."""
        return (
            0.0 if self._is_first_write_done else self._tools.clock.monotonic() - self._started_at
        )

    @property
    def is_stuck(self) -> bool:
        """True where the victim is there long after its grace was over."""
        return self._termination.is_stuck(self._pod)

    def on_pod_update(self, pod: VictimPod) -> None:
        """Take in what a watch saw, unless it is older than what is known; an own write that it tells of is no news."""
        known, version = (
            -1 if self._pod is None else _resource_version(self._pod),
            _resource_version(pod),
        )
        if version >= known:
            self._pod = pod
            self._read_at = self._tools.clock.monotonic()
        if version > known or not version:
            self._changed.set()

    def join_gang(self, gang_eviction: GangEviction) -> None:
        """Have the pod go with its gang, of which another was asked to go."""
        self._gang_member.join(gang_eviction)
        self._changed.set()

    def request_reread(self) -> None:
        """Look at the pod itself: an event said that it left the watch, or one may have been missed."""
        self._must_reread = True
        self._changed.set()

    async def run(self) -> None:
        """Keep the victim until it needs no keeping."""
        try:
            while not self._is_done:
                self._changed.clear()
                try:
                    pause = await self._reconcile()
                    self._failures = 0
                except ApiError as error:
                    pause = self._retry_delay(error)
                await self._wait_for_change(pause)
        finally:
            self._gang_member.leave()
            await self._session.poller.close()

    async def _wait_for_change(self, seconds: float) -> None:
        if self._is_done or seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _reconcile(self) -> float:
        """Do what is to be done now; return the seconds until the next turn, should nothing happen before."""
        last, pod = self._pod, await self._current_pod()
        if pod is None:
            return self._on_pod_gone(last)
        state, begins = self._current_state(pod)
        if state is None or state.phase in TERMINAL:
            self._is_done = True
            return 0.0
        self._last_state, self.phase = state, state.phase
        self._is_first_write_done |= state.phase is not Phase.REQUESTED
        state, reprieve = await self._assess(pod, state) if begins else (state, None)
        state = await self._gang_member.look_up_gang(pod, state, begins=begins)
        is_leaving = state.phase is Phase.TERMINATING
        answer = None if begins or is_leaving else self._session.current_answer(pod, state)
        asking = self._session.poller
        lost, forgotten = asking.hint_lost, asking.request_forgotten
        seen = pod_state.observe(
            pod, state, answer, reprieve=reprieve, hint_was_lost=lost, is_forgotten=forgotten
        )
        seen = replace(
            self._gang_member.observe(seen, has_room=self._can_persist_state),
            eviction_blocked=self._termination.is_eviction_blocked,
        )
        settings, now = self._tools.policy.current, self._tools.clock.now()
        if self._session.needs_final_poll(pod, state, seen):
            return self._session.poll(pod, state)
        plan = pod_state.plan_of(pod, settings, has_room=self._can_persist_state)
        decision = machine.decide(state, seen, plan, settings, now)
        if lost_node.needs_node_check(
            state, decision.eviction, settings
        ) and await self._tools.nodes.is_lost(pod):
            decision = machine.decide(state, replace(seen, is_node_lost=True), plan, settings, now)
        if self._is_postponed(decision, answer):
            return self._session.poll(pod, state)
        self._last_answer = (
            answer if answer is not None and answer.may_belong_to(state.eviction_id) else None
        )
        if decision.transitions or is_leaving:
            pause = await self._apply(pod, decision, begins=begins)
            asking.clear_answer(answer)
            return pause
        asking.clear_answer(answer)
        if asking.hint_lost or asking.request_forgotten:
            asking.stop_attempts()
        return self._session.poll(pod, state)

    def _is_postponed(self, decision: LifecycleDecision, answer: CheckpointAnswer | None) -> bool:
        """True where it is not written down yet that the workload saves: in a burst that would hold up what somebody waits for.

        For a while only, because people read it.
        """
        if not machine.may_postpone_write(decision, answer):
            return False
        now = self._tools.clock.monotonic()
        self._postponed_since = self._postponed_since or now
        return self._tools.effects.is_busy and now - self._postponed_since < _MAX_POSTPONE_SECONDS

    async def _assess(self, pod: VictimPod, state: Eviction) -> tuple[Eviction, Protection | None]:
        state, reprieve = await self._assessor.assess(pod, state)
        # A pod without room for a state cannot carry until when it is reprieved.
        is_good = reprieve is not None and (self._can_persist_state or reprieve.until is None)
        return state, reprieve if is_good else None

    async def _current_pod(self) -> VictimPod | None:
        elapsed = self._tools.clock.monotonic() - self._read_at
        is_due = elapsed >= self._tools.settings.resync_interval_seconds
        if self._must_reread or self._pod is None or is_due:
            await self._reread()
        return self._pod

    async def _reread(self) -> None:
        self._read_at = self._tools.clock.monotonic()
        try:
            urgency = CallPriority.RECORD if self._is_first_write_done else CallPriority.NOTIFY
            pod = await self._tools.effects.read_pod(
                self.victim.namespace, self.victim.name, self.victim.uid, urgency
            )
        except ApiError:
            if self._must_reread or self._pod is None:
                raise
            # Only a second look: while the API server is away, the workload is still asked.
            return
        self._pod, self._must_reread = pod, False
        self._termination.on_reread()

    def _current_state(self, pod: VictimPod) -> tuple[Eviction | None, bool]:
        """Return the state that the pod carries, or the first one where a mark has no state yet."""
        if self._termination.unpersisted_state is not None:
            return self._termination.unpersisted_state, False
        state = pod_state.state_of(pod.metadata)
        if state is not None and pod_state.is_in_progress(state):
            # One that was reprieved has been told nothing yet.
            return state, state.phase is Phase.REPRIEVED
        now = self._tools.clock.now()
        begun = pod_state.initial_state(pod, now) or self._gang_member.initial_state(
            self.victim.uid, state, now
        )
        if begun is None:
            return state, False
        return termination.carry_over_budget_hold(begun, state, self._tools.policy.current), True

    async def _apply(self, pod: VictimPod, decision: LifecycleDecision, *, begins: bool) -> float:
        """Perform what was decided; only what is written is announced and counted."""
        state = decision.eviction
        if state.phase is Phase.TERMINATING:
            return await self._termination.terminate(pod, decision)
        if state.phase in (Phase.CANCELLED, Phase.SPARED):
            self.on_pod_update(await self._termination.write_cancelled(pod, state))
            await self._session.cancel(pod, state)
        elif state.phase is Phase.FINISHED:
            self.on_pod_update(await self._termination.write_finished(pod, state))
        else:
            try:
                await self._write_waiting_state(pod, state, begins=begins)
            except ApiError as error:
                if not (begins and is_object_too_large(error)):
                    raise
                self._skip_notice(pod)
                return 0.0
            if any(move.to is Phase.HINTED or move.resends_hint for move in decision.transitions):
                self._session.poller.begin_attempt()
        self._on_state_written(pod, decision)
        return 0.0

    async def _write_waiting_state(self, pod: VictimPod, state: Eviction, *, begins: bool) -> None:
        """Write a phase in which the workload has time, with the request where an annotation carries it."""
        if state.phase is Phase.REPRIEVED:
            self.on_pod_update(
                await self._tools.effects.write_state(pod, state, None, begins=False)
            )
            return
        target, request = self._session.endpoint(pod), self._session.annotation_request(pod, state)
        hold = self._tools.settings.cleanup_finalizer
        self.on_pod_update(
            await self._tools.effects.write_state(pod, state, request, begins=begins, hold=hold)
        )
        if begins and isinstance(target, str):
            self._session.report_annotation_fallback(pod, target)

    def _skip_notice(self, pod: VictimPod) -> None:
        """Go on as if the pod wanted no checkpoint: without this, a pod without room for a state would stay for ever."""
        self._can_persist_state = False
        note = "the pod's annotations leave no room for the state of an eviction, so it goes without notice"
        self._tools.announcer.event(
            ObjectReference.for_pod(pod.metadata), "SoftEvictionWithoutNotice", note
        )

    def _on_state_written(self, pod: VictimPod, decision: LifecycleDecision) -> None:
        self._last_state, self.phase, self._is_first_write_done = (
            decision.eviction,
            decision.eviction.phase,
            True,
        )
        self._tools.tally.report_transitions(pod, decision, self._last_answer)
        self._gang_member.on_state_written(pod, decision.eviction)

    def _on_pod_gone(self, pod: VictimPod | None) -> float:
        """Tell the end of a victim that is gone; `pod` is what was seen of it last."""
        self._is_done = True
        self._termination.on_pod_gone(self.victim.uid, pod)
        if self._last_state is not None and pod is not None:
            settings = self._tools.policy.current
            plan = pod_state.plan_of(pod, settings)
            gone = machine.ObservedVictim(
                is_gone=True, is_replaced=pod_state.is_replaced(pod, self._last_state, plan)
            )
            decision = machine.decide(
                self._last_state, gone, plan, settings, self._tools.clock.now()
            )
            self._on_state_written(pod, decision)
            self._tools.announcer.event(
                ObjectReference.for_pod(pod.metadata), *event_messages.completed(decision.eviction)
            )
        return 0.0

    def _retry_delay(self, error: ApiError) -> float:
        """Return how long to wait after a call that failed: not at all where only our picture was old."""
        self._must_reread = True
        self._failures += 1
        backoff = min(
            _LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(self._failures, 10)
        )
        if error.status in _STALE_STATUSES:
            return 0.0 if self._failures == 1 else backoff * random.uniform(0.1, 0.5)  # noqa: S311 - jitter
        level = logging.ERROR if error.status in PERMANENT_STATUSES else logging.WARNING
        _log.log(
            level,
            "call failed",
            extra={"pod": f"{self.victim.namespace}/{self.victim.name}", "error": str(error)},
        )
        # Whoever is in between may ask for anything.
        asked = min(error.retry_after_seconds or 0, self._tools.settings.resync_interval_seconds)
        self._changed.clear()
        return max(asked, backoff * random.uniform(0.5, 1.0))  # noqa: S311 - jitter


def _resource_version(pod: VictimPod) -> int:
    """Return the resourceVersion as the number that it is on every API server since 1.35."""
    text = pod.metadata.resourceVersion
    return int(text) if text.isdigit() else 0

"""One victim, from mark to end: observe, decide, perform, wait. Thin: what follows from what is `life.decide`'s.

A keeper holds no state that matters: whatever it knows beyond the pod (what this process has told the workload, since
when others hold the object) may be lost at any instant.
"""

import asyncio
import logging
import random
from dataclasses import dataclass, replace

from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.call_limiter import Urgency
from reprieve_operator.cluster.event_recorder import Regarding
from reprieve_operator.cluster.pods import Pod
from reprieve_operator.cluster.retries import HOPELESS, is_without_room
from reprieve_policy.checkpointing.contract import Answer
from reprieve_policy.lifecycle import lost_node, machine, termination
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.lifecycle.machine import Decision
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_policy.preemption.protection import Reprieve
from reprieve_runtime.client.api import ApiError

from .assessment import Assessment
from .checkpoint_session import Conversation
from .context import Tools
from .gang_eviction import Muster
from .gang_member import Membership
from .gang_registry import Gangs
from .termination import Departure

_log = logging.getLogger(__name__)

_LOOK_AGAIN = (404, 409)
_PUT_OFF_SECONDS = 15.0
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 0.2, 15.0


@dataclass(frozen=True, slots=True)
class Victim:
    """Which pod: a name alone may be another pod's tomorrow."""

    namespace: str
    name: str
    uid: str


class Keeper:
    """The task of one victim."""

    def __init__(self, victim: Victim, tools: Tools, gangs: Gangs) -> None:
        self.victim = victim
        self.phase = Phase.REQUESTED
        self._tools = tools
        self._changed = asyncio.Event()
        self._workload = Conversation(tools, self._changed.set)
        self._assessment = Assessment(tools)
        self._gang = Membership(gangs, victim.uid, self._changed.set)
        self._departure = Departure(tools, self.see, self._written)
        self._pod: Pod | None = None
        self._must_look = False
        self._looked_at = tools.clock.monotonic()
        self._last: Eviction | None = None
        self._heard: Answer | None = None
        self._has_room = True
        self._begun_at = tools.clock.monotonic()
        self._is_taken_up = False
        self._noticed_at: float | None = None
        self._failures = 0
        self._is_done = False

    @property
    def pod(self) -> Pod | None:
        """The victim as it was seen last."""
        return self._pod

    @property
    def waiting_seconds(self) -> float:
        """How long its first write has been due; 0 once that is made."""
        return 0.0 if self._is_taken_up else self._tools.clock.monotonic() - self._begun_at

    @property
    def is_stuck(self) -> bool:
        """True where the victim is there long after its grace was over."""
        return self._departure.is_stuck(self._pod)

    def see(self, pod: Pod) -> None:
        """Take in what a watch saw, unless it is older than what is known; an own write that it tells of is no news."""
        known, version = -1 if self._pod is None else _version(self._pod), _version(pod)
        if version >= known:
            self._pod = pod
            self._looked_at = self._tools.clock.monotonic()
        if version > known or not version:
            self._changed.set()

    def join(self, muster: Muster) -> None:
        """Have the pod go with its gang, of which another was asked to go."""
        self._gang.enter(muster)
        self._changed.set()

    def look(self) -> None:
        """Look at the pod itself: an event said that it left the watch, or one may have been missed."""
        self._must_look = True
        self._changed.set()

    async def run(self) -> None:
        """Keep the victim until it needs no keeping."""
        try:
            while not self._is_done:
                self._changed.clear()
                try:
                    pause = await self._turn()
                    self._failures = 0
                except ApiError as error:
                    pause = self._recover(error)
                await self._sleep(pause)
        finally:
            self._gang.leave()
            await self._workload.asking.close()

    async def _sleep(self, seconds: float) -> None:
        if self._is_done or seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _turn(self) -> float:
        """Do what is to be done now; return the seconds until the next turn, should nothing happen before."""
        last, pod = self._pod, await self._observe()
        if pod is None:
            return self._vanished(last)
        state, begins = self._state(pod)
        if state is None or state.phase in TERMINAL:
            self._is_done = True
            return 0.0
        self._last, self.phase = state, state.phase
        self._is_taken_up |= state.phase is not Phase.REQUESTED
        state, reprieve = await self._assess(pod, state) if begins else (state, None)
        state = await self._gang.take_part(pod, state, begins=begins)
        is_leaving = state.phase is Phase.TERMINATING
        answer = None if begins or is_leaving else self._workload.answer(pod, state)
        asking = self._workload.asking
        lost, forgotten = asking.hint_was_lost, asking.is_forgotten
        seen = pod_state.see(pod, state, answer, reprieve=reprieve, hint_was_lost=lost, is_forgotten=forgotten)
        seen = replace(self._gang.see(seen, has_room=self._has_room), is_held=self._departure.is_held)
        settings, now = self._tools.policy.current, self._tools.clock.now()
        if self._workload.is_owed_the_last_word(pod, state, seen):
            return self._workload.proceed(pod, state)
        plan = pod_state.plan_of(pod, settings, has_room=self._has_room)
        decision = machine.decide(state, seen, plan, settings, now)
        if lost_node.matters(state, decision.eviction, settings) and await self._tools.nodes.is_lost(pod):
            decision = machine.decide(state, replace(seen, is_node_lost=True), plan, settings, now)
        if self._is_put_off(decision, answer):
            return self._workload.proceed(pod, state)
        self._heard = answer if answer is not None and answer.is_about(state.eviction_id) else None
        if decision.moves or is_leaving:
            pause = await self._follow(pod, decision, begins=begins)
            asking.forget_answer(answer)
            return pause
        asking.forget_answer(answer)
        if asking.hint_was_lost or asking.is_forgotten:
            asking.give_up_attempts()
        return self._workload.proceed(pod, state)

    def _is_put_off(self, decision: Decision, answer: Answer | None) -> bool:
        """True where it is not written down yet that the workload saves: in a burst that would hold up what somebody waits for.

        For a while only, because people read it.
        """
        if not machine.can_wait(decision, answer):
            return False
        now = self._tools.clock.monotonic()
        self._noticed_at = self._noticed_at or now
        return self._tools.effects.are_many and now - self._noticed_at < _PUT_OFF_SECONDS

    async def _assess(self, pod: Pod, state: Eviction) -> tuple[Eviction, Reprieve | None]:
        state, reprieve = await self._assessment.of(pod, state)
        # A pod without room for a state cannot carry until when it is reprieved.
        is_good = reprieve is not None and (self._has_room or reprieve.until is None)
        return state, reprieve if is_good else None

    async def _observe(self) -> Pod | None:
        elapsed = self._tools.clock.monotonic() - self._looked_at
        is_due = elapsed >= self._tools.settings.resync_interval_seconds
        if self._must_look or self._pod is None or is_due:
            await self._look()
        return self._pod

    async def _look(self) -> None:
        self._looked_at = self._tools.clock.monotonic()
        try:
            urgency = Urgency.NOTE if self._is_taken_up else Urgency.TELL
            pod = await self._tools.effects.read(self.victim.namespace, self.victim.name, self.victim.uid, urgency)
        except ApiError:
            if self._must_look or self._pod is None:
                raise
            # Only a second look: while the API server is away, the workload is still asked.
            return
        self._pod, self._must_look = pod, False
        self._departure.looked()

    def _state(self, pod: Pod) -> tuple[Eviction | None, bool]:
        """Return the state that the pod carries, or the first one where a mark has no state yet."""
        if self._departure.unwritten is not None:
            return self._departure.unwritten, False
        state = pod_state.state_of(pod.metadata)
        if state is not None and pod_state.is_alive(state):
            # One that was reprieved has been told nothing yet.
            return state, state.phase is Phase.REPRIEVED
        now = self._tools.clock.now()
        begun = pod_state.begin(pod, now) or self._gang.begin(self.victim.uid, state, now)
        if begun is None:
            return state, False
        return termination.follow_on(begun, state, self._tools.policy.current), True

    async def _follow(self, pod: Pod, decision: Decision, *, begins: bool) -> float:
        """Perform what was decided; only what is written is announced and counted."""
        state = decision.eviction
        if state.phase is Phase.TERMINATING:
            return await self._departure.proceed(pod, decision)
        if state.phase in (Phase.CANCELLED, Phase.SPARED):
            self.see(await self._departure.stay(pod, state))
            await self._workload.take_back(pod, state)
        elif state.phase is Phase.FINISHED:
            self.see(await self._departure.finish(pod, state))
        else:
            try:
                await self._write_waiting(pod, state, begins=begins)
            except ApiError as error:
                if not (begins and is_without_room(error)):
                    raise
                self._renounce_notice(pod)
                return 0.0
            if any(move.to is Phase.HINTED or move.asks_again for move in decision.moves):
                self._workload.asking.begin_attempt()
        self._written(pod, decision)
        return 0.0

    async def _write_waiting(self, pod: Pod, state: Eviction, *, begins: bool) -> None:
        """Write a phase in which the workload has time, with the request where an annotation carries it."""
        if state.phase is Phase.REPRIEVED:
            self.see(await self._tools.effects.write_state(pod, state, None, begins=False))
            return
        target, request = self._workload.target(pod), self._workload.written_request(pod, state)
        hold = self._tools.settings.cleanup_finalizer
        self.see(await self._tools.effects.write_state(pod, state, request, begins=begins, hold=hold))
        if begins and isinstance(target, str):
            self._workload.fall_back(pod, target)

    def _renounce_notice(self, pod: Pod) -> None:
        """Go on as if the pod wanted no checkpoint: without this, a pod without room for a state would stay for ever."""
        self._has_room = False
        note = "the pod's annotations leave no room for the state of an eviction, so it goes without notice"
        self._tools.announcer.announce(Regarding.pod(pod.metadata), "SoftEvictionWithoutNotice", note)

    def _written(self, pod: Pod, decision: Decision) -> None:
        self._last, self.phase, self._is_taken_up = decision.eviction, decision.eviction.phase, True
        self._tools.tally.moved(pod, decision, self._heard)
        self._gang.moved(pod, decision.eviction)

    def _vanished(self, pod: Pod | None) -> float:
        """Tell the end of a victim that is gone; `pod` is what was seen of it last."""
        self._is_done = True
        self._departure.vanished(self.victim.uid, pod)
        if self._last is not None and pod is not None:
            settings = self._tools.policy.current
            plan = pod_state.plan_of(pod, settings)
            gone = machine.Seen(is_gone=True, is_replaced=pod_state.is_replaced(pod, self._last, plan))
            decision = machine.decide(self._last, gone, plan, settings, self._tools.clock.now())
            self._written(pod, decision)
            self._tools.announcer.announce(Regarding.pod(pod.metadata), *event_messages.completed(decision.eviction))
        return 0.0

    def _recover(self, error: ApiError) -> float:
        """Return how long to wait after a call that failed: not at all where only our picture was old."""
        self._must_look = True
        self._failures += 1
        backoff = min(_LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(self._failures, 10))
        if error.status in _LOOK_AGAIN:
            return 0.0 if self._failures == 1 else backoff * random.uniform(0.1, 0.5)  # noqa: S311 - jitter
        level = logging.ERROR if error.status in HOPELESS else logging.WARNING
        _log.log(
            level, "call failed", extra={"pod": f"{self.victim.namespace}/{self.victim.name}", "error": str(error)}
        )
        # Whoever is in between may ask for anything.
        asked = min(error.retry_after_seconds or 0, self._tools.settings.resync_interval_seconds)
        self._changed.clear()
        return max(asked, backoff * random.uniform(0.5, 1.0))  # noqa: S311 - jitter


def _version(pod: Pod) -> int:
    """Return the resourceVersion as the number that it is on every API server since 1.35."""
    text = pod.metadata.resourceVersion
    return int(text) if text.isdigit() else 0

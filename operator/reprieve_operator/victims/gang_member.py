"""Between one keeper and its pod's gang: with whom the pod goes, what that means for it, and what the others hear of it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy.gangs import disruption
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import AWAITING_WORKLOAD, Eviction, Phase
from reprieve_policy.lifecycle.machine import ObservedVictim
from reprieve_policy.lifecycle.transitions import TERMINAL

from .gang_eviction import GangEviction
from .gang_registry import GangRegistry

_NOTIFIED = (*AWAITING_WORKLOAD, Phase.SETTLED, Phase.SAVED)


class GangMember:
    """One victim's part in its gang's decision; of a pod that goes alone, none."""

    def __init__(self, gangs: GangRegistry, uid: str, wake: Callable[[], None]) -> None:
        self._gangs = gangs
        self._uid = uid
        self._wake = wake
        self._gang_eviction: GangEviction | None = None
        self._is_looked_up = False
        self._is_event_due = False

    def initial_state(self, uid: str, before: Eviction | None, now: datetime) -> Eviction | None:
        """Return the first state of a pod that goes because another of its gang does; `None` where it does not."""
        return (
            None
            if self._gang_eviction is None
            else machine.begin_as_gang_member(self._gang_eviction.origin, uid, now, before)
        )

    def join(self, gang_eviction: GangEviction) -> None:
        """Go with others: this pod was reached."""
        if self._gang_eviction is None:
            self._gang_eviction, self._is_looked_up = gang_eviction, True
            gang_eviction.add_member(self._uid, self._wake)

    async def look_up_gang(self, pod: VictimPod, state: Eviction, *, begins: bool) -> Eviction:
        """Find out with whom the pod goes, once; return its state as part of that. Raises `ApiError`."""
        is_asked = begins or (state.gang and state.phase is not Phase.TERMINATING)
        if is_asked and not self._is_looked_up:
            found = await self._gangs.find_eviction(pod, state)
            self._is_looked_up = True
            if found is not None:
                self.join(found)
        muster = self._gang_eviction
        if muster is None:
            return state
        if muster.is_in_progress:
            # Whoever began it may have been killed before all were reached.
            self._gangs.start(muster)
        elif begins and state.source.is_preemption:
            await self._gangs.assess_protection(muster, state)
        elif begins and state.must_evict and muster.protection is not None:
            # What a scheduler was refused goes now, because of an eviction: the others of it are evicted.
            muster.origin = replace(muster.origin, must_evict=True)
        self._is_event_due |= begins
        return disruption.as_gang_member(state, muster.identity, muster.origin) if begins else state

    def observe(self, seen: ObservedVictim, *, has_room: bool) -> ObservedVictim:
        """Return what is seen of the pod, with what is known of the others."""
        muster = self._gang_eviction
        if muster is None:
            return seen
        # Nothing on a pod without room for a state would say that it waits with the others.
        protects = muster.protection if has_room else seen.protection
        gang_may_be_deleted = muster.is_in_progress and not muster.origin.must_evict
        return replace(
            seen,
            protection=None if muster.is_in_progress or seen.is_requested_again else protects,
            is_marked=seen.is_marked and not muster.is_cancelled,
            is_requested_again=seen.is_requested_again or muster.is_in_progress,
            must_evict=not (gang_may_be_deleted or seen.is_requested_by_deleter),
            may_terminate=muster.may_terminate(self._uid) or not has_room,
        )

    def on_state_written(self, pod: VictimPod, state: Eviction) -> None:
        """Tell the others of a state that was written."""
        muster = self._gang_eviction
        if muster is None:
            return
        muster.on_state_written(self._uid, state)
        if state.phase in _NOTIFIED:
            self._gangs.start(muster)
            if self._is_event_due:
                self._is_event_due = False
                self._gangs.record_gang_event(muster, pod, state)
        elif state.phase in TERMINAL:
            self.leave()

    def leave(self) -> None:
        """The pod needs no keeping any more."""
        muster, self._gang_eviction = self._gang_eviction, None
        self._is_looked_up = self._is_event_due = False
        if muster is not None:
            muster.remove_member(self._uid)
            if muster.is_empty:
                self._gangs.remove(muster)

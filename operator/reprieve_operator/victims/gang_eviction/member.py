"""One victim as a member of its gang: what the gang's eviction means for it, and for the others."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy.gangs import disruption
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import AWAITING_WORKLOAD, Eviction, Phase
from reprieve_policy.lifecycle.machine import ObservedVictim
from reprieve_policy.lifecycle.transitions import TERMINAL

from .eviction import GangEviction
from .registry import GangRegistry

_NOTIFIED = (*AWAITING_WORKLOAD, Phase.SETTLED, Phase.SAVED)


class GangMember:
    """One victim's part in the eviction of its gang; does nothing for a pod evicted alone."""

    def __init__(self, gangs: GangRegistry, uid: str, wake: Callable[[], None]) -> None:
        self._gangs = gangs
        self._uid = uid
        self._wake = wake
        self._gang_eviction: GangEviction | None = None
        self._is_looked_up = False
        self._is_event_due = False

    @property
    def gang_size(self) -> int:
        """How many pods are evicted with this one as a unit; 0 for a pod that is evicted alone."""
        return 0 if self._gang_eviction is None else self._gang_eviction.pod_count

    def initial_state(self, now: datetime) -> Eviction | None:
        """Return the first state of a pod that is evicted with its gang; `None` if it is not."""
        return (
            None
            if self._gang_eviction is None
            else machine.begin_as_gang_member(self._gang_eviction.origin, self._uid, now)
        )

    def join(self, gang_eviction: GangEviction) -> None:
        """Make the pod a part of its gang's eviction."""
        if self._gang_eviction is None:
            self._gang_eviction, self._is_looked_up = gang_eviction, True
            gang_eviction.add_member(self._uid, self._wake)

    async def look_up_gang(self, pod: VictimPod, state: Eviction, *, begins: bool) -> Eviction:
        """Find, once, the eviction of the pod's gang; return the pod's state as a part of it.

        Raises `ApiError`.
        """
        is_needed = begins or disruption.may_have_left_pods_out(state)
        if is_needed and not self._is_looked_up:
            found = await self._gangs.find_eviction(pod, state)
            self._is_looked_up = True
            if found is not None:
                self.join(found)
        gang_eviction = self._gang_eviction
        if gang_eviction is None:
            return state
        if gang_eviction.is_in_progress:
            # The operator that started it may have been killed before it reached all pods.
            self._gangs.start(gang_eviction)
        elif begins and state.source.is_preemption:
            await self._gangs.assess_protection(gang_eviction, state)
        elif begins and state.must_evict and gang_eviction.protection is not None:
            # A gang whose preemption was refused is evicted now for another reason: its other
            # pods are evicted, too, and not preempted.
            gang_eviction.origin = replace(gang_eviction.origin, must_evict=True)
        self._is_event_due |= begins
        if not begins:
            return state
        member = disruption.as_gang_member(state, gang_eviction.identity, gang_eviction.origin)
        # What a budget holds is held at its next eviction, too, while others of its gang still go.
        return replace(member, must_evict=state.must_evict) if gang_eviction.is_held else member

    def observe(self, seen: ObservedVictim, state: Eviction, *, has_room: bool) -> ObservedVictim:
        """Return what is seen of the pod, with what is known of the gang's other pods.

        A budget that holds one of them keeps those that may only be evicted, too, and no pod that a
        preemptor may have.
        """
        gang_eviction = self._gang_eviction
        if gang_eviction is None:
            return seen
        # A pod without room for a state cannot carry that it waits with the others.
        protection = gang_eviction.protection if has_room else seen.protection
        is_requested_again = seen.is_requested_again or gang_eviction.is_in_progress
        is_cancelled = gang_eviction.is_cancelled and (
            state.must_evict or not gang_eviction.is_held
        )
        gang_may_be_deleted = gang_eviction.is_in_progress and not gang_eviction.origin.must_evict
        return replace(
            seen,
            protection=None if is_requested_again else protection,
            is_marked=seen.is_marked and not is_cancelled,
            is_gang_held=is_cancelled and gang_eviction.is_held,
            is_requested_again=is_requested_again,
            must_evict=not (gang_may_be_deleted or seen.is_requested_by_deleter),
            may_terminate=gang_eviction.may_terminate(self._uid) or not has_room,
            gang_size=gang_eviction.pod_count,
        )

    def on_state_written(self, pod: VictimPod, state: Eviction) -> None:
        """Pass a written state on to the gang's eviction."""
        gang_eviction = self._gang_eviction
        if gang_eviction is None:
            return
        if self._is_event_due and state.phase in _NOTIFIED:
            self._is_event_due = False
            self._gangs.record_gang_event(gang_eviction, pod, state)
        self._pass_on(gang_eviction, state)

    def on_state_read(self, state: Eviction) -> None:
        """Pass a state that the pod carries on to the gang's eviction, if it is a part of it."""
        gang_eviction = self._gang_eviction
        if gang_eviction is not None and gang_eviction.includes(state):
            self._pass_on(gang_eviction, state)

    def _pass_on(self, gang_eviction: GangEviction, state: Eviction) -> None:
        if state.phase is Phase.SPARED and gang_eviction.is_in_progress:
            # Its preemption was refused, and its gang is evicted all the same: it goes, too.
            return
        gang_eviction.on_state_written(self._uid, state)
        if state.phase in _NOTIFIED:
            self._gangs.start(gang_eviction)
        elif state.phase in TERMINAL:
            self.leave()

    def leave(self) -> None:
        """Leave the gang's eviction: the pod's reconciler ends, or its eviction does."""
        gang_eviction, self._gang_eviction = self._gang_eviction, None
        self._is_looked_up = self._is_event_due = False
        if gang_eviction is not None:
            gang_eviction.remove_member(self._uid)
            if gang_eviction.is_empty:
                self._gangs.remove(gang_eviction)

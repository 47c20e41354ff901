"""Between one keeper and its pod's gang: with whom the pod goes, what that means for it, and what the others hear of it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from reprieve_operator.cluster.pods import Pod
from reprieve_policy.gangs import disruption
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import WAITING, Eviction, Phase
from reprieve_policy.lifecycle.machine import Seen
from reprieve_policy.lifecycle.transitions import TERMINAL

from .gang_eviction import Muster
from .gang_registry import Gangs

_TOLD = (*WAITING, Phase.SETTLED, Phase.SAVED)


class Membership:
    """One victim's part in its gang's decision; of a pod that goes alone, none."""

    def __init__(self, gangs: Gangs, uid: str, wake: Callable[[], None]) -> None:
        self._gangs = gangs
        self._uid = uid
        self._wake = wake
        self._muster: Muster | None = None
        self._is_known = False
        self._is_new = False

    def begin(self, uid: str, before: Eviction | None, now: datetime) -> Eviction | None:
        """Return the first state of a pod that goes because another of its gang does; `None` where it does not."""
        return None if self._muster is None else machine.join(self._muster.origin, uid, now, before)

    def enter(self, muster: Muster) -> None:
        """Go with others: this pod was reached."""
        if self._muster is None:
            self._muster, self._is_known = muster, True
            muster.enter(self._uid, self._wake)

    async def take_part(self, pod: Pod, state: Eviction, *, begins: bool) -> Eviction:
        """Find out with whom the pod goes, once; return its state as part of that. Raises `ApiError`."""
        is_asked = begins or (state.gang and state.phase is not Phase.TERMINATING)
        if is_asked and not self._is_known:
            found = await self._gangs.muster(pod, state)
            self._is_known = True
            if found is not None:
                self.enter(found)
        muster = self._muster
        if muster is None:
            return state
        if muster.is_under_way:
            # Whoever began it may have been killed before all were reached.
            self._gangs.begin(muster)
        elif begins and state.source.is_preemption:
            await self._gangs.assess(muster, state)
        elif begins and state.must_evict and muster.reprieve is not None:
            # What a scheduler was refused goes now, because of an eviction: the others of it are evicted.
            muster.origin = replace(muster.origin, must_evict=True)
        self._is_new |= begins
        return disruption.join(state, muster.identity, muster.origin) if begins else state

    def see(self, seen: Seen, *, has_room: bool) -> Seen:
        """Return what is seen of the pod, with what is known of the others."""
        muster = self._muster
        if muster is None:
            return seen
        # Nothing on a pod without room for a state would say that it waits with the others.
        protects = muster.reprieve if has_room else seen.reprieve
        gang_may_be_deleted = muster.is_under_way and not muster.origin.must_evict
        return replace(
            seen,
            reprieve=None if muster.is_under_way or seen.is_insisted_on else protects,
            is_marked=seen.is_marked and not muster.is_cancelled,
            is_insisted_on=seen.is_insisted_on or muster.is_under_way,
            must_evict=not (gang_may_be_deleted or seen.is_asked_by_a_deleter),
            may_go=muster.may_go(self._uid) or not has_room,
        )

    def moved(self, pod: Pod, state: Eviction) -> None:
        """Tell the others of a state that was written."""
        muster = self._muster
        if muster is None:
            return
        muster.moved(self._uid, state)
        if state.phase in _TOLD:
            self._gangs.begin(muster)
            if self._is_new:
                self._is_new = False
                self._gangs.announce(muster, pod, state)
        elif state.phase in TERMINAL:
            self.leave()

    def leave(self) -> None:
        """The pod needs no keeping any more."""
        muster, self._muster = self._muster, None
        self._is_known = self._is_new = False
        if muster is not None:
            muster.leave(self._uid)
            if muster.is_over:
                self._gangs.forget(muster)

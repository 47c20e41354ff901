"""The eviction of one gang as a unit: which pods it waits for, and what wakes the others. No I/O.

All of it can be computed again from the gang's pods.
"""

import asyncio
from collections.abc import Callable, Mapping

from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy.gangs import disruption
from reprieve_policy.gangs.disruption import GangDecision
from reprieve_policy.lifecycle import termination
from reprieve_policy.lifecycle.eviction import Eviction, Phase, Protection
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_runtime.waiting import wait_at_most


class GangEviction:
    """What this process knows of one decision about one gang."""

    def __init__(
        self, identity: str, decision: GangDecision, pods: Mapping[str, VictimPod]
    ) -> None:
        self.identity = identity
        self.origin = decision.origin
        self._decision_ids = decision.decision_ids
        self.is_in_progress = decision.is_in_progress
        self.is_cancelled = decision.is_cancelled
        self.is_held = decision.is_held
        """True if it was cancelled because a budget holds one of its pods. Without this, the owner
        of a pod in such a gang could keep it from every preemptor."""
        members = decision.newly_included | decision.awaited
        self.pod_count = len(members)
        self.pods_to_start = [pods[uid] for uid in sorted(members) if uid in pods]
        """The members whose reconcilers are not started yet."""
        self.is_starting = False
        """True while reconcilers of its members are being started, a few at a time."""
        self.protection: Protection | None = None
        """What protects the whole gang against preemption, once `is_assessed`."""
        self.is_assessed = False
        self.assess_lock = asyncio.Lock()
        self._still_saving = set(decision.awaited)
        self._wake_callbacks: dict[str, Callable[[], None]] = {}
        self._emptied = asyncio.Event()

    @property
    def accepts_members(self) -> bool:
        """True if a pod that is marked now joins: no pod is deleted yet, and none is cancelled."""
        return not self.is_cancelled and bool(self._still_saving)

    @property
    def is_empty(self) -> bool:
        """True if it has no members, and none are being started."""
        return not (self._wake_callbacks or self.is_starting)

    async def wait_empty(self, seconds: float) -> None:
        """Wait until it has no members, or for so many seconds."""
        await wait_at_most(self._emptied, seconds)

    def includes(self, state: Eviction) -> bool:
        """True for a pod that goes with this gang, or whose eviction has ended with it."""
        if state.phase in TERMINAL:
            return state.decision_id in self._decision_ids
        return state.gang == self.identity

    def may_terminate(self, uid: str) -> bool:
        """True if no other pod of the gang is still saving."""
        return self._still_saving <= {uid}

    def add_member(self, uid: str, wake: Callable[[], None]) -> None:
        """Add a pod; it is a member until it is removed."""
        self._wake_callbacks[uid] = wake

    def remove_member(self, uid: str) -> None:
        """Remove a pod: its reconciler has ended, or its eviction has."""
        self._wake_callbacks.pop(uid, None)
        self._mark_ready(uid)
        if self.is_empty:
            self._emptied.set()

    def on_started(self) -> None:
        """Note that the reconcilers of all members were started."""
        self.is_starting = False
        if self.is_empty:
            self._emptied.set()

    def on_state_written(self, uid: str, state: Eviction) -> None:
        """Note a state that was written."""
        is_held = termination.was_held_by_budget(state)
        if state.phase is Phase.CANCELLED and self._is_cancelled_by(is_held=is_held):
            # Cancelling one pod cancels all: a gang is evicted as a unit or not at all.
            self.is_cancelled, self.is_held = True, is_held
            self._wake_members()
        elif disruption.is_ready_to_delete(state):
            self._mark_ready(uid)
        else:
            self._still_saving.add(uid)

    def _is_cancelled_by(self, *, is_held: bool) -> bool:
        """True if one cancelled pod cancels others; a user may cancel what a budget held before."""
        is_held_before = self.is_held and not is_held
        return bool(self._still_saving) and (is_held_before or not self.is_cancelled)

    def _mark_ready(self, uid: str) -> None:
        if uid in self._still_saving:
            self._still_saving.discard(uid)
            if not self._still_saving:
                self._wake_members()

    def _wake_members(self) -> None:
        for wake in self._wake_callbacks.values():
            wake()

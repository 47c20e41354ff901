"""One gang that goes as a whole: who is waited for, and who is told when that changes. No I/O.

Nothing is known here that a look at the gang's pods would not tell again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy.gangs import disruption
from reprieve_policy.gangs.disruption import GangDecision
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.preemption.protection import Protection


class GangEviction:
    """What this process knows of one decision about one gang."""

    def __init__(
        self, identity: str, decision: GangDecision, pods: Mapping[str, VictimPod]
    ) -> None:
        self.identity = identity
        self.origin = decision.origin
        self.is_in_progress = decision.is_in_progress
        self.is_cancelled = decision.is_cancelled
        self.pod_count = len(decision.newly_included | decision.awaited)
        self.newly_included = [
            pods[uid] for uid in sorted(decision.newly_included | decision.awaited) if uid in pods
        ]
        self.protection: Protection | None = None
        """What protects it as a whole against preemption, once `is_assessed`."""
        self.is_assessed = False
        self.assess_lock = asyncio.Lock()
        self._still_saving = set(decision.awaited)
        self._wake_callbacks: dict[str, Callable[[], None]] = {}
        self._emptied = asyncio.Event()

    @property
    def accepts_members(self) -> bool:
        """True where one that is marked now goes with the others: the gang does not go yet, and nobody cancelled."""
        return not self.is_cancelled and bool(self._still_saving)

    @property
    def is_empty(self) -> bool:
        """True where nobody is part of it."""
        return not self._wake_callbacks

    async def wait_empty(self, seconds: float) -> None:
        """Wait until nobody is part of it, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._emptied.wait()

    def may_terminate(self, uid: str) -> bool:
        """True where all others have answered, or are not to be waited for."""
        return self._still_saving <= {uid}

    def add_member(self, uid: str, wake: Callable[[], None]) -> None:
        """Take in a pod: it is part of this until it leaves."""
        self._wake_callbacks[uid] = wake

    def remove_member(self, uid: str) -> None:
        """A pod needs no keeping any more."""
        self._wake_callbacks.pop(uid, None)
        self._mark_ready(uid)
        if self.is_empty:
            self._emptied.set()

    def on_state_written(self, uid: str, state: Eviction) -> None:
        """Take note of a state that was written."""
        if state.phase is Phase.CANCELLED and self.accepts_members:
            # Whoever takes back the mark of one takes back that of all: a gang goes whole or not at all.
            self.is_cancelled = True
            self._wake_members()
        elif disruption.is_ready_to_delete(state.phase):
            self._mark_ready(uid)
        else:
            self._still_saving.add(uid)

    def _mark_ready(self, uid: str) -> None:
        if uid in self._still_saving:
            self._still_saving.discard(uid)
            if not self._still_saving:
                self._wake_members()

    def _wake_members(self) -> None:
        for wake in self._wake_callbacks.values():
            wake()

"""One gang that goes as a whole: who is waited for, and who is told when that changes. No I/O.

Nothing is known here that a look at the gang's pods would not tell again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from reprieve_operator.cluster.pods import Pod
from reprieve_policy.gangs import disruption
from reprieve_policy.gangs.disruption import RollCall
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.preemption.protection import Reprieve


class Muster:
    """What this process knows of one decision about one gang."""

    def __init__(self, identity: str, roll: RollCall, pods: Mapping[str, Pod]) -> None:
        self.identity = identity
        self.origin = roll.origin
        self.is_under_way = roll.is_under_way
        self.is_cancelled = roll.is_cancelled
        self.size = len(roll.reached | roll.unheard)
        self.to_reach = [pods[uid] for uid in sorted(roll.reached | roll.unheard) if uid in pods]
        self.reprieve: Reprieve | None = None
        """What protects it as a whole against preemption, once `is_assessed`."""
        self.is_assessed = False
        self.assessing = asyncio.Lock()
        self._unheard = set(roll.unheard)
        self._wakers: dict[str, Callable[[], None]] = {}
        self._over = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """True where one that is marked now goes with the others: the gang does not go yet, and nobody cancelled."""
        return not self.is_cancelled and bool(self._unheard)

    @property
    def is_over(self) -> bool:
        """True where nobody is part of it."""
        return not self._wakers

    async def wait_over(self, seconds: float) -> None:
        """Wait until nobody is part of it, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    def may_go(self, uid: str) -> bool:
        """True where all others have answered, or are not to be waited for."""
        return self._unheard <= {uid}

    def enter(self, uid: str, wake: Callable[[], None]) -> None:
        """Take in a pod: it is part of this until it leaves."""
        self._wakers[uid] = wake

    def leave(self, uid: str) -> None:
        """A pod needs no keeping any more."""
        self._wakers.pop(uid, None)
        self._hear(uid)
        if self.is_over:
            self._over.set()

    def moved(self, uid: str, state: Eviction) -> None:
        """Take note of a state that was written."""
        if state.phase is Phase.CANCELLED and self.is_open:
            # Whoever takes back the mark of one takes back that of all: a gang goes whole or not at all.
            self.is_cancelled = True
            self._wake()
        elif disruption.is_heard(state.phase):
            self._hear(uid)
        else:
            self._unheard.add(uid)

    def _hear(self, uid: str) -> None:
        if uid in self._unheard:
            self._unheard.discard(uid)
            if not self._unheard:
                self._wake()

    def _wake(self) -> None:
        for wake in self._wakers.values():
            wake()

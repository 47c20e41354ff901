"""The gangs for which no plan was found a moment ago: none is made for their pods for a while.

A scheduler asks about each pod of a gang, and waits for each answer. Without this, it would wait
for a plan of the whole gang as often as the gang has pods, each time in vain. A plan may take
seconds, so a user could keep a scheduler busy with one large gang that has no place.

Room that is freed meanwhile does not end it. Only the replica that made the plan knows of it.
"""

import time
from collections.abc import Callable

from reprieve_policy.preemption.selection.snapshot import GangKey
from reprieve_runtime.bounded_dict import BoundedDict

FACTOR = 10
"""Times the seconds that the plan took: a gang takes a tenth of a scheduler's time at most."""
MIN_SECONDS = 0.1
"""What takes less is not remembered: a call about a single pod takes as long."""
_MAX_SECONDS = 4.0
"""What a plan may take; the rest of the time, the process was stopped or had to wait."""
_MAX_GANGS = 1_000


class FailedGangPlans:
    """The gangs without a plan, each for `FACTOR` times as long as the plan took."""

    def __init__(
        self, *, max_gangs: int = _MAX_GANGS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.now = monotonic
        self._ends_at: BoundedDict[GangKey, float] = BoundedDict(max_gangs)

    def record(self, gang: GangKey, began_at: float) -> None:
        """Remember that no plan for the gang was found, from `began_at` until now."""
        now = self.now()
        took = min(now - began_at, _MAX_SECONDS)
        if took >= MIN_SECONDS:
            self._ends_at[gang] = now + FACTOR * took

    def has(self, gang: GangKey) -> bool:
        """True if the gang is not planned again now."""
        ends_at = self._ends_at.get(gang)
        return ends_at is not None and self.now() < ends_at

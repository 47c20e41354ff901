"""The requests of schedulers that were told when to come back, and are not back yet.

Before kube-scheduler 1.35, a preemptor that waits to delete its last victim stays in the scheduling
queue: each pod that ends in the cluster starts another deletion of the same victim, beside the one
that waits. If each of them were told a time, each would come back ten times.
"""

import time
from collections.abc import Callable

from reprieve_runtime.bounded_dict import BoundedDict

_MAX_PAIRS = 5000
"""Pairs of a victim and a preemptor; beyond that, the oldest are forgotten."""


class WaitingRequests:
    """When each waiting request for a victim is due, by the victim and the preemptor."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._due: BoundedDict[tuple[str, str], list[float]] = BoundedDict(_MAX_PAIRS)

    def add(self, uid: str, by: str, seconds: float) -> None:
        """Record that a request for this victim was told to come back in so many seconds."""
        self._due[uid, by] = [*self._not_due(uid, by), self._monotonic() + seconds]

    def is_enough(self, uid: str, by: str, preemptors: int) -> bool:
        """True where another request of so many preemptors need not wait too.

        Twice as many: a client that has come back ten times gives up, and its scheduler asks again
        at once, which looks like one more request.
        """
        return len(self._not_due(uid, by)) >= 2 * preemptors

    def _not_due(self, uid: str, by: str) -> list[float]:
        now = self._monotonic()
        return [due for due in self._due.get((uid, by), ()) if due > now]

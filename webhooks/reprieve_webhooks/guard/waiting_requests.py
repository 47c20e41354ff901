"""The requests of schedulers that were told when to come back, and are not back yet.

Each is a client that sleeps, and asks again by itself. The more of them a preemptor has, the longer
each has to sleep; the other victims of the preemptor, which were answered with 404, ask no more.

Before kube-scheduler 1.35, a preemptor that waits to delete its last victim stays in the scheduling
queue: each pod that ends in the cluster starts another deletion of the same victim, beside the one
that waits. If each of them were told a time, each would come back ten times.
"""

import time
from collections.abc import Callable

from reprieve_runtime.bounded_dict import BoundedDict

_MAX_PREEMPTORS = 5000
"""Preemptors; beyond that, the oldest are forgotten."""


class WaitingRequests:
    """When each waiting request of a preemptor is due, by the victim that it is for."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._due: BoundedDict[str, dict[str, list[float]]] = BoundedDict(_MAX_PREEMPTORS)

    def add(self, uid: str, by: str, seconds: float) -> None:
        """Record that a request for this victim was told to come back in so many seconds."""
        due = self._not_due(by)
        self._due[by] = {**due, uid: [*due.get(uid, ()), self._monotonic() + seconds]}

    def count_victims(self, uid: str, by: str) -> int:
        """Return for how many victims of the preemptor requests wait, this one included."""
        return len(self._not_due(by).keys() | {uid})

    def try_end(self, uid: str, by: str) -> bool:
        """Return whether a request for this victim is back from its wait; if so, none waits on.

        An error now ends the attempt of which they are parts, and with it the other requests.
        """
        is_back = bool(self._due.get(by, {}).get(uid)) and uid not in self._not_due(by)
        if is_back:
            self._due.pop(by)
        return is_back

    def is_enough(self, uid: str, by: str, preemptors: int) -> bool:
        """True where another request of so many preemptors need not wait too.

        Twice as many: a client that has come back ten times gives up, and its scheduler asks again
        at once, which looks like one more request.
        """
        return len(self._not_due(by).get(uid, ())) >= 2 * preemptors

    def _not_due(self, by: str) -> dict[str, list[float]]:
        now = self._monotonic()
        left = {
            uid: [due for due in dues if due > now] for uid, dues in self._due.get(by, {}).items()
        }
        return {uid: dues for uid, dues in left.items() if dues}

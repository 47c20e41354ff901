"""What a replica remembers of the pods whose deletion it refused: how often a scheduler retried.

It never decides whether a pod gets notice, and only reduces the number of calls. It may be lost at
any time, and each replica knows only the refusals of its own.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

from reprieve_runtime.bounded_dict import BoundedDict

_MAX_PODS = 5000
"""Pods; beyond that, the oldest are forgotten."""
_RECENT_SECONDS = 60.0
_IMMEDIATE_SECONDS = 1.0
"""Asynchronous preemption retries 20 ms after an error. Synchronous preemption retries as often as
pods end in the cluster, which are rarely as many."""
_MIN_IMMEDIATE_RETRIES = 5
"""Immediate retries in a row. Fewer may also come from the pods of a Job, which a synchronous
scheduler tries in turn."""
_MAX_GANG_DELETIONS = 16
"""Pods of one gang that are waited for: after each deletion, the preemptor retries all that are
left. More retries than these may come from other pods that end."""
_FREQUENT_SECONDS_PER_VICTIM = 2.0
"""For each victim of a gang: at this interval they cause one call a second, half of them at each of
two replicas."""


@dataclass(slots=True)
class _Refusal:
    node: str
    refused_at: float
    preemptor: str
    immediate_retries: int
    """Refusals of the same preemptor in a row, without a pause and without `retryAfterSeconds`."""
    retries_after_not_found: int
    """404 answers to it in a row, with hardly a pause."""


class RefusalHistory:
    """The pods whose deletion by a scheduler was refused recently, by uid.

    Evictions do not count: they show nothing of a scheduler. If they did, a user who may evict a
    pod could hide that a preemptor retries without a pause, and the pods of a drain would count as
    victims that a preemptor waits for.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._refusals: BoundedDict[str, _Refusal] = BoundedDict(_MAX_PODS)
        """Refusals of a scheduler's deletion, the latest last."""
        self._marked_since: BoundedDict[str, float] = BoundedDict(_MAX_PODS)
        """Since when each pod carries a mark that no operator handles."""

    def unprocessed_mark_seconds(self, uid: str) -> float:
        """Return for how long this pod has carried a mark that no operator handles."""
        since = self._marked_since.get(uid)
        return 0.0 if since is None else self._monotonic() - since

    def retries_at_once(self, uid: str, by: str) -> bool:
        """True where a preemptor retries at once, again and again, without `retryAfterSeconds`.

        Its scheduling loop then does not stand still: preemption is asynchronous.
        """
        known = self._refusals.get(uid)
        return (
            known is not None
            and known.preemptor == by
            and known.immediate_retries >= _MIN_IMMEDIATE_RETRIES
            and self._is_immediate(known)
        )

    def count_recent_victims(self, node: str, uid: str, by: str) -> int:
        """Return how many pods of the node, or victims of the preemptor, were refused recently.

        This pod counts as well.
        """
        since = self._monotonic() - _RECENT_SECONDS
        # The latest refusal is last.
        recent = itertools.takewhile(
            lambda entry: entry[1].refused_at > since, reversed(self._refusals.items())
        )
        return len(
            {
                uid,
                *(
                    other
                    for other, refusal in recent
                    if refusal.node == node or (by and refusal.preemptor == by)
                ),
            }
        )

    def retries_despite_not_found(self, uid: str, node: str, by: str) -> bool:
        """True where a preemptor retries often although it was answered with 404.

        Each pod that ends anywhere in the cluster wakes it. The ends of the gang's own pods do not
        count.
        """
        known = self._refusals.get(uid)
        gang_deletions = min(_MAX_GANG_DELETIONS, self.count_recent_victims(node, uid, by))
        return (
            known is not None
            and known.retries_after_not_found > max(_MIN_IMMEDIATE_RETRIES, gang_deletions)
            and self._is_recent(known, by)
        )

    def observe_mark(self, uid: str, *, has_pending_mark: bool) -> None:
        """Record whether a refused pod carries a mark that no operator handles."""
        since = self._marked_since.pop(uid, None)
        if has_pending_mark:
            self._marked_since[uid] = self._monotonic() if since is None else since

    def record_refusal(self, uid: str, node: str, *, by: str, was_timed: bool) -> None:
        """Record that the deletion of a pod was refused; `was_timed`: with `retryAfterSeconds`."""
        before = self._refusals.pop(uid, None)
        is_retry = before is not None and before.preemptor == by and self._is_immediate(before)
        immediate = 0 if was_timed else 1 + (before.immediate_retries if before and is_retry else 0)
        # A scheduler that waits for this pod by now retries rarely. It would retry often again if
        # this count were lost.
        not_found = before.retries_after_not_found if before and self._is_recent(before, by) else 0
        self._refusals[uid] = _Refusal(node, self._monotonic(), by, immediate, not_found)

    def record_not_found(self, uid: str, node: str, *, by: str) -> None:
        """Record that the deletion of a pod was answered with 404.

        The scheduler retries whenever a pod ends anywhere.
        """
        often_seconds = _FREQUENT_SECONDS_PER_VICTIM * self.count_recent_victims(node, uid, by)
        before = self._refusals.pop(uid, None)
        is_often = (
            before is not None
            and before.preemptor == by
            and self._monotonic() - before.refused_at < often_seconds
        )
        not_found = 1 + (before.retries_after_not_found if before and is_often else 0)
        self._refusals[uid] = _Refusal(node, self._monotonic(), by, 0, not_found)

    def forget(self, uid: str) -> None:
        """Forget a pod whose deletion was allowed."""
        self._refusals.pop(uid, None)
        self._marked_since.pop(uid, None)

    def _is_recent(self, known: _Refusal, by: str) -> bool:
        return known.preemptor == by and self._monotonic() - known.refused_at < _RECENT_SECONDS

    def _is_immediate(self, known: _Refusal) -> bool:
        return self._monotonic() - known.refused_at < _IMMEDIATE_SECONDS

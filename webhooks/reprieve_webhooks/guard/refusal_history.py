"""What a replica remembers of those that it refused: how often they came, never whether they are owed notice.

All of it may be lost at any instant, and another replica knows another part of it: it only keeps the calls few.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_MAX_PODS = 5000
"""Pods; the oldest go first where there are more."""
_RECENT_SECONDS = 60.0
_IMMEDIATE_SECONDS = 1.0
"""Asynchronous preemption comes back, after an error, in 20 ms; synchronous as often as pods end in the cluster, rarely so many."""
_MIN_IMMEDIATE_RETRIES = 5
"""Refusals at once, one after the other. Fewer are also what so many pods of a Job bring that a synchronous scheduler tries in turn."""
_MAX_GANG_DELETIONS = 16
"""Of pods of one gang that are waited for: each has its preemptor ask for all that are left. So many are not told from others' ends."""
_FREQUENT_SECONDS_PER_VICTIM = 2.0
"""For each victim of a gang: asked for no oftener they bring one call a second, of which each of two replicas sees a half."""


T = TypeVar("T")


@dataclass(slots=True)
class _Refusal:
    node: str
    refused_at: float
    preemptor: str
    immediate_retries: int
    """Times in a row, without a pause, that the same preemptor was refused without a time."""
    retries_after_not_found: int
    """Times in a row, with hardly a pause, that it was told that the pod is gone."""


class RefusalHistory:
    """The pods that were refused lately, by uid.

    An eviction says nothing of a scheduler. Without this, whoever may evict his pod could keep a preemptor from ever being known to
    insist on it, and the pods of a drain would count as so many victims that a preemptor waits for.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._refusals: dict[str, _Refusal] = {}
        """To schedulers."""
        self._marked_since: dict[str, float] = {}
        """Since when each is seen with a mark that nobody takes up."""

    def unhandled_mark_seconds(self, uid: str) -> float:
        """Return for how long this pod has been seen with a mark that nobody took up."""
        since = self._marked_since.get(uid)
        return 0.0 if since is None else self._monotonic() - since

    def retries_at_once(self, uid: str, by: str) -> bool:
        """True where one preemptor, refused without a time, comes again and again: its scheduling loop does not stand still."""
        known = self._refusals.get(uid)
        return (
            known is not None
            and known.preemptor == by
            and known.immediate_retries >= _MIN_IMMEDIATE_RETRIES
            and self._is_immediate(known)
        )

    def count_recent_victims(self, node: str, uid: str, by: str) -> int:
        """Return how many victims of the node, or of the same preemptor elsewhere, were refused lately, this one among them."""
        since = self._monotonic() - _RECENT_SECONDS
        # Whoever was refused last is put last.
        lately = itertools.takewhile(
            lambda found: found[1].refused_at > since, reversed(self._refusals.items())
        )
        return len(
            {
                uid,
                *(
                    other
                    for other, one in lately
                    if one.node == node or (by and one.preemptor == by)
                ),
            }
        )

    def retries_despite_not_found(self, uid: str, node: str, by: str) -> bool:
        """True where telling one preemptor that a pod is gone no longer keeps it from asking often.

        It is woken by each pod that ends anywhere. The gang's own ends are as many as its pods, and don't count.
        """
        known = self._refusals.get(uid)
        own = min(_MAX_GANG_DELETIONS, self.count_recent_victims(node, uid, by))
        return (
            known is not None
            and known.retries_after_not_found > max(_MIN_IMMEDIATE_RETRIES, own)
            and self._is_recent(known, by)
        )

    def observe_mark(self, uid: str, *, is_asked: bool) -> None:
        """Take note that somebody has to come again for a pod, and whether it carries a mark that nobody took up."""
        since = self._marked_since.pop(uid, None)
        if is_asked:
            _put(self._marked_since, uid, self._monotonic() if since is None else since)

    def record_refusal(self, uid: str, node: str, *, by: str, was_timed: bool) -> None:
        """Take note that a scheduler has to come again for a pod."""
        before = self._refusals.pop(uid, None)
        is_again = before is not None and before.preemptor == by and self._is_immediate(before)
        in_vain = 0 if was_timed else 1 + (before.immediate_retries if before and is_again else 0)
        # Who sleeps over the pod by now asks rarely, and would ask often again.
        gone = before.retries_after_not_found if before and self._is_recent(before, by) else 0
        _put(self._refusals, uid, _Refusal(node, self._monotonic(), by, in_vain, gone))

    def record_not_found(self, uid: str, node: str, *, by: str) -> None:
        """Take note that a scheduler is told that a pod is gone, and will ask for it once more whenever one ends anywhere."""
        often = _FREQUENT_SECONDS_PER_VICTIM * self.count_recent_victims(node, uid, by)
        before = self._refusals.pop(uid, None)
        is_often = (
            before is not None
            and before.preemptor == by
            and self._monotonic() - before.refused_at < often
        )
        gone = 1 + (before.retries_after_not_found if before and is_often else 0)
        _put(self._refusals, uid, _Refusal(node, self._monotonic(), by, 0, gone))

    def forget(self, uid: str) -> None:
        """A scheduler may have the pod."""
        self._refusals.pop(uid, None)
        self._marked_since.pop(uid, None)

    def _is_recent(self, known: _Refusal, by: str) -> bool:
        return known.preemptor == by and self._monotonic() - known.refused_at < _RECENT_SECONDS

    def _is_immediate(self, known: _Refusal) -> bool:
        return self._monotonic() - known.refused_at < _IMMEDIATE_SECONDS


def _put(kept: dict[str, T], uid: str, value: T) -> None:
    kept[uid] = value
    if len(kept) > _MAX_PODS:
        del kept[next(iter(kept))]

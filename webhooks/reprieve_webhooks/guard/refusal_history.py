"""What a replica remembers of the pods whose deletion it refused: how often a scheduler retried.

It never decides whether a pod gets notice, and only reduces the number of calls. It may be lost at
any time, and each replica knows only the refusals of its own.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from reprieve_policy.preemption import retry_times
from reprieve_runtime.bounded_dict import BoundedDict

_MAX_PODS = 5000
"""Pods; beyond that, the oldest are forgotten."""
_RECENT_SECONDS = 60.0
_IMMEDIATE_SECONDS = 1.0
"""Asynchronous preemption retries 20 ms after an error. Synchronous preemption retries as often as
pods end in the cluster, which are rarely as many."""
_ASKED_TWICE_SECONDS = 0.25
"""The API server asks twice about one request within milliseconds. A scheduler's next attempt
follows when a pod ends."""
_MIN_IMMEDIATE_RETRIES = 5
"""Immediate retries in a row. Fewer may also come from the pods of a Job, which a synchronous
scheduler tries in turn."""
_MAX_NOT_FOUND_IN_A_ROW = 5
"""404 answers for one victim that follow each other faster than one in `MIN_RETRY_SECONDS`."""
_MAX_PREEMPTORS = 5000
"""Preemptors; beyond that, the oldest are forgotten."""
_MAX_ATTEMPTS_IN_A_ROW = 3
"""Attempts of a preemptor that follow each other without a pause: so many show that pods end all
the time."""
_MAX_SET_DELETIONS = 16
"""Victims of one preemptor that are waited for: after each deletion, the preemptor retries all that
are left. More retries than these may come from other pods that end."""


@dataclass(slots=True)
class _Refusal:
    node: str
    refused_at: float
    preemptor: str
    immediate_retries: int
    """Refusals of the same preemptor in a row, without a pause and without `retryAfterSeconds`."""
    not_found_answers: float
    """404 answers to it; one is forgotten in `MIN_RETRY_SECONDS` for each of its victims."""


_Asked = frozenset[str]
"""Victims that one attempt has asked for."""
_NONE: _Asked = frozenset()


@dataclass(slots=True)
class _Requests:
    """The requests of one preemptor's scheduler, one after another without a pause of its own.

    Each attempt asks once for each of its victims, in an order of its own. The API server asks
    twice about one request if the pod changes during the review, and may do so if it has just
    changed. So it may be unknown where an attempt begins: if a request repeats the last one of an
    attempt at once, that may have been asked about twice, or the next attempt has begun.
    """

    at: float
    """When the last one came."""
    uids: set[str] = field(default_factory=set)
    count: int = 0
    last_uid: str = ""
    in_a_row: int = 0
    """How many of the latest requests are for the last victim."""
    repeated: set[str] = field(default_factory=set)
    """The victims that changed during their reviews: the API server asks about each once more."""
    asked: set[_Asked] = field(default_factory=lambda: {_NONE})
    """What the current attempt has asked for, in each way to understand the requests; empty if
    there is none."""
    ended: _Asked = _NONE
    """What an attempt asked for that did not ask for all victims."""
    left: _Asked = _NONE
    """The victims that are left, as two such attempts in a row show; empty if none do."""
    waited_for: dict[str, bool] = field(default_factory=dict)
    """The victims at which the scheduler was told to wait, each with whether it surely ended an
    attempt. The scheduler asks for each once more; then the attempt goes on, or the next begins."""

    def add(self, uid: str, victims: _Asked, at: float) -> None:
        """Add a request for one of these victims, which came at this time."""
        may_repeat = uid == self.last_uid and at - self.at < _ASKED_TWICE_SECONDS
        self.at = at
        if uid not in self.uids and self.asked:
            # Nothing but the first attempt asks for a victim that was unknown.
            self.asked = {frozenset(self.uids)} if self.count == len(self.uids) else set()
        if uid not in self.left:
            # More are left: what seemed to be the end of an attempt was none.
            self.asked = {asked or self.left for asked in self.asked}
            self.left = _NONE
        before = self.asked
        self.asked = set(self._asked_after(uid, victims, may_repeat=may_repeat))
        if not self.asked and len(before) == 1:
            # The next attempt has begun, and the last one asked for fewer victims.
            ended = next(iter(before))
            self.left = ended if ended == self.ended else _NONE
            self.ended, self.asked = ended, {frozenset({uid})}
        self.count += uid != self.last_uid
        self.in_a_row = 1 if uid != self.last_uid else self.in_a_row + 1
        self.last_uid = uid
        self.uids.add(uid)

    def has_only(self, uid: str) -> bool:
        """Return whether the preemptor has no other victims left than this one."""
        # About one request, the API server asks at most twice.
        return uid == self.last_uid and self.in_a_row >= _MAX_ATTEMPTS_IN_A_ROW

    def end_with(self, uid: str, victims: _Asked) -> bool | None:
        """Return whether a request for this victim ends an attempt; `None` if that is not known."""
        victims = self._left_of(uid, victims)
        found = {uid not in asked and asked | {uid} == victims for asked in self.asked}
        return found.pop() if len(found) == 1 else None

    def _left_of(self, uid: str, victims: _Asked) -> _Asked:
        return self.left if uid in self.left else victims

    def _asked_after(self, uid: str, victims: _Asked, *, may_repeat: bool) -> Iterator[_Asked]:
        victims = self._left_of(uid, victims)
        for asked in self.asked:
            if may_repeat:
                yield asked
            if uid not in asked:
                yield _NONE if asked | {uid} == victims else asked | {uid}


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
        self._requests: BoundedDict[str, _Requests] = BoundedDict(_MAX_PREEMPTORS)

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
        return len(
            {
                uid,
                *(
                    other
                    for other, refusal in self._recent()
                    if refusal.node == node or (by and refusal.preemptor == by)
                ),
            }
        )

    def count_victims(self, node: str, uid: str, by: str) -> int:
        """Return how many victims of this preemptor on the node were refused recently.

        This pod counts as well.
        """
        return len(
            {uid, *(other for other, refusal in self._recent_of(by) if refusal.node == node)}
        )

    def retries_despite_not_found(self, uid: str, node: str, by: str) -> bool:
        """True where a preemptor retries often although it was answered with 404.

        Each pod that ends anywhere in the cluster wakes it. The ends of its own victims do not
        count. Once it has waited as long as it was told to, 404 may be answered again. Without
        this, it could use no other room until its client gives up.
        """
        victims = self.count_recent_victims(node, uid, by)
        return self._not_found_answers(uid, node, by) + 1 > max(
            _MAX_NOT_FOUND_IN_A_ROW, min(_MAX_SET_DELETIONS, victims) + 1
        )

    def may_wait(self, uid: str, by: str) -> bool:
        """True where the preemptor's scheduler may be told to wait before it asks for this victim.

        kube-scheduler asks for all victims but one, waits for these answers, and asks for the last
        one. Only while it waits for the last answer does it notice that victims end (`executor.go`,
        `isRunningPreemption`). If another answer told it to wait, and all victims ended meanwhile,
        nothing would wake the preemptor until any other pod ends, or for the five minutes after
        which the scheduler tries every pod again.

        So it may wait at the last victim of an attempt. Where the last one is not known, it may
        wait at any victim once pods end all the time: these wake it.
        """
        victims = frozenset(self._victims_of(by) | {uid})
        requests = self._requests_before(uid, by)
        if len(victims) == 1 or uid in requests.waited_for or requests.has_only(uid):
            return True
        if uid in requests.repeated:
            return False
        is_last = requests.end_with(uid, victims)
        if is_last is None:
            return requests.count >= _MAX_ATTEMPTS_IN_A_ROW * len(victims)
        return is_last

    def record_refusal(
        self, uid: str, node: str, *, by: str, was_timed: bool, is_changed: bool = False
    ) -> None:
        """Record that the deletion of a pod was refused; `was_timed`: with `retryAfterSeconds`.

        `is_changed`: the pod has changed during the review.
        """
        not_found = self._not_found_answers(uid, node, by)
        self._record_request(uid, by, waits=was_timed, is_changed=is_changed)
        before = self._refusals.pop(uid, None)
        is_retry = before is not None and before.preemptor == by and self._is_immediate(before)
        immediate = 0 if was_timed else 1 + (before.immediate_retries if before and is_retry else 0)
        self._refusals[uid] = _Refusal(node, self._monotonic(), by, immediate, not_found)

    def record_not_found(self, uid: str, node: str, *, by: str, is_changed: bool = False) -> None:
        """Record that the deletion of a pod was answered with 404.

        The scheduler retries whenever a pod ends anywhere. `is_changed`: the pod has changed during
        the review.
        """
        not_found = self._not_found_answers(uid, node, by)
        self._record_request(uid, by, is_changed=is_changed)
        self._refusals.pop(uid, None)
        self._refusals[uid] = _Refusal(node, self._monotonic(), by, 0, not_found + 1)

    def forget(self, uid: str) -> None:
        """Forget a pod whose deletion was allowed."""
        self._refusals.pop(uid, None)

    def _recent(self) -> Iterator[tuple[str, _Refusal]]:
        since = self._monotonic() - _RECENT_SECONDS
        # The latest refusal is last.
        return itertools.takewhile(
            lambda entry: entry[1].refused_at > since, reversed(self._refusals.items())
        )

    def _recent_of(self, by: str) -> Iterator[tuple[str, _Refusal]]:
        return (entry for entry in self._recent() if entry[1].preemptor == by)

    def _victims_of(self, by: str) -> set[str]:
        return {uid for uid, _ in self._recent_of(by)}

    def _requests_before(self, uid: str, by: str) -> _Requests:
        """Return the requests that a request for this victim follows; none after a pause."""
        now = self._monotonic()
        known = self._requests.get(by)
        if known is None:
            return _Requests(now)
        # A wait that the scheduler was told to make is no pause of its own.
        is_pause = now - known.at >= _IMMEDIATE_SECONDS and uid not in known.waited_for
        return _Requests(now) if is_pause else known

    def _record_request(
        self, uid: str, by: str, *, waits: bool = False, is_changed: bool = False
    ) -> None:
        if not by:
            return
        requests = self._requests_before(uid, by)
        if uid in requests.repeated:
            # The scheduler gets only this answer.
            requests.repeated.remove(uid)
            was_last = requests.waited_for.pop(uid, False)
            requests.at, is_changed = self._monotonic(), False
        elif uid in requests.waited_for:
            # The wait is over, and nothing counts but what follows.
            was_last = requests.waited_for.pop(uid)
            requests = _Requests(
                self._monotonic(),
                asked={_NONE} if was_last else set(),
                waited_for=requests.waited_for,
            )
        else:
            victims = frozenset(self._victims_of(by) | {uid})
            was_last = bool(requests.end_with(uid, victims))
            requests.add(uid, victims, self._monotonic())
        if is_changed:
            requests.repeated.add(uid)
        if waits:
            requests.waited_for[uid] = was_last
        self._requests[by] = requests

    def _not_found_answers(self, uid: str, node: str, by: str) -> float:
        """Return how many of the 404 answers for this pod to this preemptor still count."""
        known = self._refusals.get(uid)
        if known is None or known.preemptor != by or not known.not_found_answers:
            # Most refusals. Without this, each of thousands would read all the others.
            return 0.0
        interval = retry_times.retry_interval_seconds(self.count_recent_victims(node, uid, by))
        forgotten = (self._monotonic() - known.refused_at) / interval
        return max(0.0, known.not_found_answers - forgotten)

    def _is_immediate(self, known: _Refusal) -> bool:
        return self._monotonic() - known.refused_at < _IMMEDIATE_SECONDS

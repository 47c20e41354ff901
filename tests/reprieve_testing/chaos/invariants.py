"""What must hold however the operator, the API server or a workload fails.

Pure: records in, broken promises out. Each function returns one sentence for each breach, none if
its promise was kept; `ALL` lists the functions.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from reprieve_policy import keys
from reprieve_policy.lifecycle import transitions
from reprieve_policy.lifecycle.eviction import AWAITING_WORKLOAD, Phase

from .records import Hint, WorkloadAnswer, Write

_LAST_ANSWERS = ("saved", "cannot")
_CONFLICTS = 3
"""In a row, before a write by the uid alone."""
_NO_TIME = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimExpectation:
    """A marked pod, and what it may expect."""

    uid: str
    pod: str
    marked_at: datetime
    has_notice: bool = True
    """False if it declares no checkpoint, has not started, or has no room for a state."""
    min_notice: timedelta = timedelta()
    """From mark to DELETE, at least, if no answer ends the wait; independent of the written
    deadline.
    """
    max_duration: timedelta
    """From mark to DELETE, at most, while an operator leads."""
    must_be_deleted: bool = True
    """False if others delete it, its mark is removed, or it ends by itself."""
    ended_at: datetime | None = None
    """When the test itself ended it."""
    may_be_touched: bool = True
    """False if it stopped being a victim before anything was written to it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A time without a leading operator or without an API server: nothing could act."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All records about some victims."""

    victims: Sequence[VictimExpectation]
    writes: Sequence[Write]
    hints: Sequence[Hint] = ()
    answers: Sequence[WorkloadAnswer] = ()
    outages: Sequence[Outage] = ()


def no_delete_before_acknowledgement_or_deadline(history: History) -> Iterator[str]:
    """A victim with notice is deleted after it reports that it is done, or after its last deadline.

    The operator itself sets the deadline, so the time that the victim requested is checked as well.
    """
    done, hints_by_uid = first_done(history.answers), by_uid(history.hints)
    writes = by_uid(history.writes)
    unanswered = [write for write in history.writes if not write.status]
    for victim in history.victims:
        if not victim.has_notice:
            continue
        deletions = [
            write for write in writes[victim.uid] if write.is_deletion and write.has_succeeded
        ]
        # One without an answer may have had an effect, and the audit log has no uid of it.
        deletions += [
            write for write in unanswered if write.pod == victim.pod and write.is_deletion
        ]
        for write in deletions:
            acknowledged = done.get(victim.uid)
            deadline = latest_deadline(writes[victim.uid], hints_by_uid[victim.uid], write.at)
            if acknowledged is not None and acknowledged <= write.at:
                continue
            if deadline is None:
                yield f"{victim.pod}: deleted at {write.at} without notice"
            elif write.at < deadline:
                yield (
                    f"{victim.pod}: deleted at {write.at}, unacknowledged, "
                    f"before its deadline {deadline}"
                )
            elif write.at < victim.marked_at + victim.min_notice:
                requested = victim.min_notice.total_seconds()
                yield (
                    f"{victim.pod}: deleted at {write.at}, unacknowledged, "
                    f"less than {requested:g} s after its mark"
                )


def one_delete_each(history: History) -> Iterator[str]:
    """No victim is deleted twice, and every victim that must be deleted is."""
    counts = Counter(
        write.uid for write in history.writes if write.is_deletion and write.has_succeeded
    )
    unanswered = _unanswered_deletions(history)
    for victim in history.victims:
        count = counts[victim.uid]
        if count > 1:
            yield f"{victim.pod}: deleted {count} times"
        elif victim.must_be_deleted and not count and victim.pod not in unanswered:
            yield f"{victim.pod}: never deleted"


def no_hint_twice_for_one_attempt(history: History) -> Iterator[str]:
    """A workload receives each attempt once."""
    counts = Counter((hint.eviction_id, hint.attempt) for hint in history.hints)
    for (eviction_id, attempt), count in counts.items():
        if count > 1:
            yield f"{eviction_id}: attempt {attempt} was hinted {count} times"


def every_victim_ends_in_time(history: History) -> Iterator[str]:
    """No victim takes longer than its longest time and the time of outages."""
    writes, unanswered = by_uid(history.writes), _unanswered_deletions(history)
    for victim in history.victims:
        ended_at = _ended_at(victim, writes[victim.uid]) or unanswered.get(victim.pod)
        if ended_at is None:
            yield f"{victim.pod}: has not ended"
            continue
        allowed = victim.max_duration + outage_within(history.outages, victim.marked_at, ended_at)
        if ended_at - victim.marked_at > allowed:
            took = (ended_at - victim.marked_at).total_seconds()
            most = allowed.total_seconds()
            yield f"{victim.pod}: took {took:.1f} s, at most {most:.1f} s are right"


def no_write_to_former_victims(history: History) -> Iterator[str]:
    """No pod is written to or hinted that lost its mark, or disappeared, before its first state."""
    hints_by_uid, writes = by_uid(history.hints), by_uid(history.writes)
    for victim in history.victims:
        if victim.may_be_touched:
            continue
        for write in filter(lambda write: write.has_succeeded, writes[victim.uid]):
            yield f"{victim.pod}: {write.what} at {write.at}, though it was no victim"
        for hint in hints_by_uid[victim.uid]:
            yield f"{victim.pod}: hinted at {hint.at}, though it was no victim"


def every_write_names_its_pod(history: History) -> Iterator[str]:
    """A write to a victim carries its uid, and a patch its resourceVersion too.

    So it can hit neither another pod of the same name nor a changed one. After three conflicts in a
    row the uid alone counts, or an owner that writes to its pod all the time would keep it.
    """
    conflicts = Counter[str]()
    for write in history.writes:
        if write.status == HTTPStatus.CONFLICT:
            conflicts[write.pod] += 1
        # A refused write may have been refused before its body was read.
        if not write.has_succeeded:
            continue
        if not write.uid:
            yield f"{write.pod}: {write.what} at {write.at} without a uid"
        elif write.verb == "patch" and not write.version and conflicts[write.pod] < _CONFLICTS:
            yield f"{write.pod}: {write.what} at {write.at} without a resourceVersion"
        conflicts[write.pod] = 0


def every_phase_follows_from_the_one_before(history: History) -> Iterator[str]:
    """Each written phase follows from the one before, by the table."""
    for uid, writes in by_uid(history.writes).items():
        before: tuple[str, Phase] | None = None
        for state in (
            write.state for write in writes if write.has_succeeded and write.state is not None
        ):
            start = before[1] if before and before[0] == state.eviction_id else Phase.REQUESTED
            if state.phase is not start and state.phase not in _reachable(start):
                yield f"{uid}: {state.phase} was written after {start}"
            before = (state.eviction_id, state.phase)


def no_finalizer_left(pods: Iterable[Any]) -> Iterator[str]:
    """Return a sentence for each pod in the API server's final list with Reprieve's finalizer."""
    for pod in pods:
        if keys.CLEANUP_FINALIZER in pod["metadata"].get("finalizers", ()):
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            yield f"{name}: still held by {keys.CLEANUP_FINALIZER}"


ALL: Sequence[Callable[[History], Iterator[str]]] = (
    no_delete_before_acknowledgement_or_deadline,
    one_delete_each,
    no_hint_twice_for_one_attempt,
    every_victim_ends_in_time,
    no_write_to_former_victims,
    every_write_names_its_pod,
    every_phase_follows_from_the_one_before,
)


def broken_promises(history: History) -> list[str]:
    """Return a sentence for each promise that was not kept."""
    return [f"{promise.__name__}: {sentence}" for promise in ALL for sentence in promise(history)]


def by_uid(records: Iterable[Any]) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for record in records:
        found[record.uid].append(record)
    return found


def first_done(answers: Iterable[WorkloadAnswer]) -> Mapping[str, datetime]:
    found: dict[str, datetime] = {}
    for answer in answers:
        if answer.state in _LAST_ANSWERS:
            found[answer.uid] = min(answer.at, found.get(answer.uid, answer.at))
    return found


def latest_deadline(
    writes: Iterable[Write], hints: Iterable[Hint], before: datetime
) -> datetime | None:
    """Return the latest deadline of the workload itself that was written or sent before a moment.

    A settled victim waits for its gang, until another deadline, which is not its own. While a call
    waits for others, the deadline is the ceiling; its own time begins with the call.
    """
    states = [write.state for write in writes if write.has_succeeded and write.at <= before]
    written = [
        state.deadline
        for state in states
        if state
        and state.deadline
        and state.hinted_at is not None
        and state.phase in AWAITING_WORKLOAD
    ]
    hinted = [hint.deadline for hint in hints if hint.at <= before]
    return max([*written, *hinted], default=None)


def _ended_at(victim: VictimExpectation, writes: Iterable[Write]) -> datetime | None:
    """Return when nothing was left to do: deleted by any user, cancelled, or ended by itself."""
    ends = [write.done for write in writes if write.has_succeeded and _is_end(write)]
    return min([*ends, *([victim.ended_at] if victim.ended_at else [])], default=None)


def _unanswered_deletions(history: History) -> Mapping[str, datetime]:
    """Return by pod when the API server received a DELETE but was killed before it answered.

    Its effect is unknown.
    """
    return {
        write.pod: write.at for write in history.writes if write.is_deletion and not write.status
    }


def _is_end(write: Write) -> bool:
    return write.is_deletion or (
        write.state is not None and write.state.phase in transitions.TERMINAL
    )


def outage_within(outages: Iterable[Outage], since: datetime, until: datetime) -> timedelta:
    """Return how long of a period was an outage; outages do not overlap."""
    return sum(
        (max(min(until, one.until) - max(since, one.since), _NO_TIME) for one in outages), _NO_TIME
    )


def _reachable(phase: Phase) -> set[Phase]:
    """Return the phases that one decision may lead to, along the edges of the table."""
    found: set[Phase] = set()
    ahead = [phase]
    while ahead:
        following = {move.to for move in transitions.TABLE[ahead.pop()].values()} - found
        found |= following
        ahead.extend(following)
    return found

"""What must hold however the operator, the API server or a workload fails. Pure: records in, broken promises out.

Each function returns one sentence for each breach, none where its promise was kept; `ALL` is the list of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from reprieve_policy import keys
from reprieve_policy.lifecycle import transitions
from reprieve_policy.lifecycle.eviction import AWAITING_WORKLOAD, Phase

from .records import Hint, WorkloadAnswer, Write

_LAST_ANSWERS = ("saved", "cannot")
_NO_TIME = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimExpectation:
    """A pod that was marked, and what it may expect."""

    uid: str
    pod: str
    marked_at: datetime
    has_notice: bool = True
    """False where it declares no checkpoint, has not started, or has no room for a state."""
    min_notice: timedelta = timedelta()
    """From mark to DELETE, at least, where it says nothing that ends the wait, whatever deadline was written down."""
    max_duration: timedelta
    """From mark to DELETE, at most, while an operator leads."""
    must_be_deleted: bool = True
    """False where somebody else deletes it, its mark is taken back, or it ends by itself."""
    ended_at: datetime | None = None
    """When the test itself saw to its end."""
    may_be_touched: bool = True
    """False where it was nobody's victim any more before anything was written to it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which nobody could act: no operator led, or no API server answered."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that was written down about some victims."""

    victims: Sequence[VictimExpectation]
    writes: Sequence[Write]
    hints: Sequence[Hint] = ()
    said: Sequence[WorkloadAnswer] = ()
    outages: Sequence[Outage] = ()


def no_delete_before_acknowledgement_or_deadline(history: History) -> Iterator[str]:
    """A victim with notice is deleted after it said that it is done, or when the last deadline it was given has come.

    The deadline is the operator's own word, so the time that the victim asked for is checked as well.
    """
    done, told = _first_done(history.said), _by_uid(history.hints)
    writes = _by_uid(history.writes)
    for victim in history.victims:
        if not victim.has_notice:
            continue
        for write in filter(
            lambda write: write.is_deletion and write.has_succeeded, writes[victim.uid]
        ):
            acknowledged = done.get(victim.uid)
            deadline = _deadline(writes[victim.uid], told[victim.uid], write.at)
            if acknowledged is not None and acknowledged <= write.at:
                continue
            if deadline is None:
                yield f"{victim.pod}: deleted at {write.at} without notice"
            elif write.at < deadline:
                yield f"{victim.pod}: deleted at {write.at}, unacknowledged, before its deadline {deadline}"
            elif write.at < victim.marked_at + victim.min_notice:
                asked = victim.min_notice.total_seconds()
                yield f"{victim.pod}: deleted at {write.at}, unacknowledged, less than {asked:g} s after its mark"


def one_delete_each(history: History) -> Iterator[str]:
    """No victim is deleted twice, and none that must be is left."""
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
    """A workload hears of each attempt once."""
    counts = Counter((hint.eviction_id, hint.attempt) for hint in history.hints)
    for (eviction_id, attempt), count in counts.items():
        if count > 1:
            yield f"{eviction_id}: attempt {attempt} was hinted {count} times"


def every_victim_ends_in_time(history: History) -> Iterator[str]:
    """The longest that a victim may have, and the time in which nobody could act, are not exceeded."""
    writes, unanswered = _by_uid(history.writes), _unanswered_deletions(history)
    for victim in history.victims:
        ended_at = _ended_at(victim, writes[victim.uid]) or unanswered.get(victim.pod)
        if ended_at is None:
            yield f"{victim.pod}: has not ended"
            continue
        allowed = victim.max_duration + _outage(history.outages, victim.marked_at, ended_at)
        if ended_at - victim.marked_at > allowed:
            took = (ended_at - victim.marked_at).total_seconds()
            yield f"{victim.pod}: took {took:.1f} s, at most {allowed.total_seconds():.1f} s are right"


def no_write_to_former_victims(history: History) -> Iterator[str]:
    """A pod that lost its mark, or is gone, before its first state was written, is neither written to nor told."""
    told, writes = _by_uid(history.hints), _by_uid(history.writes)
    for victim in history.victims:
        if victim.may_be_touched:
            continue
        for write in filter(lambda write: write.has_succeeded, writes[victim.uid]):
            yield f"{victim.pod}: {write.what} at {write.at}, and nobody asked for it"
        for hint in told[victim.uid]:
            yield f"{victim.pod}: told at {hint.at}, and nobody asked for it"


def every_write_names_its_pod(history: History) -> Iterator[str]:
    """A write to a victim carries its uid, a patch its resourceVersion too: it can neither hit a namesake nor a surprise."""
    # One that was refused may have been so before anybody read it.
    for write in filter(lambda write: write.has_succeeded, history.writes):
        if not write.uid:
            yield f"{write.pod}: {write.what} at {write.at} without a uid"
        elif write.verb == "patch" and not write.version:
            yield f"{write.pod}: {write.what} at {write.at} without a resourceVersion"


def every_phase_follows_from_the_one_before(history: History) -> Iterator[str]:
    """What is written is what the table allows: no phase is left for one that cannot be reached from it."""
    for uid, writes in _by_uid(history.writes).items():
        before: tuple[str, Phase] | None = None
        for state in (
            write.state for write in writes if write.has_succeeded and write.state is not None
        ):
            start = before[1] if before and before[0] == state.eviction_id else Phase.REQUESTED
            if state.phase is not start and state.phase not in _reachable(start):
                yield f"{uid}: {state.phase} was written after {start}"
            before = (state.eviction_id, state.phase)


def no_finalizer_left(pods: Iterable[Any]) -> Iterator[str]:
    """Return a sentence for each pod (as the API server lists it, when all is over) that Reprieve still holds."""
    for pod in pods:
        if keys.CLEANUP_FINALIZER in pod["metadata"].get("finalizers", ()):
            yield f"{pod['metadata']['namespace']}/{pod['metadata']['name']}: still held by {keys.CLEANUP_FINALIZER}"


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


def _by_uid(records: Iterable[Any]) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for record in records:
        found[record.uid].append(record)
    return found


def _first_done(said: Iterable[WorkloadAnswer]) -> Mapping[str, datetime]:
    found: dict[str, datetime] = {}
    for answer in said:
        if answer.state in _LAST_ANSWERS:
            found[answer.uid] = min(answer.at, found.get(answer.uid, answer.at))
    return found


def _deadline(writes: Iterable[Write], hints: Iterable[Hint], before: datetime) -> datetime | None:
    """Return the latest deadline of the workload's own that was written down, or told, before a moment.

    One that is settled waits for its gang, until another deadline, which is not its own.
    """
    states = [write.state for write in writes if write.has_succeeded and write.at <= before]
    written = [
        state.deadline
        for state in states
        if state and state.deadline and state.phase in AWAITING_WORKLOAD
    ]
    told = [hint.deadline for hint in hints if hint.at <= before]
    return max([*written, *told], default=None)


def _ended_at(victim: VictimExpectation, writes: Iterable[Write]) -> datetime | None:
    """Return when nothing was left to do: deleted by whomever, cancelled, or ended by itself."""
    ends = [write.done for write in writes if write.has_succeeded and _is_end(write)]
    return min([*ends, *([victim.ended_at] if victim.ended_at else [])], default=None)


def _unanswered_deletions(history: History) -> Mapping[str, datetime]:
    """Return by pod when the API server received a DELETE that it was killed over: nobody knows what came of it."""
    return {
        write.pod: write.at for write in history.writes if write.is_deletion and not write.status
    }


def _is_end(write: Write) -> bool:
    return write.is_deletion or (
        write.state is not None and write.state.phase in transitions.TERMINAL
    )


def _outage(outages: Iterable[Outage], since: datetime, until: datetime) -> timedelta:
    """Return for how long of a time nobody could act; outages don't overlap."""
    return sum(
        (max(min(until, one.until) - max(since, one.since), _NO_TIME) for one in outages), _NO_TIME
    )


def _reachable(phase: Phase) -> set[Phase]:
    """Return where one decision may lead: along the table's edges, which it walks as far as what is seen leads."""
    found: set[Phase] = set()
    ahead = [phase]
    while ahead:
        following = {move.to for move in transitions.TABLE[ahead.pop()].values()} - found
        found |= following
        ahead.extend(following)
    return found

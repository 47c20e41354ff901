"""What must hold in a round, beyond `chaos.invariants`: what others did, and what is left. Pure.

Each function returns one sentence for each breach; `broken_promises` has those of both modules.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from reprieve_policy import keys
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing.chaos import invariants
from reprieve_testing.chaos.invariants import History, Outage, VictimExpectation
from reprieve_testing.chaos.records import Write

Json = Any

TELLING = timedelta(seconds=15)
"""How long an operator may lead before it has told a victim, on a busy machine."""
LOST = timedelta(seconds=60)
"""How long the guard counts an operator that is away as live."""
_ROUNDING = timedelta(seconds=1)
SAVED_EVENT = "CheckpointSaved"
_SAVED = "saved"


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An Event of ours about a pod."""

    uid: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundHistory:
    """All records about the victims of a round."""

    history: History
    removals_by_others: Sequence[Write] = ()
    """Deletions and evictions by other users than the operator."""
    guard_outages: Sequence[Outage] = ()
    """When the guard could not answer; it also lets all pass once the operator is lost."""
    unmarked_at: Mapping[str, datetime] = field(default_factory=dict)
    """By pod: when the API server had answered the removal of its mark."""
    owners: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By pod: the annotations of its owner at the end, where it has an owner."""
    left: Mapping[str, Json] = field(default_factory=dict)
    """By pod: the pods that exist at the end."""
    events: Sequence[EventRecord] = ()
    ceiling: timedelta | None = None
    """The policy's; `None`: deadlines are not compared with it."""


def no_removal_by_others_before_an_acknowledgement(of: RoundHistory) -> Iterator[str]:
    """The guard keeps a pod with notice until it has saved, its time is over, or it must go."""
    done, hints = invariants.first_done(of.history.answers), invariants.by_uid(of.history.hints)
    writes, others = invariants.by_uid(of.history.writes), _by_pod(of.removals_by_others)
    for victim in _with_notice(of):
        removed_at = _removed_at(writes[victim.uid])
        for write in others.get(victim.pod, ()):
            is_known = removed_at is not None and removed_at <= write.at
            has_saved = victim.uid in done and done[victim.uid] <= write.at
            deadline = invariants.latest_deadline(writes[victim.uid], hints[victim.uid], write.at)
            is_late = deadline is not None and deadline <= write.at
            if is_known or has_saved or is_late or _was_unguarded(of, write):
                break
            yield f"{victim.pod}: {write.what} by {write.user} at {write.at} was let through"


def no_victim_is_untold_while_an_operator_leads(of: RoundHistory) -> Iterator[str]:
    """A victim with notice that is deleted has been asked, if an operator led for long enough.

    Where one led from its mark to its end, any time is long enough.
    """
    writes, hints = invariants.by_uid(of.history.writes), invariants.by_uid(of.history.hints)
    for victim in _with_notice(of):
        unanswered = [one for one in of.history.writes if one.pod == victim.pod and not one.status]
        removed_at = _removed_at([*writes[victim.uid], *unanswered])
        if removed_at is None or any(hint.at <= removed_at for hint in hints[victim.uid]):
            continue
        out = invariants.outage_within(of.history.outages, victim.marked_at, removed_at)
        led = removed_at - victim.marked_at - out
        if led > TELLING or not out:
            yield (
                f"{victim.pod}: deleted untold at {removed_at}; "
                f"an operator led for {led.total_seconds():.1f} s"
            )


def no_deadline_is_beyond_the_ceiling(of: RoundHistory) -> Iterator[str]:
    """No deadline is written that is later than the ceiling, however busy the machine is."""
    for write in of.history.writes:
        state = write.state
        if of.ceiling is None or state is None or state.deadline is None or not write.has_succeeded:
            continue
        beyond = state.deadline - state.requested_at - of.ceiling
        if beyond > _ROUNDING:
            yield f"{write.pod}: a deadline {beyond.total_seconds():.1f} s beyond its ceiling"


def no_victim_is_lost(of: RoundHistory) -> Iterator[str]:
    """A pod that no longer exists was deleted by a request that the audit log has."""
    removed = {write.pod for write in of.history.writes if write.is_deletion}
    removed |= {write.pod for write in of.removals_by_others}
    for victim in of.history.victims:
        if victim.pod not in of.left and victim.pod not in removed:
            yield f"{victim.pod}: is gone, and no request deleted it"


def nothing_ends_after_its_mark_is_removed(of: RoundHistory) -> Iterator[str]:
    """A mark that was removed before the end was decided keeps the pod."""
    writes = invariants.by_uid(of.history.writes)
    for victim in of.history.victims:
        unmarked_at = of.unmarked_at.get(victim.pod)
        if unmarked_at is None:
            continue
        for write in writes[victim.uid]:
            is_end = write.state is not None and write.state.phase is Phase.TERMINATING
            if is_end and write.has_succeeded and write.at > unmarked_at:
                yield f"{victim.pod}: its end was decided at {write.at}, unmarked at {unmarked_at}"


def every_ledger_has_its_victims(of: RoundHistory) -> Iterator[str]:
    """A victim that saved and was deleted is in the ledger of its owner, once, as saved."""
    done, writes = (
        invariants.by_uid(of.history.answers),
        invariants.by_uid(of.history.writes),
    )
    for victim in of.history.victims:
        ended = _last_state(writes[victim.uid], Phase.TERMINATING)
        has_saved = any(answer.state == _SAVED for answer in done[victim.uid])
        if victim.pod not in of.owners or ended is None or not has_saved:
            continue
        found = ledger.parse(of.owners[victim.pod].get(keys.LEDGER, ""))
        entries = [entry for entry in (found or {}).values() if ended in entry.eviction_ids]
        if len(entries) != 1:
            yield f"{victim.pod}: the ledger of its owner has {len(entries)} entries for {ended}"
        elif entries[0].preempted_count != 1:
            yield f"{victim.pod}: counted {entries[0].preempted_count} times in its ledger"


def events_tell_what_happened(of: RoundHistory) -> Iterator[str]:
    """No Event says that a workload saved which never answered so."""
    saved = {answer.uid for answer in of.history.answers if answer.state == _SAVED}
    for event in of.events:
        if event.reason == SAVED_EVENT and event.uid not in saved:
            yield f"{event.uid}: an Event {SAVED_EVENT}, but its workload never said so"


ALL: Sequence[Callable[[RoundHistory], Iterator[str]]] = (
    no_removal_by_others_before_an_acknowledgement,
    no_victim_is_untold_while_an_operator_leads,
    no_deadline_is_beyond_the_ceiling,
    no_victim_is_lost,
    nothing_ends_after_its_mark_is_removed,
    every_ledger_has_its_victims,
    events_tell_what_happened,
)
NUMBER_OF_CHECKS = len(ALL) + len(invariants.ALL) + 1


def broken_promises(of: RoundHistory) -> list[str]:
    """Return a sentence for each promise that was not kept."""
    return [
        *invariants.broken_promises(of.history),
        *(f"no_finalizer_left: {one}" for one in invariants.no_finalizer_left(of.left.values())),
        *(f"{promise.__name__}: {sentence}" for promise in ALL for sentence in promise(of)),
    ]


def _with_notice(of: RoundHistory) -> Iterator[VictimExpectation]:
    return (victim for victim in of.history.victims if victim.has_notice)


def _by_pod(writes: Sequence[Write]) -> Mapping[str, list[Write]]:
    found: dict[str, list[Write]] = {}
    for write in writes:
        if write.has_succeeded:
            found.setdefault(write.pod, []).append(write)
    return found


def _removed_at(writes: Sequence[Write]) -> datetime | None:
    """Return when the operator's first deletion arrived, also one without a recorded answer."""
    return min(
        (one.at for one in writes if one.is_deletion and (one.has_succeeded or not one.status)),
        default=None,
    )


def _was_unguarded(of: RoundHistory, write: Write) -> bool:
    """True if there was no guard, or the operator was lost, at some time of the call.

    A guard that is killed in the middle of a review answers nothing, and the API server goes on.
    """
    lost = (Outage(one.since + LOST, one.until) for one in of.history.outages)
    return any(
        one.since <= write.done and write.at <= one.until for one in (*of.guard_outages, *lost)
    )


def _last_state(writes: Sequence[Write], phase: Phase) -> str | None:
    """Return the id of the last eviction that was written in this phase."""
    found = [
        write.state.eviction_id
        for write in writes
        if write.has_succeeded and write.state is not None and write.state.phase is phase
    ]
    return found[-1] if found else None

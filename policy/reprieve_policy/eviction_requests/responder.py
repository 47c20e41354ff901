"""How Reprieve answers a native Eviction: what it does to the pod, and what it writes into the Eviction's status.

A drain-like request: it is given notice, never refused (`Source.EVICTION_REQUEST`), and ends by the Eviction API, as it would by
Kubernetes' own responder (`imperative-eviction.k8s.io/evictor`). All is decided from the Eviction and from what the pod carries,
so that it makes no difference how often it is asked, or which operator asks.

Whoever withdraws has the pod stood down, once, and needs no right to cancel. Asked for again it is marked as by a drain, and goes. Without
this, requests that are withdrawn and renewed in turn would make a pod nobody's victim, and have others wait for its room, for ever.

The API server takes a heartbeat near its own time only, and gives the next responder its turn after 20 minutes without one.
It asks that they come no more often than every 20 seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reprieve_policy.lifecycle.eviction import WITH_DEADLINE, CheckpointOutcome, Eviction, Phase
from reprieve_policy.lifecycle.transitions import TERMINAL

from .objects import ReportedStatus, ResponderAssignment, ResponderTurn

MIN_HEARTBEAT_INTERVAL = timedelta(seconds=20)
"""News are held back for so long after a heartbeat; the end is not."""
MAX_HEARTBEAT_INTERVAL = timedelta(seconds=300)
"""A quarter of what the API server allows: three may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPod:
    """The pod as it is now."""

    names_responder: bool = True
    """It has us among its responders. Without this, whoever may write an Eviction could ask pods to go that never agreed to it."""
    has_ended: bool = False
    mark_request_uid: str = ""
    """The uid of the Eviction that its mark of this kind names."""
    is_marked: bool = False
    """By any mark, also one that is no state yet."""
    state: Eviction | None = None
    deletion_ends_at: datetime | None = None
    """When the grace of a pod that is being deleted is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderReport:
    """What is written into our part of the status. Times are whole seconds, aware UTC."""

    heartbeat_at: datetime
    message: str
    expected_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderAction:
    """What is to be done now."""

    sets_mark: bool = False
    sets_own_label: bool = False
    """With our own label, which says that it goes by an eviction: withdrawing the request does not take it back."""
    removes_mark: bool = False
    """Our mark is taken from the pod: its workload is told that it may go on."""
    report: ResponderReport | None = None


NO_ACTION = ResponderAction()

_COMPLETION_MESSAGES = {
    "gone": "the pod is gone",
    "ended": "the pod has ended",
    "unnamed": "the pod does not name this responder: left to the next one",
    "cancelled": "the soft eviction was taken back: left to the next one",
    "held": "the pod could not be evicted yet, see its Events: left to the next one",
}
_PHASE_MESSAGES: Mapping[Phase, str] = {
    Phase.REQUESTED: "the workload is about to be asked to save its work",
    Phase.REPRIEVED: "the pod is almost complete: it is asked to save its work after that",
    Phase.HINTED: "the workload was asked to save its work, and has not answered yet",
    Phase.CHECKPOINTING: "the workload is saving its work",
    Phase.EXTENDED: "the workload is saving its work, and was given more time, once",
    Phase.DEFERRED: "the workload asked for more time before it saves its work",
    Phase.SETTLED: "nothing more is to be heard of the workload: the rest of its gang is waited for",
    Phase.SAVED: "the workload has saved its work: the rest of its gang is waited for",
    Phase.TERMINATING: "the pod is being ended",
}


def decide(asked: ResponderAssignment, seen: ObservedPod | None, now: datetime) -> ResponderAction:
    """Return what an Eviction and its pod lead to; `seen` is `None` where the pod is gone."""
    if asked.turn is ResponderTurn.CANCELLED:
        return ResponderAction(removes_mark=seen is not None and seen.mark_request_uid == asked.uid)
    if asked.turn is ResponderTurn.INACTIVE:
        return NO_ACTION
    last = _completion_key(asked, seen)
    if last is not None or seen is None:
        return ResponderAction(
            report=_completion(asked.reported, _COMPLETION_MESSAGES[last or "gone"], now)
        )
    is_under_way = seen.is_marked or _is_in_progress(seen.state)
    state = seen.state if _is_in_progress(seen.state) else None
    return ResponderAction(
        sets_mark=not is_under_way,
        sets_own_label=not is_under_way and _was_requested_before(seen.state),
        report=_progress_report(asked.reported, state, seen.deletion_ends_at, now),
    )


def is_orphaned_mark(mark: str, known: frozenset[str]) -> bool:
    """True where a pod's mark names an Eviction that is none of those there are: nobody wants it gone any more."""
    return bool(mark) and mark not in known


def _completion_key(asked: ResponderAssignment, seen: ObservedPod | None) -> str | None:
    if seen is None:
        return "gone"
    words = (
        (seen.has_ended, "ended"),
        (not seen.names_responder, "unnamed"),
        # Without this, a controller that could make room for its budget would never have its turn.
        (_was_cancelled(seen.state, asked.uid, CheckpointOutcome.HELD_BY_BUDGET), "held"),
        # By somebody who has the right to: whoever wants the pod gone all the same has other responders.
        (_was_cancelled(seen.state, asked.uid, CheckpointOutcome.CANCELLED), "cancelled"),
    )
    return next((word for is_so, word in words if is_so), None)


def _was_requested_before(state: Eviction | None) -> bool:
    """True for one that an Eviction asked for before, whatever has become of that."""
    return state is not None and state.request_uid != ""


def _was_cancelled(state: Eviction | None, uid: str, outcome: CheckpointOutcome) -> bool:
    said = None if state is None else (state.phase, state.outcome, state.request_uid)
    return said == (Phase.CANCELLED, outcome, uid)


def _is_in_progress(state: Eviction | None) -> bool:
    return state is not None and state.phase not in TERMINAL


def _completion(said: ReportedStatus, message: str, now: datetime) -> ResponderReport:
    moment = _present(said, now)
    return ResponderReport(heartbeat_at=moment, completed_at=moment, message=message)


def _progress_report(
    said: ReportedStatus, state: Eviction | None, leaves_at: datetime | None, now: datetime
) -> ResponderReport | None:
    """Return what is new, or that we live; `None` where nothing is to be written yet."""
    message = _PHASE_MESSAGES[Phase.REQUESTED if state is None else state.phase]
    expected_at = _expected_at(said, state, leaves_at, now)
    is_new = message != said.message or (
        expected_at is not None and expected_at != said.expected_at
    )
    quiet = None if said.heartbeat_at is None else now - said.heartbeat_at
    if quiet is not None and quiet < (MIN_HEARTBEAT_INTERVAL if is_new else MAX_HEARTBEAT_INTERVAL):
        return None
    return ResponderReport(
        heartbeat_at=_present(said, now), message=message, expected_at=expected_at
    )


def _expected_at(
    said: ReportedStatus, state: Eviction | None, leaves_at: datetime | None, now: datetime
) -> datetime | None:
    """Return when the pod will be gone at the latest, as far as that is known: the API server refuses what is past."""
    ends_at = leaves_at or (
        state.deadline if state is not None and state.phase in WITH_DEADLINE else None
    )
    if ends_at is None or ends_at <= now:
        return None
    return max(_whole(ends_at), _present(said, now))


def _present(said: ReportedStatus, now: datetime) -> datetime:
    """Return now, but never before what is written already: the API server's clock may be a moment ahead."""
    return max(
        found for found in (_whole(now), said.started_at, said.heartbeat_at) if found is not None
    )


def _whole(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)

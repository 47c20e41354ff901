"""How Reprieve responds to a native Eviction: its actions on the pod and its report in the status.

The request is treated like a drain. It gets notice, is never refused (`Source.EVICTION_REQUEST`),
and ends by the Eviction API, as it would with Kubernetes' own responder
(`imperative-eviction.k8s.io/evictor`). All is decided from the Eviction and from what the pod
carries, so it does not matter how often this is called, or by which operator.

A withdrawn request cancels the pod's eviction once, and needs no permission to cancel. If the pod
is requested again, it is marked as by a drain, and is evicted. Without this, requests that are
withdrawn and renewed in turn would never make the pod a victim, and other pods would wait for its
node for ever.

The API server accepts a heartbeat only near its own time, and passes the turn to the next responder
after 20 minutes without one. It asks for at most one heartbeat in 20 seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reprieve_policy.lifecycle.eviction import WITH_DEADLINE, CheckpointOutcome, Eviction, Phase
from reprieve_policy.lifecycle.transitions import TERMINAL

from .objects import ReportedStatus, ResponderAssignment, ResponderTurn

MIN_HEARTBEAT_INTERVAL = timedelta(seconds=20)
"""News waits for this long after a heartbeat; a completion does not."""
MAX_HEARTBEAT_INTERVAL = timedelta(seconds=300)
"""A quarter of what the API server allows, so that three may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPod:
    """The pod as it is now."""

    names_responder: bool = True
    """It has us among its responders. Without this, a user who may write an Eviction could evict
    pods that never agreed to it."""
    has_ended: bool = False
    mark_request_uid: str = ""
    """The uid of the Eviction that its EvictionRequest mark names."""
    is_marked: bool = False
    """It has a mark of any kind, also one without a state yet."""
    state: Eviction | None = None
    deletion_ends_at: datetime | None = None
    """When the grace period of a pod that is being deleted is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderReport:
    """Our new part of the status. Times are whole seconds, aware UTC."""

    heartbeat_at: datetime
    message: str
    expected_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderAction:
    """What to do now."""

    sets_mark: bool = False
    sets_own_label: bool = False
    """Set our own label too, which asks for an eviction: withdrawing the request does not cancel
    it."""
    removes_mark: bool = False
    """Remove our mark from the pod: its workload gets the message that it may go on."""
    report: ResponderReport | None = None


NO_ACTION = ResponderAction()

_COMPLETION_MESSAGES = {
    "gone": "the pod is gone",
    "ended": "the pod has ended",
    "unnamed": "the pod does not name this responder: left to the next responder",
    "cancelled": "the soft eviction was cancelled: left to the next responder",
    "held": "the pod could not be evicted yet, see its Events: left to the next responder",
}
_PHASE_MESSAGES: Mapping[Phase, str] = {
    Phase.REQUESTED: "the workload is about to be asked to save its work",
    Phase.REPRIEVED: "the pod is almost complete: it is asked to save its work after that",
    Phase.HINTED: "the workload was asked to save its work, and has not answered yet",
    Phase.CHECKPOINTING: "the workload is saving its work",
    Phase.EXTENDED: "the workload is saving its work, and was given more time, once",
    Phase.DEFERRED: "the workload asked for more time before it saves its work",
    Phase.SETTLED: "no more answers are expected of the workload: waiting for the rest of its gang",
    Phase.SAVED: "the workload has saved its work: waiting for the rest of its gang",
    Phase.TERMINATING: "the pod is being ended",
}


def decide(
    assignment: ResponderAssignment, seen: ObservedPod | None, now: datetime
) -> ResponderAction:
    """Return what an Eviction and its pod lead to; `seen` is `None` if the pod is gone."""
    if assignment.turn is ResponderTurn.CANCELLED:
        is_ours = seen is not None and seen.mark_request_uid == assignment.uid
        return ResponderAction(removes_mark=is_ours)
    if assignment.turn is ResponderTurn.INACTIVE:
        return NO_ACTION
    key = _completion_key(assignment, seen)
    if key is not None or seen is None:
        return ResponderAction(
            report=_completion(assignment.reported, _COMPLETION_MESSAGES[key or "gone"], now)
        )
    is_under_way = seen.is_marked or _is_in_progress(seen.state)
    state = seen.state if _is_in_progress(seen.state) else None
    return ResponderAction(
        sets_mark=not is_under_way,
        sets_own_label=not is_under_way and _was_requested_before(seen.state),
        report=_progress_report(assignment.reported, state, seen.deletion_ends_at, now),
    )


def is_orphaned_mark(mark: str, known: frozenset[str]) -> bool:
    """True if a pod's mark names an Eviction that no longer exists: no client wants it evicted."""
    return bool(mark) and mark not in known


def _completion_key(assignment: ResponderAssignment, seen: ObservedPod | None) -> str | None:
    if seen is None:
        return "gone"
    keys = (
        (seen.has_ended, "ended"),
        (not seen.names_responder, "unnamed"),
        # Without this, a controller that could free its budget would never have its turn.
        (_was_cancelled(seen.state, assignment.uid, CheckpointOutcome.HELD_BY_BUDGET), "held"),
        # By a client with the permission to cancel. A client that still wants the eviction has
        # other responders.
        (_was_cancelled(seen.state, assignment.uid, CheckpointOutcome.CANCELLED), "cancelled"),
    )
    return next((key for applies, key in keys if applies), None)


def _was_requested_before(state: Eviction | None) -> bool:
    """True for a pod that an Eviction asked for before, whatever has become of that."""
    return state is not None and state.request_uid != ""


def _was_cancelled(state: Eviction | None, uid: str, outcome: CheckpointOutcome) -> bool:
    facts = None if state is None else (state.phase, state.outcome, state.request_uid)
    return facts == (Phase.CANCELLED, outcome, uid)


def _is_in_progress(state: Eviction | None) -> bool:
    return state is not None and state.phase not in TERMINAL


def _completion(reported: ReportedStatus, message: str, now: datetime) -> ResponderReport:
    moment = _present(reported, now)
    return ResponderReport(heartbeat_at=moment, completed_at=moment, message=message)


def _progress_report(
    reported: ReportedStatus, state: Eviction | None, leaves_at: datetime | None, now: datetime
) -> ResponderReport | None:
    """Return news or a sign of life; `None`: nothing is to be written yet."""
    message = _PHASE_MESSAGES[Phase.REQUESTED if state is None else state.phase]
    expected_at = _expected_at(reported, state, leaves_at, now)
    is_new = message != reported.message or (
        expected_at is not None and expected_at != reported.expected_at
    )
    quiet = None if reported.heartbeat_at is None else now - reported.heartbeat_at
    if quiet is not None and quiet < (MIN_HEARTBEAT_INTERVAL if is_new else MAX_HEARTBEAT_INTERVAL):
        return None
    return ResponderReport(
        heartbeat_at=_present(reported, now), message=message, expected_at=expected_at
    )


def _expected_at(
    reported: ReportedStatus, state: Eviction | None, leaves_at: datetime | None, now: datetime
) -> datetime | None:
    """Return when the pod will be gone at the latest, if known and in the future.

    The API server refuses a past time.
    """
    ends_at = leaves_at or (
        state.deadline if state is not None and state.phase in WITH_DEADLINE else None
    )
    if ends_at is None or ends_at <= now:
        return None
    return max(_whole(ends_at), _present(reported, now))


def _present(reported: ReportedStatus, now: datetime) -> datetime:
    """Return now, or the last time in the status: the API server's clock may be a moment ahead."""
    moments = (_whole(now), reported.started_at, reported.heartbeat_at)
    return max(moment for moment in moments if moment is not None)


def _whole(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)

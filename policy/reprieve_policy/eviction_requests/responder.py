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

from reprieve_policy.lifecycle.eviction import TIMED, Eviction, Outcome, Phase
from reprieve_policy.lifecycle.transitions import TERMINAL

from .objects import Asked, Said, Turn

LEAST_BEAT = timedelta(seconds=20)
"""News are held back for so long after a heartbeat; the end is not."""
LONGEST_BEAT = timedelta(seconds=300)
"""A quarter of what the API server allows: three may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The pod as it is now."""

    names_us: bool = True
    """It has us among its responders. Without this, whoever may write an Eviction could ask pods to go that never agreed to it."""
    has_ended: bool = False
    mark: str = ""
    """The uid of the Eviction that its mark of this kind names."""
    is_asked: bool = False
    """By any mark, also one that is no state yet."""
    state: Eviction | None = None
    leaves_at: datetime | None = None
    """When the grace of a pod that is being deleted is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is written into our part of the status. Times are whole seconds, aware UTC."""

    heartbeat_at: datetime
    message: str
    expected_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be done now."""

    marks: bool = False
    insists: bool = False
    """With our own label, which says that it goes by an eviction: withdrawing the request does not take it back."""
    stands_down: bool = False
    """Our mark is taken from the pod: its workload is told that it may go on."""
    report: Report | None = None


NOTHING = Step()

_ENDINGS = {
    "gone": "the pod is gone",
    "ended": "the pod has ended",
    "unnamed": "the pod does not name this responder: left to the next one",
    "cancelled": "the soft eviction was taken back: left to the next one",
    "held": "the pod could not be evicted yet, see its Events: left to the next one",
}
_NEWS: Mapping[Phase, str] = {
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


def decide(asked: Asked, seen: Seen | None, now: datetime) -> Step:
    """Return what an Eviction and its pod lead to; `seen` is `None` where the pod is gone."""
    if asked.turn is Turn.CANCELLED:
        return Step(stands_down=seen is not None and seen.mark == asked.uid)
    if asked.turn is Turn.NOT_OURS:
        return NOTHING
    last = _last_word(asked, seen)
    if last is not None or seen is None:
        return Step(report=_completion(asked.said, _ENDINGS[last or "gone"], now))
    is_under_way = seen.is_asked or _is_alive(seen.state)
    state = seen.state if _is_alive(seen.state) else None
    return Step(
        marks=not is_under_way,
        insists=not is_under_way and _was_asked_before(seen.state),
        report=_news(asked.said, state, seen.leaves_at, now),
    )


def is_abandoned(mark: str, known: frozenset[str]) -> bool:
    """True where a pod's mark names an Eviction that is none of those there are: nobody wants it gone any more."""
    return bool(mark) and mark not in known


def _last_word(asked: Asked, seen: Seen | None) -> str | None:
    if seen is None:
        return "gone"
    words = (
        (seen.has_ended, "ended"),
        (not seen.names_us, "unnamed"),
        # Without this, a controller that could make room for its budget would never have its turn.
        (_was_stood_down(seen.state, asked.uid, Outcome.HELD_BY_BUDGET), "held"),
        # By somebody who has the right to: whoever wants the pod gone all the same has other responders.
        (_was_stood_down(seen.state, asked.uid, Outcome.CANCELLED), "cancelled"),
    )
    return next((word for is_so, word in words if is_so), None)


def _was_asked_before(state: Eviction | None) -> bool:
    """True for one that an Eviction asked for before, whatever has become of that."""
    return state is not None and state.request_uid != ""


def _was_stood_down(state: Eviction | None, uid: str, outcome: Outcome) -> bool:
    said = None if state is None else (state.phase, state.outcome, state.request_uid)
    return said == (Phase.CANCELLED, outcome, uid)


def _is_alive(state: Eviction | None) -> bool:
    return state is not None and state.phase not in TERMINAL


def _completion(said: Said, message: str, now: datetime) -> Report:
    moment = _present(said, now)
    return Report(heartbeat_at=moment, completed_at=moment, message=message)


def _news(said: Said, state: Eviction | None, leaves_at: datetime | None, now: datetime) -> Report | None:
    """Return what is new, or that we live; `None` where nothing is to be written yet."""
    message = _NEWS[Phase.REQUESTED if state is None else state.phase]
    expected_at = _expected_at(said, state, leaves_at, now)
    is_new = message != said.message or (expected_at is not None and expected_at != said.expected_at)
    quiet = None if said.heartbeat_at is None else now - said.heartbeat_at
    if quiet is not None and quiet < (LEAST_BEAT if is_new else LONGEST_BEAT):
        return None
    return Report(heartbeat_at=_present(said, now), message=message, expected_at=expected_at)


def _expected_at(said: Said, state: Eviction | None, leaves_at: datetime | None, now: datetime) -> datetime | None:
    """Return when the pod will be gone at the latest, as far as that is known: the API server refuses what is past."""
    ends_at = leaves_at or (state.deadline if state is not None and state.phase in TIMED else None)
    if ends_at is None or ends_at <= now:
        return None
    return max(_whole(ends_at), _present(said, now))


def _present(said: Said, now: datetime) -> datetime:
    """Return now, but never before what is written already: the API server's clock may be a moment ahead."""
    return max(found for found in (_whole(now), said.started_at, said.heartbeat_at) if found is not None)


def _whole(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)

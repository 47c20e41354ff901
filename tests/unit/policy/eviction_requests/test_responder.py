"""What an Eviction and its pod lead to, and when it is reported."""

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.eviction_requests import responder
from reprieve_policy.eviction_requests.objects import (
    PodReference,
    ReportedStatus,
    ResponderAssignment,
    ResponderTurn,
)
from reprieve_policy.eviction_requests.responder import (
    NO_ACTION,
    ObservedPod,
    ResponderAction,
    ResponderReport,
)
from reprieve_policy.lifecycle.eviction import WITH_DEADLINE, CheckpointOutcome, Phase, Source
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_testing.builders import NOW, after, an_eviction

ASKED = ResponderAssignment(
    uid="uid",
    pod=PodReference(name="p", uid="pod-uid"),
    turn=ResponderTurn.ACTIVE,
    reported=ReportedStatus(started_at=NOW),
)
ABOUT_TO = "the workload is about to be asked to save its work"
HINTED = replace(
    an_eviction().hinted(deadline=after(600)).build(),
    source=Source.EVICTION_REQUEST,
    request_uid="uid",
)
VICTIM = ObservedPod(mark_request_uid="uid", is_marked=True, state=HINTED)
SAYS = "the workload was asked to save its work, and has not answered yet"
CANCELLED = replace(
    HINTED, phase=Phase.CANCELLED, outcome=CheckpointOutcome.CANCELLED, deadline=None
)


def completed(message: str) -> ResponderAction:
    return ResponderAction(
        report=ResponderReport(heartbeat_at=after(1), completed_at=after(1), message=message)
    )


CASES: dict[str, tuple[ResponderAssignment, ObservedPod | None, ResponderAction]] = {
    "a pod without a mark is marked": (
        ASKED,
        ObservedPod(),
        ResponderAction(
            sets_mark=True, report=ResponderReport(heartbeat_at=after(1), message=ABOUT_TO)
        ),
    ),
    "one that is marked already is not marked again": (
        ASKED,
        ObservedPod(is_marked=True),
        ResponderAction(report=ResponderReport(heartbeat_at=after(1), message=ABOUT_TO)),
    ),
    "one whose earlier eviction is over is marked": (
        ASKED,
        ObservedPod(state=replace(CANCELLED, source=Source.LABEL, request_uid="")),
        ResponderAction(
            sets_mark=True, report=ResponderReport(heartbeat_at=after(1), message=ABOUT_TO)
        ),
    ),
    "one that a withdrawn request asked for before also gets our own label": (
        ASKED,
        ObservedPod(state=replace(CANCELLED, request_uid="another")),
        ResponderAction(
            sets_mark=True,
            sets_own_label=True,
            report=ResponderReport(heartbeat_at=after(1), message=ABOUT_TO),
        ),
    ),
    "so is one that a scheduler was refused since": (
        ASKED,
        ObservedPod(
            state=replace(
                CANCELLED, phase=Phase.SPARED, source=Source.KOORDINATOR, request_uid="another"
            )
        ),
        ResponderAction(
            sets_mark=True,
            sets_own_label=True,
            report=ResponderReport(heartbeat_at=after(1), message=ABOUT_TO),
        ),
    ),
    "that one is evicted": (
        ASKED,
        replace(VICTIM, state=replace(HINTED, source=Source.LABEL)),
        ResponderAction(
            report=ResponderReport(heartbeat_at=after(1), message=SAYS, expected_at=after(600))
        ),
    ),
    "its progress and expected completion are reported": (
        ASKED,
        VICTIM,
        ResponderAction(
            report=ResponderReport(heartbeat_at=after(1), message=SAYS, expected_at=after(600))
        ),
    ),
    "a victim for another reason is as good": (
        ASKED,
        replace(
            VICTIM, mark_request_uid="", state=replace(HINTED, source=Source.LABEL, request_uid="")
        ),
        ResponderAction(
            report=ResponderReport(heartbeat_at=after(1), message=SAYS, expected_at=after(600))
        ),
    ),
    "one that is being deleted is gone when its grace is over": (
        ASKED,
        replace(VICTIM, state=replace(HINTED, phase=Phase.TERMINATING), deletion_ends_at=after(31)),
        ResponderAction(
            report=ResponderReport(
                heartbeat_at=after(1), message="the pod is being ended", expected_at=after(31)
            )
        ),
    ),
    "what is past is no expectation": (
        ASKED,
        replace(VICTIM, deletion_ends_at=NOW),
        ResponderAction(report=ResponderReport(heartbeat_at=after(1), message=SAYS)),
    ),
    "a pod that is gone is the end of it": (ASKED, None, completed("the pod is gone")),
    "so is one that has ended": (
        ASKED,
        replace(VICTIM, has_ended=True),
        completed("the pod has ended"),
    ),
    "one that does not name us is left alone": (
        ASKED,
        ObservedPod(names_responder=False),
        completed("the pod does not name this responder: left to the next responder"),
    ),
    "one whose soft eviction was cancelled is left to the next responder": (
        ASKED,
        ObservedPod(state=CANCELLED),
        completed("the soft eviction was cancelled: left to the next responder"),
    ),
    "one that a budget held until the ceiling is left to the next, which may free the budget": (
        ASKED,
        ObservedPod(state=replace(CANCELLED, outcome=CheckpointOutcome.HELD_BY_BUDGET)),
        completed("the pod could not be evicted yet, see its Events: left to the next responder"),
    ),
    "one that was held before this request also gets our own label": (
        ASKED,
        ObservedPod(
            state=replace(
                CANCELLED, outcome=CheckpointOutcome.HELD_BY_BUDGET, request_uid="another"
            )
        ),
        ResponderAction(
            sets_mark=True,
            sets_own_label=True,
            report=ResponderReport(heartbeat_at=after(1), message=ABOUT_TO),
        ),
    ),
    "a cancelled request stands its victim down": (
        replace(ASKED, turn=ResponderTurn.CANCELLED),
        VICTIM,
        ResponderAction(removes_mark=True),
    ),
    "but not one of another request": (
        replace(ASKED, turn=ResponderTurn.CANCELLED),
        replace(VICTIM, mark_request_uid="x"),
        NO_ACTION,
    ),
    "nor one that is gone": (replace(ASKED, turn=ResponderTurn.CANCELLED), None, NO_ACTION),
    "when it is not our turn, nothing is done": (
        replace(ASKED, turn=ResponderTurn.INACTIVE),
        ObservedPod(),
        NO_ACTION,
    ),
    "nor is what was begun given up": (
        replace(ASKED, turn=ResponderTurn.INACTIVE),
        VICTIM,
        NO_ACTION,
    ),
}


@pytest.mark.parametrize(("asked", "seen", "want"), CASES.values(), ids=CASES)
def test_the_action(
    asked: ResponderAssignment, seen: ObservedPod | None, want: ResponderAction
) -> None:
    assert responder.decide(asked, seen, after(1)) == want


def reported(
    seconds: float, message: str = SAYS, expected: float | None = 600
) -> ResponderAssignment:
    expected_at = None if expected is None else after(expected)
    heartbeat = ReportedStatus(
        started_at=NOW, heartbeat_at=after(seconds), expected_at=expected_at, message=message
    )
    return replace(ASKED, reported=heartbeat)


BEATS = {
    "nothing is new": (reported(0), after(299), False),
    "it lives": (reported(0), after(300), True),
    "another phase": (reported(0, message=ABOUT_TO), after(20), True),
    "another phase, a moment after the last report": (
        reported(0, message=ABOUT_TO),
        after(19),
        False,
    ),
    "another deadline": (reported(0, expected=500), after(20), True),
    "a deadline at last": (reported(0, expected=None), after(20), True),
    "a report that is ahead of our clock": (reported(30, message=ABOUT_TO), after(1), False),
}


@pytest.mark.parametrize(("asked", "now", "want"), BEATS.values(), ids=BEATS)
def test_a_heartbeat_comes_when_something_is_new_and_never_too_often(
    asked: ResponderAssignment,
    now: datetime,
    *,
    want: bool,
) -> None:
    assert (responder.decide(asked, VICTIM, now).report is not None) is want


def test_completion_is_reported_at_once() -> None:
    assert responder.decide(reported(0), None, after(1)).report == ResponderReport(
        heartbeat_at=after(1), completed_at=after(1), message="the pod is gone"
    )


def test_no_time_is_before_the_last_report() -> None:
    """The API server refuses a heartbeat before the last one, and its clock may be ahead."""
    ahead = replace(ASKED, reported=ReportedStatus(started_at=after(10), heartbeat_at=after(12)))
    report = responder.decide(ahead, None, after(1)).report
    assert report is not None
    assert report.completed_at == report.heartbeat_at == after(12)


def test_every_phase_that_lasts_has_a_sentence() -> None:
    for phase in set(Phase) - set(TERMINAL):
        state = replace(
            HINTED, phase=phase, deadline=after(600) if phase in WITH_DEADLINE else None
        )
        report = responder.decide(ASKED, replace(VICTIM, state=state), NOW).report
        assert report is not None
        assert report.message
        assert (report.expected_at is not None) == (phase in WITH_DEADLINE)


@given(st.integers(0, 7200), st.integers(0, 7200))
def test_a_heartbeat_comes_in_time_however_often_it_is_called(beat: int, look: int) -> None:
    """A call at least every 10 minutes reports before the API server's 20 are over."""
    asked = reported(beat)
    if look - beat >= 600:
        assert responder.decide(asked, VICTIM, after(look)).report is not None


def test_a_mark_of_an_eviction_that_is_gone_is_abandoned() -> None:
    assert responder.is_orphaned_mark("uid", frozenset({"other"}))
    assert not responder.is_orphaned_mark("uid", frozenset({"uid"}))
    assert not responder.is_orphaned_mark("", frozenset())

"""In a burst, writes that only inform are postponed, for a short time."""

from dataclasses import dataclass
from typing import cast

import pytest

from reprieve_operator.checkpointing import delivery
from reprieve_operator.checkpointing.delivery import DeliveryState
from reprieve_operator.checkpointing.transport import ReplyKind
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.victims.checkpoint_session import CheckpointSession
from reprieve_operator.victims.cleaner_report import CleanerReport
from reprieve_operator.victims.notice import MAX_BUSY_UNWRITTEN_SECONDS, Notice
from reprieve_policy.checkpointing.checkpoint_plan import AnnotationHint, CheckpointPlan, Strategy
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.lifecycle import machine
from reprieve_policy.preemption.guard import GRACE_AFTER_CEILING_SECONDS
from reprieve_testing.objects.builders import after, an_eviction

HINTED = an_eviction().hinted(deadline=after(600)).build()
PLAN = CheckpointPlan(
    strategy=Strategy.AUTO, hint=AnnotationHint(), timeout_seconds=600, max_deferral_seconds=300
)
QUEUED = machine.ObservedVictim(has_call_slot=False)
POD = VictimPod(metadata=VersionedMeta(namespace="team", name="train", uid="uid"))
SAVING = CheckpointAnswer(state=AnswerState.SAVING, eviction_id=HINTED.eviction_id)
SAVED = CheckpointAnswer(state=AnswerState.SAVED, eviction_id=HINTED.eviction_id)


@dataclass
class BusyApiServer:
    """Whether the API server is busy, and the time."""

    has_many_calls: bool = True
    has_many_victims: bool = False
    seconds: float = 0.5
    """Since the hint."""
    hint_lost: bool = False
    request_forgotten: bool = False

    @property
    def poller(self) -> "BusyApiServer":
        """What the workload's own calls say."""
        return self

    def is_busy(self, _: str) -> bool:
        return self.has_many_calls

    def is_burst(self, namespace: str) -> bool:
        assert namespace == "team"
        return self.has_many_victims

    def notice(self) -> Notice:
        return Notice(
            cast("CheckpointSession", self),
            cast("Writes", self),
            cast("EventRecorder", self),
            Clock(now=lambda: after(self.seconds), monotonic=lambda: self.seconds),
            adds_finalizer=lambda *_: False,
            cleaner_report=cast("CleanerReport", None),
            on_pod_written=lambda _: None,
        )


def is_postponed(notice: Notice, answer: CheckpointAnswer) -> bool:
    decision = machine.decide(
        HINTED, machine.ObservedVictim(answer=answer), PLAN, PolicySettings(), after(10)
    )
    return notice.is_postponed(POD, decision, answer)


def test_the_write_is_postponed_until_the_burst_is_over() -> None:
    api_server = BusyApiServer()
    notice = api_server.notice()
    assert is_postponed(notice, SAVING)
    api_server.has_many_calls = False
    assert not is_postponed(notice, SAVING)


def test_the_write_is_postponed_where_a_namespace_has_many_victims() -> None:
    api_server = BusyApiServer(has_many_calls=False, has_many_victims=True)
    assert is_postponed(api_server.notice(), SAVING)


def test_a_short_wait_for_a_call_is_not_written() -> None:
    api_server = BusyApiServer(has_many_calls=False)
    notice = api_server.notice()
    begun = an_eviction().build()
    queued = machine.decide(begun, QUEUED, PLAN, PolicySettings(), after(0))
    granted = machine.decide(begun, machine.ObservedVictim(), PLAN, PolicySettings(), after(0))
    assert notice.unwritten_wait(POD, granted) == 0.0
    assert notice.unwritten_wait(POD, queued) == 5.0
    api_server.seconds += 4.5
    assert notice.unwritten_wait(POD, queued) == 0.5
    api_server.seconds += 1.0
    assert notice.unwritten_wait(POD, queued) == 0.0, "now it is written that the victim waits"


def test_a_longer_wait_for_a_call_is_not_written_while_other_calls_wait() -> None:
    api_server = BusyApiServer(seconds=1.0)
    notice = api_server.notice()
    begun = an_eviction().build()
    queued = machine.decide(begun, QUEUED, PLAN, PolicySettings(), after(0))
    # It is asked again after five seconds: the other calls may have ended.
    assert notice.unwritten_wait(POD, queued) == 5.0
    api_server.seconds += 20.0
    assert notice.unwritten_wait(POD, queued) == 5.0
    api_server.seconds += 4.0
    assert notice.unwritten_wait(POD, queued) == 1.0
    api_server.has_many_calls = False
    assert notice.unwritten_wait(POD, queued) == 0.0


def test_a_victim_has_a_state_long_before_the_guard_lets_it_be_deleted_without_one() -> None:
    assert MAX_BUSY_UNWRITTEN_SECONDS <= GRACE_AFTER_CEILING_SECONDS / 2


def test_a_victim_waits_unwritten_at_most_until_its_deadline() -> None:
    notice = BusyApiServer(seconds=1.0).notice()
    settings = PolicySettings(ceiling_seconds=3)
    queued = machine.decide(an_eviction().build(), QUEUED, PLAN, settings, after(0))
    assert notice.unwritten_wait(POD, queued) == 2.0


@pytest.mark.parametrize(("has_many_calls", "longest"), [(False, 15.0), (True, 300.0)])
def test_the_write_is_postponed_for_a_bounded_time(*, has_many_calls: bool, longest: float) -> None:
    api_server = BusyApiServer(has_many_calls=has_many_calls, has_many_victims=True)
    notice = api_server.notice()
    assert is_postponed(notice, SAVING)
    api_server.seconds = longest - 1
    assert is_postponed(notice, SAVING)
    assert is_postponed(api_server.notice(), SAVING), "by the next operator too"
    api_server.seconds = longest + 1
    assert not is_postponed(notice, SAVING)
    assert not is_postponed(api_server.notice(), SAVING)


def test_the_write_is_not_postponed_where_the_clock_was_set_back() -> None:
    assert not is_postponed(BusyApiServer(seconds=-1.0).notice(), SAVING)


@pytest.mark.parametrize("lost", ["hint_lost", "request_forgotten"])
def test_the_write_is_not_postponed_where_the_workload_has_forgotten_the_request(lost: str) -> None:
    """It answered, and its container restarted: with the answer written, it is asked again."""
    api_server = BusyApiServer()
    assert is_postponed(api_server.notice(), SAVING)
    setattr(api_server, lost, True)
    assert not is_postponed(api_server.notice(), SAVING)


def test_a_write_that_ends_the_wait_is_never_postponed() -> None:
    assert not is_postponed(BusyApiServer().notice(), SAVED)


@pytest.mark.parametrize("heard", [ReplyKind.ANSWER, ReplyKind.OUTCOME_UNKNOWN])
def test_the_next_operator_polls_and_does_not_repeat_a_hint_whose_answer_was_not_written(
    heard: ReplyKind,
) -> None:
    """The operator was killed between the answer and its write."""
    found = delivery.initial_state(HINTED)
    assert found is DeliveryState.INHERITED
    assert delivery.next_state(found, heard) not in (DeliveryState.UNSENT, DeliveryState.LOST)

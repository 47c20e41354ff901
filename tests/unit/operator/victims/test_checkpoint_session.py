"""How often a workload whose answers cannot be read has an Event for that."""

from dataclasses import dataclass, field
from typing import cast

import pytest

from reprieve_operator.checkpointing.client import CheckpointClient
from reprieve_operator.checkpointing.endpoints import HttpEndpoint
from reprieve_operator.checkpointing.poller import CheckpointPoller
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.checkpoint_session import CheckpointSession
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.lifecycle import machine
from reprieve_testing.objects.builders import after, an_eviction

POLL_SECONDS = 5.0
POD = VictimPod(metadata=VersionedMeta(namespace="team", name="train", uid="uid"))
STATE = an_eviction().build()


@dataclass
class UnreadableWorkload:
    """The poller and the recorder of a workload whose answers cannot be read, and the time."""

    answer_error: str = ""
    undeliverable_reason: str = ""
    answer: None = None
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def event(self, regarding: object, reason: str, note: str) -> None:
        assert (regarding, reason) != (None, "")
        self.notes.append(note)

    def poll(self, session: CheckpointSession, *errors: str) -> int:
        """Poll once for each error; return how many Events there are so far."""
        for error in errors:
            self.answer_error = error
            assert session.current_answer(POD, STATE) is None
            self.seconds += POLL_SECONDS
        return len(self.notes)

    def session(self) -> CheckpointSession:
        return CheckpointSession(
            cast("CheckpointPoller", self),
            cast("CheckpointClient", None),
            cast("PolicySource", None),
            cast("NamespacePolicies", None),
            cast("EventRecorder", self),
            settings=cast("OperatorSettings", None),
            clock=Clock(monotonic=lambda: self.seconds),
            refusal_of=lambda _: None,
            gang_size=lambda: 0,
        )


def test_two_unreadable_answers_in_turn_have_one_event_a_minute() -> None:
    workload = UnreadableWorkload()
    session = workload.session()
    assert workload.poll(session, *["state", "step"] * 6) == 1
    assert workload.poll(session, *["state", "step"] * 6) == 2
    assert workload.notes[0].endswith(": state")
    assert workload.notes[1].endswith(": step")


def test_an_error_that_lasts_has_one_event() -> None:
    workload = UnreadableWorkload()
    assert workload.poll(workload.session(), *["state"] * 30) == 1


@pytest.mark.parametrize(
    ("answer", "is_polled"),
    [
        (None, True),
        (AnswerState.ACCEPTED, True),
        (AnswerState.SAVING, True),
        (AnswerState.SAVED, False),
        (AnswerState.DEFER, False),
        (AnswerState.CANNOT, False),
    ],
)
def test_at_the_deadline_a_workload_that_said_that_it_saves_is_polled_once_more(
    monkeypatch: pytest.MonkeyPatch, answer: AnswerState | None, *, is_polled: bool
) -> None:
    """Its answer is kept while the write about it is put off, and it may have saved since."""

    class AtDeadline(UnreadableWorkload):
        is_calling = False

        def is_final_poll_due(self, *_: object) -> bool:
            return True

    session = AtDeadline().session()
    endpoint = HttpEndpoint("http://10.0.0.1:8080/")
    monkeypatch.setattr(session, "endpoint", lambda _: endpoint)
    monkeypatch.setattr(session, "_clock", Clock(now=lambda: after(30)))
    state = an_eviction().hinted(deadline=after(30)).build()
    said = None if answer is None else CheckpointAnswer(state=answer)
    seen = machine.ObservedVictim(is_marked=True, answer=said)
    assert session.needs_final_poll(POD, state, seen) is is_polled

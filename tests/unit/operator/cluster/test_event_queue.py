"""Which Events are written as they are, and which are put together in a burst."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import bursts, event_queue
from reprieve_operator.cluster.bursts import Bursts
from reprieve_operator.cluster.event_queue import HOLD_SECONDS, EventQueue
from reprieve_operator.cluster.events import ObjectReference, QueuedEvent

START = datetime(2026, 11, 26, 12, tzinfo=UTC)
JOB = ObjectReference("Job", "team", "train", "uid-of-job", "batch/v1")
LIFE = ("CheckpointRequested", "CheckpointAcknowledged", "CheckpointSaved", "SoftEvictionDeleting")


def a_pod(number: int, controller: ObjectReference | None = None) -> ObjectReference:
    return ObjectReference("Pod", "team", f"pod-{number}", f"uid-{number}", controller=controller)


@dataclass
class Queued:
    """A queue, and the time."""

    seconds: float = 100.0
    queue: EventQueue = field(init=False)
    dropped: int = 0

    def __post_init__(self) -> None:
        self.queue = EventQueue(Bursts(Clock(monotonic=lambda: self.seconds)), self._on_drop)

    def _on_drop(self) -> None:
        self.dropped += 1

    def add(
        self, about: ObjectReference, reason: str, note: str = "", *, once: bool = False
    ) -> None:
        at = START + timedelta(seconds=self.seconds - 100.0)
        self.queue.add(
            QueuedEvent(about, reason, note or f"note of {reason}", at, once), self.seconds
        )

    def due(self) -> list[QueuedEvent]:
        """Take all that is due now."""
        return list(self._pop())

    def _pop(self) -> Iterator[QueuedEvent]:
        while (event := self.queue.pop(self.seconds)) is not None:
            yield event

    def begin_burst(self, controller: ObjectReference | None = None) -> None:
        """Have so many victims that the next one is part of a burst; their Events are taken."""
        for number in range(bursts.MANY):
            self.add(a_pod(1000 + number, controller), LIFE[0])
        assert len(self.due()) == bursts.MANY


@pytest.fixture
def queued() -> Queued:
    return Queued()


def test_up_to_ten_victims_have_an_event_for_each_step(queued: Queued) -> None:
    for reason in LIFE:
        for number in range(bursts.MANY):
            queued.add(a_pod(number), reason)
    written = queued.due()
    assert len(written) == len(LIFE) * bursts.MANY
    assert {event.reason for event in written} == set(LIFE)
    assert all((event.earlier, event.count) == ((), 1) for event in written)


def test_in_a_burst_a_pod_has_one_event_that_quotes_its_earlier_steps(queued: Queued) -> None:
    queued.begin_burst()
    for reason in LIFE:
        queued.add(a_pod(1), reason)
        queued.seconds += 1.0
    assert queued.due() == []
    queued.seconds = 100.0 + HOLD_SECONDS
    (event, *_) = queued.due()
    assert (event.regarding.name, event.reason) == ("pod-1", "SoftEvictionDeleting")
    assert event.event_time == START + timedelta(seconds=3), "the time of the last step"
    assert [reason for reason, _ in event.earlier] == [*reversed(LIFE[:-1])]


def test_an_event_waits_no_longer_if_the_pod_has_others(queued: Queued) -> None:
    queued.begin_burst()
    queued.add(a_pod(1), LIFE[0])
    queued.seconds += HOLD_SECONDS - 1
    queued.add(a_pod(1), LIFE[1])
    queued.seconds += 1
    assert queued.due()[0].reason == LIFE[1]


@pytest.mark.parametrize(
    ("controller", "about"),
    [(JOB, JOB), (None, ObjectReference.for_namespace("team"))],
    ids=["the controller", "the Namespace, of pods without one"],
)
def test_reasons_without_an_event_of_their_own_are_counted_on(
    queued: Queued, controller: ObjectReference | None, about: ObjectReference
) -> None:
    queued.begin_burst(controller)
    for number in range(30):
        for reason in LIFE:
            queued.add(a_pod(number, controller), reason)
    queued.seconds += HOLD_SECONDS
    written = queued.due()
    counted = {event.reason: event for event in written if event.regarding == about}
    assert {reason: event.count for reason, event in counted.items()} == dict.fromkeys(
        LIFE[:-1], 30
    )
    assert counted[LIFE[1]].note == f"pod pod-29: note of {LIFE[1]}", "the last one's"
    assert len(written) == 30 + len(LIFE) - 1


def test_alike_events_of_one_object_become_a_series_after_ten(queued: Queued) -> None:
    for number in range(40):
        queued.add(JOB, "PodPreempted", f"pod-{number} was preempted")
        queued.seconds += 0.1
    assert len(queued.due()) == bursts.MANY
    queued.seconds += HOLD_SECONDS
    (event,) = queued.due()
    assert (event.count, event.note) == (30, "pod-39 was preempted")
    assert event.first_time is not None
    assert timedelta(seconds=2.8) < event.event_time - event.first_time < timedelta(seconds=3)


def test_a_warning_about_a_pod_does_not_wait_and_takes_the_steps_before_it_along(
    queued: Queued,
) -> None:
    queued.begin_burst()
    queued.add(a_pod(1), "CheckpointRequested")
    queued.add(a_pod(1), "CheckpointUnanswered")
    (event,) = queued.due()
    assert event.reason == "CheckpointUnanswered"
    assert event.earlier == (("CheckpointRequested", "note of CheckpointRequested"),)


def test_events_that_are_written_once_are_written_as_they_are(queued: Queued) -> None:
    queued.begin_burst()
    queued.add(a_pod(1), "CheckpointRequested")
    queued.add(a_pod(1), "PreemptionRefused", once=True)
    assert [(event.reason, event.earlier) for event in queued.due()] == [("PreemptionRefused", ())]


def test_a_burst_is_over_after_a_minute(queued: Queued) -> None:
    queued.begin_burst()
    queued.seconds += bursts.WINDOW_SECONDS + 1
    queued.add(a_pod(1), "CheckpointSaved")
    assert [event.reason for event in queued.due()] == ["CheckpointSaved"]


def test_another_namespace_has_no_burst(queued: Queued) -> None:
    queued.begin_burst()
    queued.add(ObjectReference("Pod", "other", "pod", "uid"), "CheckpointSaved")
    assert [event.reason for event in queued.due()] == ["CheckpointSaved"]


def test_what_is_said_of_one_namespace_is_not_counted_with_another(queued: Queued) -> None:
    for number in range(2 * bursts.MANY):
        queued.add(ObjectReference.for_namespace(f"team-{number % 2}"), LIFE[0], f"{number}")
    assert len(queued.due()) == 2 * bursts.MANY


def test_an_event_that_only_replaces_one_that_waits_needs_no_room(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued.begin_burst()
    queued.add(a_pod(1), LIFE[0])
    monkeypatch.setattr(event_queue, "QUEUE_SIZE_FOR_NORMAL", 2)
    queued.add(a_pod(1), LIFE[1])
    queued.add(a_pod(2), LIFE[0])
    assert queued.dropped == 2, "the count of the first reason, and the other pod's Event"
    assert queued.queue.take_dropped() == {}, "an Event of the Namespace waits"
    queued.seconds += HOLD_SECONDS
    assert [event.reason for event in queued.due()] == [LIFE[1]]
    assert queued.queue.take_dropped() == {("team", LIFE[0]): 2}


def test_a_namespace_has_no_more_events_in_the_queue_than_it_leaves_room_for(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_queue, "QUEUE_SIZE", 16)
    for name in ("a", "b", "c", "late"):
        for number in range(20):
            about = ObjectReference("Pod", name, f"pod-{number}", f"uid-{name}-{number}")
            queued.add(about, "CheckpointUnanswered")
    assert Counter(event.namespace for event in queued.due()) == {"a": 8, "b": 4, "c": 2, "late": 1}
    assert len(queued.queue) == 0


def test_what_was_dropped_is_not_told_while_that_would_be_dropped_as_well(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_queue, "QUEUE_SIZE_FOR_NORMAL", 2)
    for name in ("a", "b", "c"):
        queued.add(ObjectReference("Pod", name, "train", f"uid-{name}"), LIFE[0])
    assert queued.queue.take_dropped() == {}
    queued.queue.pop(queued.seconds)
    assert queued.queue.take_dropped() == {("c", LIFE[0]): 1}


def test_namespaces_take_turns_and_those_that_are_busy_are_left_out(queued: Queued) -> None:
    for number, name in enumerate(("a", "a", "a", "b", "b", "busy", "c")):
        about = ObjectReference("Pod", name, f"pod-{number}", f"uid-{number}")
        queued.add(about, "CheckpointUnanswered")
    popped = [queued.queue.pop(queued.seconds, {"busy"}) for _ in range(7)]
    assert [event and event.namespace for event in popped] == ["a", "b", "c", "a", "b", "a", None]
    assert [event.namespace for event in queued.due()] == ["busy"]

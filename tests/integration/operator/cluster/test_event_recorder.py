"""Events wait for all other calls, and are bounded: dropped ones are summarised, warnings last."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_queue, event_recorder
from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.metrics import OperatorMetrics
from reprieve_runtime.client.api import Api
from reprieve_runtime.waiting import end_tasks

DEADLINE_SECONDS = 60.0


@dataclass
class Written:
    """Accepts Events as the API server does."""

    documents: list[Any] = field(default_factory=list)

    async def post(self, path: str, document: Any, decode_as: type[Any], **_: str) -> Any:  # noqa: ARG002 - the subclass reads it
        self.documents.append(document)
        return decode_as()

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(document["reason"], document["note"]) for document in self.documents]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.documents) < count:  # noqa: ASYNC110 - what is waited for is a list
                await asyncio.sleep(0.005)


@dataclass
class PartlyHanging(Written):
    """Answers no write in one of the namespaces `slow-…` until the test lets them go on."""

    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)
    hanging: int = 0
    seconds: float = 0.0
    """How long each of them takes, by the clock `now`."""
    now: float = 0.0

    async def post(self, path: str, document: Any, decode_as: type[Any], **options: str) -> Any:
        if "/slow-" in path:
            self.hanging += 1
            await self.may_go_on.wait()
            self.now += self.seconds
        return await super().post(path, document, decode_as, **options)


def pod(name: str, namespace: str = "team") -> ObjectReference:
    return ObjectReference("Pod", namespace, name, f"uid-{name}")


def a_recorder(
    written: Written, slots: CallLimiter | None = None, clock: Clock | None = None
) -> tuple[EventRecorder, OperatorMetrics]:
    metrics = OperatorMetrics()
    return EventRecorder(
        cast("Api", written), slots or CallLimiter(1), "holder", metrics, clock or Clock()
    ), metrics


async def test_dropped_events_are_summarised_and_warnings_are_dropped_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_queue, "QUEUE_SIZE", 6)
    monkeypatch.setattr(event_queue, "QUEUE_SIZE_FOR_NORMAL", 4)
    written = Written()
    told, metrics = a_recorder(written)
    for number in range(4):
        told.event(pod(str(number)), "CheckpointRequested", f"asked {number}")
    told.event(pod("4"), "CheckpointUnanswered", "unanswered")
    told.event(pod("5"), "CheckpointUnanswered", "unanswered too")
    running = asyncio.create_task(told.run())
    await written.until(5)
    running.cancel()

    assert written.told == [
        ("CheckpointRequested", "asked 0"),
        ("CheckpointRequested", "asked 1"),
        ("CheckpointUnanswered", "unanswered"),
        ("CheckpointRequested", "Events like this that were dropped because too many waited: 2"),
        ("CheckpointUnanswered", "Events like this that were dropped because too many waited: 1"),
    ]
    assert written.documents[3]["regarding"] == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "namespace": "team",
        "name": "team",
    }
    assert metrics.registry.get_sample_value("reprieve_events_dropped_total") == 3


async def test_each_event_is_told_to_a_listener_also_one_that_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_queue, "QUEUE_SIZE_FOR_NORMAL", 2)
    recorder, _ = a_recorder(Written())
    told: list[tuple[str, str]] = []
    recorder.on_event = lambda regarding, reason, _: told.append((regarding.name, reason))
    for name in ("first", "dropped"):
        recorder.event(pod(name), "CheckpointRequested", "asked")
    assert told == [("first", "CheckpointRequested"), ("dropped", "CheckpointRequested")]


async def test_an_event_about_a_node_is_written_where_the_kubelet_writes_them() -> None:
    written = Written()
    told, _ = a_recorder(written)
    told.event(ObjectReference("Node", "", "n", "uid-of-n"), "LentNodeReclaimed", "wanted back")
    running = asyncio.create_task(told.run())
    await written.until(1)
    running.cancel()

    (document,) = written.documents
    assert document["metadata"]["namespace"] == "default"
    assert document["regarding"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n",
        "uid": "uid-of-n",
    }


async def test_the_rate_of_events_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_recorder, "_EVENTS_PER_SECOND", 20)
    written = Written()
    told, _ = a_recorder(written)
    for number in range(5):
        told.event(pod(str(number)), "CheckpointRequested", f"asked {number}")
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    running = asyncio.create_task(told.run())
    await written.until(5)
    running.cancel()

    seconds = loop.time() - began_at
    assert seconds > 4 * 0.049, "four twentieths of a second, less what the clock rounds"


async def test_an_event_waits_for_calls_about_victims_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_recorder, "_LIMITER_WAIT_SECONDS", 0.05)
    written, slots = Written(), CallLimiter(1)
    told, _ = a_recorder(written, slots)
    async with slots.acquire(CallPriority.NOTIFY, "team"):
        told.event(pod("a"), "CheckpointRequested", "asked")
        running = asyncio.create_task(told.run())
        await written.until(1)
    running.cancel()

    assert written.told == [("CheckpointRequested", "asked")]


async def test_events_that_wait_for_calls_about_victims_at_the_end_of_a_term_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_recorder, "_LIMITER_WAIT_SECONDS", DEADLINE_SECONDS)
    written, slots = Written(), CallLimiter(1)
    recorder, _ = a_recorder(written, slots)
    async with slots.acquire(CallPriority.NOTIFY, "team"):
        for namespace in ("team", "other"):
            recorder.event(pod("a", namespace), "CheckpointRequested", f"asked in {namespace}")
        running = asyncio.create_task(recorder.run())
        async with asyncio.timeout(DEADLINE_SECONDS):
            while recorder._queue:  # noqa: ASYNC110 - what is waited for is a queue
                await asyncio.sleep(0)
        await end_tasks([running])
        await recorder.drain(DEADLINE_SECONDS)
    assert sorted(note for _, note in written.told) == ["asked in other", "asked in team"]


async def test_in_a_burst_one_event_quotes_the_steps_before_and_a_series_counts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_queue, "HOLD_SECONDS", 0.2)
    monkeypatch.setattr(event_recorder, "_EVENTS_PER_SECOND", 10_000)
    written = Written()
    recorder, metrics = a_recorder(written)
    for number in range(13):
        recorder.event(pod(str(number)), "CheckpointRequested", f"asked {number}")
    assert recorder.is_burst("team")
    for number in range(10, 13):
        recorder.event(pod(str(number)), "CheckpointSaved", f"saved {number}")
    running = asyncio.create_task(recorder.run())
    await written.until(14)
    running.cancel()

    *_, of_pod, series = sorted(
        written.documents,
        key=lambda document: (document["regarding"]["kind"] != "Pod", document["note"]),
    )
    assert of_pod["reason"] == "CheckpointSaved"
    assert of_pod["note"] == "saved 12 (before that: CheckpointRequested: asked 12)"
    assert "series" not in of_pod
    assert series["reason"] == "CheckpointRequested"
    assert series["regarding"]["kind"] == "Namespace"
    assert series["note"] == "(combined from similar events): pod 12: asked 12"
    assert series["series"]["count"] == 3
    assert series["eventTime"] <= series["series"]["lastObservedTime"]
    assert metrics.registry.get_sample_value("reprieve_events_dropped_total") == 0


async def test_a_waiting_event_is_written_when_the_term_ends() -> None:
    written = Written()
    recorder, _ = a_recorder(written)
    for number in range(12):
        recorder.event(pod(str(number)), "CheckpointRequested", f"asked {number}")
    await recorder.drain(DEADLINE_SECONDS)
    assert len(written.documents) == 12


@pytest.mark.parametrize("is_drain", [False, True], ids=["in the term", "at its end"])
async def test_a_namespace_whose_events_get_no_answer_does_not_hold_up_those_of_others(
    *, is_drain: bool
) -> None:
    written, slots = PartlyHanging(), CallLimiter(64, keeps_share_free=True)
    recorder, _ = a_recorder(written, slots)
    for number in range(30):
        recorder.event(pod(f"a-{number}", "slow-a"), "CheckpointUnanswered", "slow")
        recorder.event(pod(f"b-{number}", "slow-b"), "CheckpointUnanswered", "slow")
    recorder.event(pod("train", "other"), "CheckpointUnanswered", "unanswered")
    running = asyncio.create_task(recorder.drain(DEADLINE_SECONDS) if is_drain else recorder.run())
    await written.until(1)
    assert written.told == [("CheckpointUnanswered", "unanswered")]
    assert written.hanging == 2, "one write of each namespace"
    held = [slots.count(name) for name in ("slow-a", "slow-b")]
    assert held == [0, 0], "they take from no share of calls about victims"
    written.may_go_on.set()
    await written.until(61)
    running.cancel()


async def test_a_namespace_rests_after_a_write_that_took_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without this, as many that hang as there are writes at a time would hold up all others."""
    monkeypatch.setattr(event_recorder, "_MAX_WRITES", 1)
    monkeypatch.setattr(event_recorder, "rest_seconds", lambda _: 3600.0)
    written = PartlyHanging(seconds=10.0)
    written.may_go_on.set()
    recorder, _ = a_recorder(written, clock=Clock(monotonic=lambda: written.now))
    for number in range(5):
        recorder.event(pod(f"a-{number}", "slow-a"), "CheckpointUnanswered", "slow")
        recorder.event(pod(f"train-{number}", "other"), "CheckpointUnanswered", "unanswered")
    running = asyncio.create_task(recorder.run())
    await written.until(6)
    running.cancel()
    assert [note for _, note in written.told] == ["slow", *["unanswered"] * 5]


@pytest.mark.parametrize("end", ["-", ".", "-.-"])
async def test_an_event_of_a_pod_with_a_long_name_has_a_name_that_the_api_server_takes(
    end: str,
) -> None:
    """Without this, all Events of a pod that a tenant names so would be lost."""
    written = Written()
    recorder, _ = a_recorder(written)
    start = "a" * (200 - len(end))
    recorder.event(pod(f"{start}{end}b"), "CheckpointRequested", "asked")
    await recorder.drain(DEADLINE_SECONDS)
    assert written.documents[0]["metadata"]["name"].rpartition(".")[0] == start

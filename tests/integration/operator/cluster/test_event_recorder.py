"""Events are told last and never for ever: too many of them are told of together, and what went wrong is told for longer."""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_recorder
from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.metrics import OperatorMetrics
from reprieve_runtime.client.api import Api

DEADLINE_SECONDS = 60.0


@dataclass
class Written:
    """Takes Events as the API server would."""

    documents: list[Any] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    """When, by the loop's clock."""

    async def post(self, _: str, document: Any, decode_as: type[Any]) -> Any:
        self.documents.append(document)
        self.at.append(asyncio.get_running_loop().time())
        return decode_as()

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(document["reason"], document["note"]) for document in self.documents]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.documents) < count:  # noqa: ASYNC110 - what is waited for is a list
                await asyncio.sleep(0.005)


def pod(name: str) -> ObjectReference:
    return ObjectReference("Pod", "team", name, f"uid-{name}")


def announcer(
    written: Written, slots: CallLimiter | None = None
) -> tuple[EventRecorder, OperatorMetrics]:
    metrics = OperatorMetrics()
    return EventRecorder(
        cast("Api", written), slots or CallLimiter(1), "holder", metrics, Clock()
    ), metrics


async def test_what_is_too_much_is_told_of_together_and_what_went_wrong_has_room_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_recorder, "_QUEUE_SIZE", 3)
    monkeypatch.setattr(event_recorder, "_QUEUE_SIZE_FOR_NORMAL", 2)
    written = Written()
    told, metrics = announcer(written)
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
        ("CheckpointRequested", "and 2 more like this, too many for an Event each"),
        ("CheckpointUnanswered", "and 1 more like this, too many for an Event each"),
    ]
    assert written.documents[3]["regarding"] == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "namespace": "team",
        "name": "team",
    }
    assert metrics.registry.get_sample_value("reprieve_events_dropped_total") == 3


async def test_no_more_are_written_in_a_second_than_the_api_server_is_to_bear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_recorder, "_EVENTS_PER_SECOND", 20)
    written = Written()
    told, _ = announcer(written)
    for number in range(5):
        told.event(pod(str(number)), "CheckpointRequested", f"asked {number}")
    running = asyncio.create_task(told.run())
    await written.until(5)
    running.cancel()

    pauses = [later - earlier for earlier, later in pairwise(written.at)]
    assert min(pauses) > 0.049, "a twentieth of a second, less what the clock rounds"


async def test_an_event_waits_for_calls_about_victims_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_recorder, "_LIMITER_WAIT_SECONDS", 0.05)
    written, slots = Written(), CallLimiter(1)
    told, _ = announcer(written, slots)
    async with slots.acquire(CallPriority.NOTIFY, "team"):
        told.event(pod("a"), "CheckpointRequested", "asked")
        running = asyncio.create_task(told.run())
        await written.until(1)
    running.cancel()

    assert written.told == [("CheckpointRequested", "asked")]

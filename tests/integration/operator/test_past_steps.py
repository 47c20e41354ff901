"""The steps of earlier leaders, read from Events: which count, how many, and without the right."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reprieve_operator import past_steps
from reprieve_operator.clock import Clock
from reprieve_operator.history import History, PastSteps
from reprieve_operator.past_steps import read_past_steps
from reprieve_policy.kube.values import timestamp
from reprieve_testing.objects.builders import NOW
from reprieve_testing.servers.stub_api import stub_api

EVENTS = "/apis/events.k8s.io/v1/events"
A_POD = {"kind": "Pod", "namespace": "team", "name": "other"}


def an_event(reason: str, seconds_ago: float, name: str = "p", **changes: Any) -> dict[str, Any]:
    namespace = changes.pop("namespace", "team")
    pod = {"kind": "Pod", "namespace": namespace, "name": name, "uid": f"uid-{name}"}
    return {
        "metadata": {"namespace": namespace, "name": f"{name}.{reason}"},
        "regarding": pod,
        "reason": reason,
        "note": "as it was written",
        "eventTime": timestamp.render_micro(NOW - timedelta(seconds=seconds_ago)),
    } | changes


async def read(directory: Path, *events: dict[str, Any], is_barred: bool = False) -> History:
    """Return the history of a leader that finds these Events."""
    history = History(Clock(now=lambda: NOW))
    async with stub_api(directory) as (stub, api):
        stub.collections[EVENTS] = {str(number): each for number, each in enumerate(events)}
        stub.barred = {EVENTS} if is_barred else set()
        stub.lists_released.set()
        history.add_step("team", "p", "uid-p", "CheckpointSaved", "seen by this leader")
        await read_past_steps(api, history)
    return history


async def test_earlier_steps_come_before_those_of_this_leader(tmp_path: Path) -> None:
    history = await read(
        tmp_path,
        an_event("CheckpointAcknowledged", 5),
        an_event("CheckpointRequested", 9),
        an_event("SoftEvictionCompleted", 60, "over"),
    )
    assert [(step.reason, step.is_from_event) for step in history.steps_of("uid-p")] == [
        ("CheckpointRequested", True),
        ("CheckpointAcknowledged", True),
        ("CheckpointSaved", False),
    ]
    assert [each.name for each in history.newest_first()] == ["p", "over"]
    assert (history.past, history.steps_since()) == (PastSteps.READ, NOW - timedelta(seconds=60))
    assert history.totals() == []


async def test_an_event_that_cannot_be_a_step_of_a_victim_is_left_out(tmp_path: Path) -> None:
    history = await read(
        tmp_path,
        an_event("GangDiverges", 5, "other"),
        an_event("Scheduled", 5, "other"),
        an_event("CheckpointRequested", 5, "other", eventTime=None),
        an_event("CheckpointRequested", 5, "other", metadata={"namespace": "elsewhere"}),
        an_event("CheckpointRequested", 5, "other", regarding={"kind": "Pod", "name": "other"}),
        an_event("CheckpointRequested", 5, "x" * 10_000),
        an_event("CheckpointRequested", 5, "other", regarding=A_POD | {"uid": "x" * 10_000}),
        # This leader has written it, and knows it.
        an_event("CheckpointRequested", -1, "p"),
    )
    assert [each.name for each in history.newest_first()] == ["p"]
    assert len(history.steps_of("uid-p")) == 1


async def test_the_events_of_a_large_page_are_read(tmp_path: Path) -> None:
    events = [an_event("CheckpointRequested", 5, f"p-{n}", padding="x" * 500_000) for n in range(3)]
    history = await read(tmp_path, *events)
    assert {each.name for each in history.newest_first()} == {"p", "p-0", "p-1", "p-2"}


async def test_without_the_right_steps_are_known_since_the_term_began(tmp_path: Path) -> None:
    history = await read(tmp_path, an_event("CheckpointRequested", 9), is_barred=True)
    assert (history.past, history.steps_since()) == (PastSteps.FORBIDDEN, NOW)


async def test_a_list_that_fails_is_not_repeated(tmp_path: Path) -> None:
    history = History(Clock(now=lambda: NOW))
    async with stub_api(tmp_path) as (stub, api):
        stub.is_failing = True
        await read_past_steps(api, history)
        assert stub.calls[EVENTS] == 1
    assert (history.past, history.steps_since()) == (PastSteps.PARTLY, NOW)


async def test_what_is_read_is_bounded_and_no_namespace_takes_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_steps, "_MAX_EVENTS", 4)
    monkeypatch.setattr(past_steps, "_MAX_OF_NAMESPACE", 2)
    written = [
        an_event("CheckpointRequested", age, f"p{age}", namespace="loud") for age in (1, 2, 3)
    ]
    history = await read(tmp_path, *written, an_event("CheckpointRequested", 9, "quiet"))
    assert [each.name for each in history.newest_first()] == ["p", "p1", "p2", "quiet"]
    assert history.past is PastSteps.PARTLY

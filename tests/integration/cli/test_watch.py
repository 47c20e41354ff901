"""The steps and the totals of `reprieve watch`, from a stub API server."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.cluster import steps, victims
from reprieve_cli.cluster.connection import ClusterTarget
from reprieve_cli.cluster.totals import WorkTimes
from reprieve_cli.commands import watch
from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Phase
from reprieve_runtime.client.api import Api, ApiError
from reprieve_testing.objects.builders import NOW, after, an_eviction
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

PODS, TEAM = "/api/v1/pods", "/api/v1/namespaces/team/pods"
EVENTS = "/apis/events.k8s.io/v1/events"
EVERYWHERE = ClusterTarget(kubeconfig=None, context=None, namespace=None)


@pytest.fixture(autouse=True)
def short_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (victims, steps):
        monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[StubApi, Api]]:
    async with stub_api(tmp_path) as (stub, api):
        stub.lists_released.set()
        stub.collections[EVENTS] = {}
        stub.collections[PODS] = {"p": a_victim()}
        stub.collections[TEAM] = stub.collections[PODS]
        yield stub, api


def a_victim(**annotations: str) -> Any:
    metadata = {
        "namespace": "team",
        "name": "p",
        "uid": "uid-p",
        "labels": {keys.SOFT_EVICTION: "hinted"},
        "annotations": annotations,
    }
    started_at = timestamp.render(NOW - timedelta(hours=3))
    return {"metadata": metadata, "status": {"startTime": started_at}}


def an_event(name: str, reason: str, seconds: float, pod: str = "p") -> Any:
    return {
        "metadata": {"namespace": "team", "name": name, "uid": name},
        "regarding": {"kind": "Pod", "namespace": "team", "name": pod, "uid": f"uid-{pod}"},
        "reason": reason,
        "note": "as it was",
        "eventTime": timestamp.render_micro(after(seconds)),
    }


async def test_once_shows_each_victim_with_its_steps_in_their_order(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[EVENTS] = {
        "2": an_event("2", "CheckpointAcknowledged", 5),
        "1": an_event("1", "CheckpointRequested", 1),
        "3": an_event("3", "CheckpointRequested", 1, pod="gone"),
    }
    await watch._print_current(api, target=EVERYWHERE, form=watch.TEXT, with_steps=True)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.endswith("team/p  hinted")
    assert [line.split("  ", 2)[-1].split(": ")[0] for line in lines] == [
        "CheckpointRequested",
        "CheckpointAcknowledged",
    ]
    assert lines[1].strip().split("  ")[0].endswith("(after 0m04s)")


async def test_steps_are_printed_once_as_they_are_made(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[EVENTS] = {
        "1": an_event("1", "CheckpointRequested", 1),
        "other": an_event("other", "CheckpointRequested", 1, pod="gone"),
    }
    seen: list[str] = []

    def has_printed(*reasons: str) -> bool:
        seen.extend(capsys.readouterr().out.splitlines())
        return [line.split("  ")[2] for line in seen] == list(reasons)

    printing = asyncio.create_task(
        watch._print_changes(api, target=EVERYWHERE, form=watch.TEXT, with_steps=True)
    )
    try:
        await until(lambda: has_printed("CheckpointRequested", "hinted"))
        await until(lambda: stub.open_watches == 2)
        made = stub.collections[EVENTS]["2"] = an_event("2", "CheckpointSaved", 9)
        stub.send("ADDED", made, EVENTS)
        await until(lambda: has_printed("CheckpointRequested", "hinted", "CheckpointSaved"))
        # While the watch was away, one was made, and none is repeated.
        stub.collections[EVENTS]["3"] = an_event("3", "SoftEvictionDeleting", 10)
        stub.end_watches()
        await until(
            lambda: has_printed(
                "CheckpointRequested", "hinted", "CheckpointSaved", "SoftEvictionDeleting"
            )
        )
    finally:
        printing.cancel()


async def test_without_the_right_to_read_events_it_fails_and_says_so(
    served: tuple[StubApi, Api],
) -> None:
    stub, api = served
    stub.barred.add(EVENTS)
    for work in (watch._print_current, watch._print_changes):
        with pytest.raises(ApiError):
            await work(api, target=EVERYWHERE, form=watch.TEXT, with_steps=True)
    # Without --steps, the right is not needed.
    await watch._print_current(api, target=EVERYWHERE, form=watch.TEXT, with_steps=False)


@pytest.mark.parametrize(
    ("saved_at", "hours"),
    [(None, 3.0), (after(-3600), 1.0), (after(600), 3.0)],
    ids=["never saved", "saved before", "saved by this eviction"],
)
async def test_the_work_of_a_victim_began_at_its_start_or_its_last_save(
    served: tuple[StubApi, Api], saved_at: Any, hours: float
) -> None:
    stub, api = served
    saved = {} if saved_at is None else {keys.LAST_CHECKPOINT_AT: timestamp.render(saved_at)}
    stub.collections[PODS]["p"] = a_victim(**saved)
    status = victims.VictimStatus(
        namespace="team",
        name="p",
        uid="uid-p",
        phase="hinted",
        preemption_class="",
        state=an_eviction().build(),
    )
    times = WorkTimes(api)
    times.see(status)
    await until(lambda: "uid-p" in times.since)
    assert (NOW - times.since["uid-p"]).total_seconds() == hours * 3600
    times.see(status)
    assert stub.calls[f"{TEAM}/p"] == 1
    times.see(replace(status, phase="gone"))
    assert not times.since
    times.close()


async def test_the_totals_are_printed_at_the_end(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    state = an_eviction().ended(CheckpointOutcome.SAVED).build()
    stub.collections[PODS]["p"] = a_victim(**{keys.EVICTION: eviction.render(state)})
    printing = asyncio.create_task(
        watch._print_changes(api, target=EVERYWHERE, form=watch.TEXT, with_steps=False)
    )
    await until(lambda: stub.open_watches == 1 and stub.calls[f"{TEAM}/p"] == 1)
    gone = stub.collections[PODS].pop("p")
    stub.send("DELETED", gone)
    await until(lambda: stub.calls[f"{TEAM}/p"] == 2)
    await until(lambda: Phase.GONE in capsys.readouterr().out)
    printing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await printing
    assert "1 ended, 1 saved" in capsys.readouterr().err

"""A pod that the extender never offers to a scheduler: its first refusal is recorded too.

Without this, its owner would hold a preemptor for as long as decoy Jobs keep coming.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.cost import WorkProgress
from reprieve_policy.preemption.selection.snapshot import GangKey, Release, ScheduledPod
from reprieve_testing.objects.cluster_views import (
    NOW,
    FixedClusterView,
    a_preemptor,
    a_scheduled_pod,
    an_extender_call,
)
from reprieve_testing.servers.stub_api import DEADLINE_SECONDS, StubApi, stub_api, until
from reprieve_webhooks.extender import service
from reprieve_webhooks.extender.metrics import CallOutcome, ExtenderMetrics
from reprieve_webhooks.extender.service import Extender, ExtenderResponse
from reprieve_webhooks.snapshot.recent_choices import RecentVictimSets
from reprieve_webhooks.snapshot.refusal_recorder import RefusalRecorder

CEILING = timedelta(seconds=PolicySettings().ceiling_seconds)


def nearly_complete(uid: str, node: str = "one", **fields: Any) -> ScheduledPod:
    progress = WorkProgress(started_at=NOW, walltime=Walltime(NOW - timedelta(seconds=59), 60))
    return a_scheduled_pod(uid, node, progress=progress, namespace="team-a", **fields)


class Called:
    """An extender whose records of refusals go to a stub API server."""

    def __init__(self, stub: StubApi, extender: Extender, view: FixedClusterView) -> None:
        self.stub, self.extender, self.view = stub, extender, view

    async def call(self, **proposed: Iterable[str]) -> CallOutcome:
        async def read() -> bytes:
            return an_extender_call(proposed)

        response = await self.extender.answer(read)
        assert isinstance(response, ExtenderResponse)
        return response.outcome

    async def searched(self) -> None:
        """Wait until no search for refused pods is under way."""
        await until(lambda: not self.extender._recordings)

    def recorded(self) -> list[str]:
        return [
            path.rpartition("/")[2]
            for path, patch in self.stub.patches
            if patch["metadata"].keys() == {"uid", "annotations"}
            and patch["metadata"]["annotations"].keys() == {keys.REFUSED_SINCE}
        ]


@asynccontextmanager
async def extender(directory: Path, *pods: ScheduledPod) -> AsyncIterator[Called]:
    async with stub_api(directory) as (stub, api):
        view = FixedClusterView(list(pods))
        found = Extender(
            view,
            RecentVictimSets(),
            ExtenderMetrics(CollectorRegistry()),
            timeout_seconds=4.0,
            refusal_recorder=RefusalRecorder(api, timeout_seconds=4.0),
        )
        yield Called(stub, found, view)


async def test_a_refusal_that_leaves_a_preemptor_without_a_node_is_recorded_once(
    tmp_path: Path,
) -> None:
    async with extender(tmp_path, nearly_complete("a")) as called:
        assert await called.call(one="a") is CallOutcome.NOTHING
        await until(lambda: called.recorded() == ["pod-a"])
        # The watch has not shown the record yet.
        assert await called.call(one="a") is CallOutcome.NOTHING
        called.view.scheduled_pods = [nearly_complete("b")]
        await until(lambda: called.recorded() == ["pod-a"])
        assert await called.call(one="b") is CallOutcome.NOTHING
        await until(lambda: called.recorded() == ["pod-a", "pod-b"])


async def test_after_the_ceiling_the_pod_is_a_victim(tmp_path: Path) -> None:
    refused = nearly_complete("a", refused_since=NOW - CEILING)
    async with extender(tmp_path, refused) as called:
        assert await called.call(one="a") is CallOutcome.CHOSEN
        called.view.scheduled_pods = [replace(refused, refused_since=NOW)]
        assert await called.call(one="a") is CallOutcome.NOTHING
        await called.searched()
        assert called.recorded() == []


async def test_a_gang_that_small_pods_leave_one_after_another_is_a_victim_after_the_ceiling(
    tmp_path: Path,
) -> None:
    of_gang: dict[str, Any] = {"gang": GangKey("team-a", "train"), "gang_minimum": 2}
    large = a_scheduled_pod("large", "one", namespace="team-a", **of_gang)
    decoy = a_scheduled_pod("decoy", "two", cpu=0, **of_gang, release=Release(expected_at=NOW))
    async with extender(tmp_path, large, decoy) as called:
        assert await called.call(one=["large"]) is CallOutcome.NOTHING
        await until(lambda: called.recorded() == ["pod-large"])
        another = replace(decoy, uid="another")
        called.view.scheduled_pods = [replace(large, refused_since=NOW - CEILING), another]
        assert await called.call(one=["large"]) is CallOutcome.CHOSEN
        assert [uids for _, _, uids in called.view.assumed] == [["large"]]


@pytest.mark.parametrize("status", [404, 409, 422, 500])
async def test_a_record_that_fails_does_not_keep_others_from_being_written(
    tmp_path: Path, status: int
) -> None:
    async with extender(tmp_path, nearly_complete("a"), nearly_complete("b", "two")) as called:
        called.stub.refuses = {"/api/v1/namespaces/team-a/pods/pod-a": status}
        assert await called.call(one="a", two="b") is CallOutcome.NOTHING
        await until(lambda: called.recorded() == ["pod-a", "pod-b"])


async def test_nothing_is_recorded_if_another_pod_makes_room(tmp_path: Path) -> None:
    async with extender(tmp_path, nearly_complete("a"), a_scheduled_pod("b", "two")) as called:
        assert await called.call(one="a", two="b") is CallOutcome.CHOSEN
        called.view.preemptors = [a_preemptor(never_preempts=True)]
        assert await called.call(one="a", two="b") is CallOutcome.NOTHING
        await called.searched()
        assert called.recorded() == []


@contextmanager
def endless_search(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no search for refused pods end before the context does."""
    may_end, search = threading.Event(), selection.renewably_refused

    def waiting(*arguments: Any) -> tuple[ScheduledPod, ...]:
        may_end.wait()
        return search(*arguments)

    with monkeypatch.context() as during_it:
        during_it.setattr(selection, "renewably_refused", waiting)
        try:
            yield
        finally:
            may_end.set()


async def test_no_answer_waits_for_the_search_for_refused_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with extender(tmp_path, nearly_complete("a")) as called:
        with endless_search(monkeypatch):
            async with asyncio.timeout(DEADLINE_SECONDS):
                for _ in range(service._MAX_WAITING_RECORDINGS + 2):
                    assert await called.call(one="a") is CallOutcome.NOTHING
            assert called.recorded() == []
            assert len(called.extender._recordings) == service._MAX_WAITING_RECORDINGS
        await until(lambda: called.recorded() == ["pod-a"])
        await called.searched()


async def test_the_search_for_refused_pods_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, searched = [0.0], list[str]()

    def search(_: object, __: object, nodes: Iterable[str], ___: object) -> tuple[()]:
        for node in nodes:
            searched.append(node)
            times.append(4.0)
        return ()

    monkeypatch.setattr(selection, "renewably_refused", search)
    async with extender(tmp_path, nearly_complete("a"), nearly_complete("b", "two")) as called:
        called.extender._monotonic = lambda: times[-1]
        assert await called.call(one="a", two="b") is CallOutcome.NOTHING
        await called.searched()
        assert searched == ["one"]


async def test_a_search_that_fails_does_not_keep_later_refusals_from_being_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with extender(tmp_path, nearly_complete("a")) as called:
        with monkeypatch.context() as during_it:
            during_it.setattr(selection, "renewably_refused", None)
            assert await called.call(one="a") is CallOutcome.NOTHING
            await called.searched()
        assert "search for refused pods failed" in caplog.text
        assert await called.call(one="a") is CallOutcome.NOTHING
        await until(lambda: called.recorded() == ["pod-a"])

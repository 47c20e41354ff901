"""The lists of gangs' members: when one is made again, and what those that hang hold up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.gangs import gang_counts, gate_pods
from reprieve_operator.gangs.gang_counts import GangCounts
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.waiting import end_tasks
from reprieve_testing.objects.builders import NOW


async def test_a_gang_whose_members_cannot_be_listed_is_listed_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without this, it would be listed twenty times a second while an API server restarts."""
    seconds, lists = [0.0], 0

    async def fail(*_: object) -> Any:
        nonlocal lists
        lists += 1
        raise ApiError(503, "ServiceUnavailable", "it restarts")

    monkeypatch.setattr(gate_pods, "list_members", fail)
    clock = Clock(now=lambda: NOW, monotonic=lambda: seconds[0])
    counts = GangCounts(cast("Api", None), clock, recount_seconds=10.0)
    counted = counts.new_gang()
    pod: Any = SimpleNamespace(regarding="team/a", metadata=SimpleNamespace(namespace="team"))
    for _ in range(100):
        counts.begin_pass()
        assert not await counts.count(counted, pod)
    assert (lists, counts.retry_seconds(counted)) == (1, gang_counts.RETRY_SECONDS)
    seconds[0] = gang_counts.RETRY_SECONDS
    counts.begin_pass()
    await counts.count(counted, pod)
    assert lists == 2


DEADLINE_SECONDS = 60.0


def a_pod(namespace: str) -> Any:
    return SimpleNamespace(
        regarding=f"{namespace}/a", metadata=SimpleNamespace(namespace=namespace)
    )


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> GangCounts:
    """Counts of gangs whose lists hang in all Namespaces but `team`."""

    async def hang(_: Api, pod: Any) -> Any:
        if pod.metadata.namespace != "team":
            await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(gate_pods, "list_members", hang)
    clock = Clock(now=lambda: NOW, monotonic=lambda: 0.0)
    counts = GangCounts(cast("Api", None), clock, recount_seconds=10.0)
    counts.begin_pass()
    return counts


async def test_lists_of_some_namespaces_that_hang_hold_up_none_of_another(
    counts: GangCounts,
) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), lists(counts, "a", "b", "c"):
        assert await counts.count(counts.new_gang(), a_pod("team"))


async def test_a_namespace_whose_lists_hang_has_no_more_in_the_next_pass(
    counts: GangCounts,
) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), lists(counts, "a"):
        for _ in range(3):
            counts.begin_pass()
            assert not await counts.count(counts.new_gang(), a_pod("a"))


@asynccontextmanager
async def lists(counts: GangCounts, *namespaces: str) -> AsyncIterator[None]:
    """Have as many lists of these Namespaces under way as one pass allows."""
    tasks = [
        asyncio.create_task(counts.count(counts.new_gang(), a_pod(namespace)))
        for namespace in namespaces
        for _ in range(gang_counts.MAX_COUNTS_PER_NAMESPACE)
    ]
    await asyncio.sleep(0)
    try:
        yield
    finally:
        await end_tasks(tasks)

"""Evictions whose marks hang, as a webhook of the pod's owner can have them do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest_asyncio

from reprieve_testing.guard.fixture import (
    TEAM,
    GuardFixture,
    a_victim,
    another_victim,
    guard_fixture,
)
from reprieve_testing.servers.stub_api import until
from reprieve_webhooks.guard.marking import _MAX_EVICTION_MARKS

OTHER_TEAM = "/api/v1/namespaces/team-b/pods"
UNDER_WAY = _MAX_EVICTION_MARKS // 2
"""At most, of the marks for one namespace's evictions."""
EVICTIONS = UNDER_WAY + 8
CONNECTIONS = UNDER_WAY + 4
"""To the API server: more than the marks under way, and fewer than the evictions; one watches."""
ASKED = "asked to save a checkpoint first"
TOO_MANY = "too many evictions at once"


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[GuardFixture]:
    async with guard_fixture(tmp_path, a_victim()) as found:
        found.stub.collections[OTHER_TEAM] = {"theirs": theirs()}
        found.guard._reader._timeout_seconds = 300.0  # Only a test ends the marks.
        found.guard._reader._api._client.rest_client.pool_manager.connector._limit = CONNECTIONS
        yield found


def theirs() -> Any:
    return another_victim("theirs", namespace="team-b")


@asynccontextmanager
async def hanging_evictions(here: GuardFixture) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Evict one pod many times at once; yield once each is answered or its mark hangs.

    The marks are answered at the end.
    """
    before = len(here.stub.patches)
    are_answered = here.stub.patches_held[f"{TEAM}/train"] = asyncio.Event()
    evictions = [asyncio.create_task(here.evict()) for _ in range(EVICTIONS)]
    try:
        await until(lambda: len(answers(evictions)) + len(here.stub.patches) - before == EVICTIONS)
        yield evictions
    finally:
        are_answered.set()
        await asyncio.wait(evictions)


def answers(evictions: list[asyncio.Task[Any]]) -> list[Any]:
    return [eviction.result() for eviction in evictions if eviction.done()]


async def test_evictions_beyond_the_marks_under_way_are_told_to_try_again(
    here: GuardFixture,
) -> None:
    async with hanging_evictions(here) as evictions:
        refused = answers(evictions)
        assert len(here.stub.patches) == UNDER_WAY
        assert len(refused) == EVICTIONS - UNDER_WAY
        for answer in refused:
            assert answer["status"]["code"] == 429
            assert "retryAfterSeconds" not in answer["status"]["details"]
            assert TOO_MANY in answer["status"]["message"]
    marked = [answer for answer in answers(evictions) if answer not in refused]
    assert len(marked) == UNDER_WAY
    assert all(ASKED in answer["status"]["message"] for answer in marked)


async def test_another_namespaces_preempted_pod_is_marked_beside_evictions_whose_marks_hang(
    here: GuardFixture,
) -> None:
    """Without this, a tenant could have the pods of others preempted without notice."""
    async with hanging_evictions(here):
        answer = await here.delete(theirs())
        assert ASKED in answer["status"]["message"]
        assert here.marked()[-1] == "theirs"


async def test_another_namespaces_eviction_is_marked_beside_evictions_whose_marks_hang(
    here: GuardFixture,
) -> None:
    async with hanging_evictions(here):
        answer = await here.evict("theirs", namespace="team-b")
        assert ASKED in answer["status"]["message"]
        assert here.marked()[-1] == "theirs"


async def test_a_preempted_pod_is_marked_beside_hanging_evictions_of_its_own_namespace(
    here: GuardFixture,
) -> None:
    """The limit is that of evictions: a failed review would have the pod deleted at once."""
    async with hanging_evictions(here):
        answer = await here.delete(another_victim("other"))
        assert ASKED in answer["status"]["message"]
        assert here.marked()[-1] == "other"


async def test_once_its_marks_have_ended_a_namespace_may_write_as_many_again(
    here: GuardFixture,
) -> None:
    for status in (200, 409, 200):
        before = len(here.stub.patches)
        here.stub.refuses = {f"{TEAM}/train": status}
        async with hanging_evictions(here):
            assert len(here.stub.patches) - before == UNDER_WAY

"""Whether it is known who is nominated: not before the list, not without the right to it, not once the watch is silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reprieve_testing.stub_api import StubApi, stub_api, until
from reprieve_webhooks.guard import nominees
from reprieve_webhooks.guard.nominees import Nominees

PODS = "/api/v1/pods"


@asynccontextmanager
async def watching(directory: Path, **stub: set[str]) -> AsyncIterator[tuple[StubApi, Nominees]]:
    async with stub_api(directory, **stub) as (cluster, api):
        found = Nominees(api)
        running = asyncio.create_task(found.reflector.run())
        try:
            yield cluster, found
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_before_the_list_and_once_nothing_was_heard_for_too_long_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(tmp_path) as (stub, found):
        assert not found.is_known
        stub.lists_released.set()
        await until(lambda: found.is_known)
        monkeypatch.setattr(nominees, "_LONGEST_SILENCE_SECONDS", -1.0)
        assert not found.is_known


async def test_who_does_without_the_guard_waits_for_no_list_and_none_is_known(tmp_path: Path) -> None:
    async with watching(tmp_path, barred={PODS}) as (_, found):
        await until(lambda: found.reflector.is_synced)
        assert not found.is_known

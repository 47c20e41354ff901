"""Whether the nominated pods are known, and how much of them is kept.

They are unknown before the list, without the permission, and while the watch is silent.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from reprieve_testing.guard.fixture import PODS, a_victim, guard_fixture
from reprieve_testing.servers.stub_api import StubApi, stub_api, until
from reprieve_webhooks.guard import nominated_pods
from reprieve_webhooks.guard.nominated_pods import NominatedPods
from reprieve_webhooks.snapshot import pod_pruning


@asynccontextmanager
async def watching(
    directory: Path, **stub: set[str]
) -> AsyncIterator[tuple[StubApi, NominatedPods]]:
    async with stub_api(directory, **stub) as (cluster, api):
        found = NominatedPods(api)
        running = asyncio.create_task(found.reflector.run())
        try:
            yield cluster, found
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_nominations_are_unknown_before_the_list_and_while_the_watch_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(tmp_path) as (stub, found):
        assert not found.is_fresh
        stub.lists_released.set()
        await until(lambda: found.is_fresh)
        monkeypatch.setattr(nominated_pods, "MAX_SILENCE_SECONDS", -1.0)
        assert not found.is_fresh


async def test_without_the_permission_readiness_waits_for_no_list_and_no_nomination_is_known(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path, barred={PODS}) as (_, found):
        await until(lambda: found.reflector.is_synced)
        assert not found.is_fresh


async def test_nominations_stay_known_while_an_api_server_starts(tmp_path: Path) -> None:
    """It refuses what it allows a moment later. Without this, no preemption would be reviewed."""
    async with guard_fixture(tmp_path, a_victim()) as here:
        await here.nominate("mine")
        here.stub.watches_refused = [(403, "")]
        here.stub.end_watches()
        await until(lambda: not here.stub.watches_refused and here.stub.open_watches == 1)
        assert here.guard.nominated_pods.is_fresh
        assert "asked to save" in (await here.delete(a_victim()))["status"]["message"]
        assert "uid-of-mine" in json.dumps(here.stub.patches)


async def test_a_nominated_pod_as_large_as_etcd_accepts_is_kept_within_the_limit(
    tmp_path: Path,
) -> None:
    values = [f"{number:063}" for number in range(15_000)]
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}]
    wish = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }
    async with guard_fixture(tmp_path, a_victim()) as here:
        await here.nominate("large", affinity=wish)
        (kept,) = here.guard.nominated_pods.reflector.items.values()
        assert len(msgspec.msgpack.encode(kept.nominee.pod)) < pod_pruning.MAX_ENCODED_BYTES
        assert "asked to save" in (await here.delete(a_victim()))["status"]["message"]
        assert "uid-of-large" in json.dumps(here.stub.patches)

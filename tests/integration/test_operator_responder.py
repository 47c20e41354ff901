"""The responder where its types are absent, or its right is: one question an interval, and nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from reprieve_operator.clock import Clock
from reprieve_operator.effects import Effects
from reprieve_operator.keepers import Keepers
from reprieve_operator.policy_source import PolicySource
from reprieve_operator.responder import Responder
from reprieve_operator.settings import OperatorSettings
from reprieve_policy.settings import PolicySettings
from reprieve_testing.stub_api import StubApi, stub_api, until

EVICTIONS = "/apis/lifecycle.k8s.io/v1alpha1/evictions"
WATCH = f"{EVICTIONS}?watch"
INTERVAL_SECONDS = 0.1


@dataclass
class Policy:
    """What is in force, and what was complained of."""

    current: PolicySettings
    complaints: list[str] = field(default_factory=list)

    def complain(self, reason: str, note: str) -> None:
        assert "reprieve:answer-evictions" in note
        self.complaints.append(reason)


@asynccontextmanager
async def responding(directory: Path, *, is_wanted: bool = True) -> AsyncIterator[tuple[StubApi, Policy]]:
    """Run a responder; that it writes anything would be an error, as would that it asks for a pod."""
    async with stub_api(directory, collections={EVICTIONS: {}}) as (stub, api):
        stub.lists_released.set()
        stub.absent.add(EVICTIONS)
        policy = Policy(PolicySettings(eviction_responder=is_wanted))
        settings = OperatorSettings(sweep_interval_seconds=INTERVAL_SECONDS, resync_interval_seconds=0.02)
        effects, keepers = cast("Effects", None), cast("Keepers", SimpleNamespace(pods=list))
        responder = Responder(api, effects, keepers, cast("PolicySource", policy), Clock(), settings)
        task = asyncio.create_task(responder.run())
        try:
            yield stub, policy
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_types_that_are_absent_are_asked_for_once_an_interval_and_never_watched(tmp_path: Path):
    async with responding(tmp_path) as (stub, policy):
        since = time.monotonic()
        await until(lambda: stub.calls[EVICTIONS] == 5)
        # The first is asked at once.
        assert time.monotonic() - since >= 3 * INTERVAL_SECONDS
        assert stub.calls == {EVICTIONS: 5}
        assert not policy.complaints


async def test_types_that_are_served_later_are_watched(tmp_path: Path):
    async with responding(tmp_path) as (stub, policy):
        await until(lambda: stub.calls[EVICTIONS] >= 2)
        assert not stub.calls[WATCH]
        stub.absent.clear()
        await until(lambda: stub.open_watches == 1)
        assert not policy.complaints


async def test_a_right_that_is_missing_is_said_once_where_it_is_wanted(tmp_path: Path):
    async with responding(tmp_path) as (stub, policy):
        stub.barred.add(EVICTIONS)
        await until(lambda: bool(policy.complaints))
        asked = stub.calls[EVICTIONS]
        await until(lambda: stub.calls[EVICTIONS] >= asked + 3)
        assert policy.complaints == ["EvictionsUnreadable"]
        stub.barred.clear()
        stub.absent.clear()
        await until(lambda: stub.open_watches == 1)


async def test_a_right_that_nobody_wants_is_not_missed(tmp_path: Path):
    async with responding(tmp_path, is_wanted=False) as (stub, policy):
        stub.barred.add(EVICTIONS)
        await until(lambda: stub.calls[EVICTIONS] >= 4)
        assert not policy.complaints

"""The term of a leader: a failed resync is repeated soon; the health check finds a dead watch.

Preemptors are watched only if a victim names one.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprieve_operator import leader as terms
from reprieve_operator.background import background
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.policies import NamespacePolicies
from reprieve_operator.leader import Leader, Term
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.resync import PodResync
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.preemptors import Preemptors
from reprieve_operator.victims.watch import VictimWatch
from reprieve_policy import keys
from reprieve_runtime.client.api import Api, ApiError
from reprieve_testing.servers.stub_api import stub_api, until

PODS = "/api/v1/pods"
SETTINGS = OperatorSettings(identity="a", sweep_interval_seconds=1000.0)


@dataclass
class FailingSweep:
    """Fails a given number of times."""

    failures: int
    runs: int = 0

    async def run_once(self) -> None:
        self.runs += 1
        if self.runs <= self.failures:
            raise ApiError(429, "TooManyRequests", "later")


@dataclass
class Leadership:
    is_leading: bool


def a_term(api: Api, metrics: OperatorMetrics | None = None) -> Leader:
    return Leader(api, api, SETTINGS, Clock(), metrics or OperatorMetrics())


async def test_a_failed_resync_is_repeated_soon_and_a_successful_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "_RESYNC_RETRY_SECONDS", 0.01)
    sweep, metrics = FailingSweep(failures=2), OperatorMetrics()
    async with stub_api(tmp_path) as (_, api):
        sweeping = asyncio.create_task(a_term(api, metrics)._resync_loop(cast("PodResync", sweep)))
        try:
            await until(
                lambda: bool(
                    metrics.registry.get_sample_value("reprieve_last_sweep_timestamp_seconds")
                )
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(sweeping), 0.2)
            assert (sweep.runs, sweeping.done()) == (3, False)
        finally:
            sweeping.cancel()


HEALTH = {
    "a leader whose watch delivers": (True, 10.0, True),
    "the API server is down, so that no replica leads": (False, 10_000.0, True),
    "a leader whose watch is silent": (True, 301.0, False),
}


@pytest.mark.parametrize(("leads", "silent_seconds", "is_healthy"), HEALTH.values(), ids=HEALTH)
async def test_only_a_silent_watch_with_a_renewed_lease_is_unhealthy(
    tmp_path: Path, *, leads: bool, silent_seconds: float, is_healthy: bool
) -> None:
    async with stub_api(tmp_path) as (_, api):
        term = a_term(api)
        assert term.is_healthy
        term.election = cast("LeaderElection", Leadership(leads))
        assert term.is_healthy
        watch = VictimWatch(api, lambda _: None, lambda _: None)
        term._term = cast("Term", SimpleNamespace(victim_watch=watch))
        assert term.is_healthy
        watch.reflector._last_response_at -= silent_seconds
        assert term.is_healthy is is_healthy


class StartedReflector:
    """Watches nothing."""

    def __init__(self) -> None:
        self.is_started = False

    async def run(self) -> None:
        self.is_started = True
        await asyncio.Event().wait()


async def test_preemptors_are_watched_once_a_victim_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reflector = StartedReflector()
    monkeypatch.setattr(Preemptors, "_make_reflector", lambda _: reflector)
    async with stub_api(tmp_path, collections={PODS: {"victim": a_victim("2")}}) as (stub, api):
        stub.lists_released.set()
        leader = a_term(api)
        leader.election = cast("LeaderElection", Leadership(is_leading=False))
        async with background(lambda: leader._run_controllers(NamespacePolicies(api))):
            await until(
                lambda: leader._term is not None and leader._term.victim_watch.reflector.is_synced
            )
            assert not reflector.is_started
            await until(lambda: stub.open_watches > 0)
            stub.send("MODIFIED", a_victim("3", {keys.PREEMPTOR: "uid-of-high"}), only=PODS)
            await until(lambda: reflector.is_started)


def a_victim(version: str, annotations: dict[str, str] | None = None) -> Any:
    metadata = {
        "name": "victim",
        "namespace": "team",
        "uid": "uid-of-victim",
        "resourceVersion": version,
        "labels": {keys.SOFT_EVICTION: "requested"},
        "annotations": annotations or {},
    }
    return {"metadata": metadata, "spec": {"nodeName": "node"}, "status": {"phase": "Running"}}

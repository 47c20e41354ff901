"""Whether native Evictions are served: one read for all pods, which never fails a review."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy.config.settings import PolicySettings
from reprieve_testing.builders import PodBuilder, a_pod
from reprieve_testing.stub_api import StubApi, stub_api
from reprieve_webhooks.facts.discovery import EvictionDiscovery

GROUP = "/apis/lifecycle.k8s.io"
VERSION = f"{GROUP}/v1alpha1"
SERVES: dict[str, Any] = {
    "v1alpha1": {"resources": [{"name": "evictionrequests"}, {"name": "evictions"}]}
}
WANTS = a_pod().with_hint()
ON = PolicySettings(eviction_responder=True)


@asynccontextmanager
async def asking(
    directory: Path, versions: dict[str, Any], remembered_seconds: float = 60.0
) -> AsyncIterator[tuple[StubApi, EvictionDiscovery]]:
    async with stub_api(directory, collections={GROUP: versions}) as (stub, api):
        yield stub, EvictionDiscovery(api, timeout_seconds=1.0, ttl_seconds=remembered_seconds)


async def test_all_pods_within_the_ttl_cost_one_call(tmp_path: Path):
    async with asking(tmp_path, SERVES) as (stub, served):
        assert all(
            await asyncio.gather(*(served.are_served_for(WANTS.build(), ON) for _ in range(100)))
        )
        assert stub.calls == {VERSION: 1}


@pytest.mark.parametrize(
    ("pod", "settings"),
    [(WANTS, PolicySettings()), (a_pod(), ON), (WANTS.in_native_gang("train"), ON)],
    ids=["nobody wants it", "no checkpoint", "a native group's"],
)
async def test_a_pod_that_wants_no_responder_costs_no_call(
    tmp_path: Path, pod: PodBuilder, settings: PolicySettings
):
    async with asking(tmp_path, SERVES) as (stub, served):
        assert not await served.are_served_for(pod.build(), settings)
        assert not stub.calls


@pytest.mark.parametrize(
    "versions",
    [
        {},
        {"v1alpha1": {"resources": []}},
        {"v1alpha1": {"resources": [{"name": "evictionrequests"}]}},
    ],
    ids=["no such group", "an empty one", "without Evictions"],
)
async def test_an_api_that_is_not_served_is_read_once_in_the_ttl(
    tmp_path: Path, versions: dict[str, Any]
):
    async with asking(tmp_path, versions) as (stub, served):
        for _ in range(50):
            assert not await served.are_served_for(WANTS.build(), ON)
        assert stub.calls == {VERSION: 1}


async def test_a_server_that_is_upgraded_is_noticed(tmp_path: Path):
    versions: dict[str, Any] = {}
    async with asking(tmp_path, versions, remembered_seconds=0.0) as (_, served):
        assert not await served.are_served_for(WANTS.build(), ON)
        versions.update(SERVES)
        assert await served.are_served_for(WANTS.build(), ON)


@pytest.mark.parametrize("answer", [{"resources": 7}, [], "text"])
async def test_a_failed_discovery_does_not_fail_the_review(tmp_path: Path, answer: Any):
    async with asking(tmp_path, {"v1alpha1": answer}) as (stub, served):
        assert not await served.are_served_for(WANTS.build(), ON)
        stub.is_failing = True
        assert not await served.are_served_for(WANTS.build(), ON)

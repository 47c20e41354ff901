"""Native PodGroups that the API server does not serve, or only after an upgrade."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption.selection.snapshot import Snapshot
from reprieve_testing.guard_fixture import NODE, PODS, FixedGuardFacts, another_victim
from reprieve_testing.stub_api import StubApi, stub_api, until
from reprieve_webhooks.snapshot import informers
from reprieve_webhooks.snapshot.informers import ClusterInformers

GROUPS = "/apis/scheduling.k8s.io/v1beta1/podgroups"
ALL = {
    "metadata": {"name": "train", "namespace": "team-a"},
    "spec": {"disruptionMode": {"all": {}}},
}
INTERVAL_SECONDS = 0.1


@asynccontextmanager
async def without_groups(directory: Path) -> AsyncIterator[tuple[StubApi, ClusterInformers]]:
    """Watch an API server of two pods that name a group, which it does not serve."""
    node = {"metadata": {"name": NODE}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}}
    pods = {name: a_member(name) for name in ("one", "two")}
    async with stub_api(directory, collections={PODS: pods, "/api/v1/nodes": {NODE: node}}) as (
        stub,
        api,
    ):
        stub.lists_released.set()
        stub.absent.add(GROUPS)
        stage = ClusterInformers(api, FixedGuardFacts())
        running = asyncio.create_task(stage.run())
        try:
            await until(
                lambda: (
                    not stage.is_stale
                    and stage.is_up_to_date
                    and stub.open_watches >= len(stage.watches()) - 1
                )
            )
            yield stub, stage
        finally:
            running.cancel()
            await asyncio.wait([running])


def a_member(name: str) -> Any:
    pod = another_victim(name)
    pod["spec"] |= {"nodeName": NODE, "schedulingGroup": {"podGroupName": "train"}}
    return pod


def modes(scene: Snapshot) -> list[DisruptionMode]:
    return [group.disruption_mode for group in scene.gangs.values()]


async def test_where_they_are_not_served_one_question_is_all_that_they_cost(tmp_path: Path) -> None:
    async with without_groups(tmp_path) as (stub, stage):
        for number in range(50):
            stub.send("ADDED", a_member(f"further-{number}"), PODS)
        await until(
            lambda: sum(map(len, (room.pods for room in stage.snapshot().nodes.values()))) == 52
        )
        assert modes(stage.snapshot()) == [DisruptionMode.SINGLE]
        assert (stub.calls[GROUPS], stub.calls[f"{GROUPS}?watch"]) == (1, 0)


async def test_once_they_are_they_count_and_until_then_one_question_is_asked_an_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informers, "_ABSENT_RETRY_SECONDS", INTERVAL_SECONDS)
    began = time.monotonic()
    async with without_groups(tmp_path) as (stub, stage):
        await until(lambda: stub.calls[GROUPS] >= 4)
        assert stub.calls[GROUPS] <= 1 + (time.monotonic() - began) / INTERVAL_SECONDS
        stub.collections[GROUPS] = {"train": ALL}
        stub.absent.clear()
        await until(lambda: modes(stage.snapshot()) == [DisruptionMode.ALL])
        assert {
            member.uid for group in stage.snapshot().gangs.values() for member in group.members
        } == {
            "uid-of-one",
            "uid-of-two",
        }
        await until(lambda: stub.open_watches == len(stage.watches()))
        stub.send("DELETED", ALL, GROUPS)
        await until(lambda: modes(stage.snapshot()) == [DisruptionMode.SINGLE])

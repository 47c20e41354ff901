"""Native PodGroups that the API server does not serve, or only after an upgrade."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption.selection.snapshot import Snapshot
from reprieve_testing.guard.fixture import NODE, PODS, FixedGuardFacts, another_victim
from reprieve_testing.objects.builders import a_priority_class
from reprieve_testing.servers.stub_api import StubApi, stub_api, until
from reprieve_webhooks.snapshot import informers
from reprieve_webhooks.snapshot.informers import ClusterInformers

GROUPS = "/apis/scheduling.k8s.io/v1beta1/podgroups"
ALL = {
    "metadata": {"name": "train", "namespace": "team-a"},
    "spec": {"disruptionMode": {"all": {}}},
}
INTERVAL_SECONDS = 0.1
URGENT = Facts(
    settings=PolicySettings(max_preemption_priority_lift=5000),
    operator_is_live=True,
    priority_classes={"urgent": a_priority_class().named("urgent").worth(5000).build()},
)
DEFENDED = {
    "metadata": ALL["metadata"] | {"annotations": {keys.PREEMPTION_PRIORITY_CLASS: "urgent"}},
}


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
        cluster_view = ClusterInformers(api, FixedGuardFacts(URGENT))
        running = asyncio.create_task(cluster_view.run())
        try:
            await until(
                lambda: (
                    not cluster_view.is_stale
                    and cluster_view.is_up_to_date
                    and stub.open_watches >= len(cluster_view.watches()) - 1
                )
            )
            yield stub, cluster_view
        finally:
            running.cancel()
            await asyncio.wait([running])


def a_member(name: str) -> Any:
    pod = another_victim(name)
    pod["spec"] |= {"nodeName": NODE, "schedulingGroup": {"podGroupName": "train"}}
    return pod


def modes(snapshot: Snapshot) -> list[DisruptionMode]:
    return [group.disruption_mode for group in snapshot.gangs.values()]


def preemption_priorities(snapshot: Snapshot) -> set[int]:
    return {
        member.preemption_priority for group in snapshot.gangs.values() for member in group.members
    }


async def test_groups_that_are_not_served_cost_one_call(tmp_path: Path) -> None:
    async with without_groups(tmp_path) as (stub, cluster_view):
        for number in range(50):
            stub.send("ADDED", a_member(f"further-{number}"), PODS)
        await until(
            lambda: (
                sum(
                    map(
                        len,
                        (node_info.pods for node_info in cluster_view.snapshot().nodes.values()),
                    )
                )
                == 52
            )
        )
        assert modes(cluster_view.snapshot()) == [DisruptionMode.SINGLE]
        assert (stub.calls[GROUPS], stub.calls[f"{GROUPS}?watch"]) == (1, 0)


async def test_groups_that_are_served_later_count_and_cost_one_call_an_interval_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informers, "_ABSENT_RETRY_SECONDS", INTERVAL_SECONDS)
    monkeypatch.setattr(informers, "_POLICY_CHECK_SECONDS", INTERVAL_SECONDS)
    began = time.monotonic()
    async with without_groups(tmp_path) as (stub, cluster_view):
        await until(lambda: stub.calls[GROUPS] >= 4)
        assert stub.calls[GROUPS] <= 1 + (time.monotonic() - began) / INTERVAL_SECONDS
        stub.collections[GROUPS] = {"train": ALL}
        stub.absent.clear()
        await until(lambda: modes(cluster_view.snapshot()) == [DisruptionMode.ALL])
        assert {
            member.uid
            for group in cluster_view.snapshot().gangs.values()
            for member in group.members
        } == {
            "uid-of-one",
            "uid-of-two",
        }
        await until(lambda: stub.open_watches == len(cluster_view.watches()))
        stub.send("MODIFIED", DEFENDED, GROUPS)
        await until(lambda: preemption_priorities(cluster_view.snapshot()) == {5000})
        stub.send("DELETED", ALL, GROUPS)
        await until(lambda: modes(cluster_view.snapshot()) == [DisruptionMode.SINGLE])

"""The guard with a real extender: a victim that the extender chose is not refused to its preemptor.

This holds for every mode of the scheduler.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_testing.guard.fixture import (
    GANG,
    NODE,
    OPERATOR,
    PODS,
    TEAM,
    FixedGuardFacts,
    FixedVictimSets,
    GuardFixture,
    a_nominee,
    another_victim,
    seconds_of,
    watching,
)
from reprieve_testing.objects.cluster_views import an_extender_call
from reprieve_testing.servers.reviews import running_server
from reprieve_testing.servers.stub_api import stub_api, until
from reprieve_webhooks.extender.metrics import ExtenderMetrics
from reprieve_webhooks.extender.service import Extender
from reprieve_webhooks.guard.handler import Guard
from reprieve_webhooks.snapshot.informers import ClusterInformers
from reprieve_webhooks.snapshot.recent_choices import RecentVictimSets

GROUPS = "/apis/scheduling.k8s.io/v1beta1"
NODES = {
    name: {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}}
    for name in (NODE, "node-2")
}
FEW = {
    "metadata": {"name": "few", "namespace": "team-a"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
}
PACES = {
    "asynchronous: nominated in the meantime": ("auto", False),
    "asynchronous: nominated a moment ago": ("auto", True),
    'an admin sets the mode "asynchronous"': ("asynchronous", True),
    "synchronous: nominated for an earlier victim": ("synchronous", True),
}


@dataclass
class Beside:
    """A guard and an extender that share what watches have seen."""

    fixture: GuardFixture
    extender: Extender
    pods: Mapping[str, Any]

    async def ask(self, proposed: str) -> Any:
        """Ask for victims as a scheduler does that proposes this one; return those on each node."""
        body = an_extender_call({NODE: [f"uid-of-{proposed}"]}, "uid-of-high")
        said = await self.extender.answer(lambda: asyncio.sleep(0, body))
        return json.loads(said.body)["NodeNameToMetaVictims"]

    async def choose(self, proposed: str) -> None:
        """Have victims chosen so."""
        assert await self.ask(proposed)

    async def delete(self, name: str, *, is_nominated: bool) -> Any:
        if not is_nominated:
            return await self.fixture.delete_and_nominate(self.pods[name], **_asking("8"))
        found = self.fixture.guard.nominated_pods.reflector.items
        self.fixture.stub.send("MODIFIED", a_nominee("high", 1000, **_asking("8")), PODS)
        await until(lambda: any(one.nominee.node == NODE for one in found.values()))
        return await self.fixture.delete(self.pods[name])


@asynccontextmanager
async def beside(
    directory: Path, said: str, *pods: Any, is_one_replica: bool = True
) -> AsyncIterator[Beside]:
    """Run both, in one replica of the webhooks or in two."""
    stored = {pod["metadata"]["name"]: pod for pod in pods}
    waiting = a_nominee("high", 1000, **_asking("8"))
    del waiting["status"]["nominatedNodeName"]
    groups = {
        f"{GROUPS}/podgroups": {"few": FEW},
        f"{GROUPS}/namespaces/team-a/podgroups": {"few": FEW},
    }
    collections = {
        TEAM: stored,
        PODS: {**stored, "high": waiting},
        "/api/v1/nodes": NODES,
        **groups,
    }
    async with stub_api(directory, collections=collections) as (stub, api):
        stub.lists_released.set()
        settings = PolicySettings(scheduler_preemption=said, max_victims=9)
        known, choices = (
            FixedGuardFacts(Facts(operator_is_live=True, settings=settings)),
            RecentVictimSets(),
        )
        cluster_view = ClusterInformers(api, known)
        guard = Guard(
            api,
            known,
            operator=OPERATOR,
            timeout_seconds=5.0,
            victim_sets=choices if is_one_replica else RecentVictimSets(),
            cluster_view=cluster_view,
        )
        extender = Extender(
            cluster_view,
            choices,
            ExtenderMetrics(CollectorRegistry()),
            timeout_seconds=5.0,
            # The victims are to be on the node that each test names.
            searches_all_nodes=False,
        )
        async with (
            watching(guard, stub),
            seeing(cluster_view),
            running_server(guard=guard) as server,
        ):
            yield Beside(
                GuardFixture(server, stub, known, FixedVictimSets(), guard), extender, stored
            )


@asynccontextmanager
async def seeing(cluster_view: ClusterInformers) -> AsyncIterator[None]:
    running = asyncio.create_task(cluster_view.run())
    try:
        await until(lambda: not cluster_view.is_stale and cluster_view.is_up_to_date)
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


def a_chosen(name: str, cpu: str, *, node: str = NODE, group: str = "", **metadata: Any) -> Any:
    pod = another_victim(name, **metadata)
    pod["spec"] |= {"nodeName": node, **_asking(cpu)}
    if group:
        pod["spec"] |= {"schedulingGroup": {"podGroupName": group}}
    return pod


def _asking(cpu: str) -> Any:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


@pytest.mark.parametrize(("said", "is_nominated"), PACES.values(), ids=PACES)
async def test_a_gang_evicted_as_a_unit_is_marked_for_the_preemptor_that_it_was_chosen_for(
    tmp_path: Path, said: str, *, is_nominated: bool
) -> None:
    gang = [
        a_chosen("a", "2", labels=GANG),
        a_chosen("b", "2", labels=GANG),
        a_chosen("far", "8", node="node-2", labels=GANG),
    ]
    async with beside(tmp_path, said, *gang, a_chosen("single", "4")) as ours:
        await ours.choose("a")
        response = await ours.delete("a", is_nominated=is_nominated)
        assert "asked to save" in response["status"]["message"]
        # One of the gang, for which the operator takes the rest.
        assert ours.fixture.marked() == ["a", "single"]
        assert "uid-of-high" in json.dumps(ours.fixture.stub.patches)


async def test_each_mark_says_how_many_victims_there_are(tmp_path: Path) -> None:
    async with beside(tmp_path, "auto", *(a_chosen(name, "4") for name in "ab")) as ours:
        await ours.choose("a")
        await ours.delete("a", is_nominated=False)
        assert sorted(ours.fixture.marked()) == ["a", "b"]
        assert all('\\"victims\\":2' in json.dumps(patch) for _, patch in ours.fixture.stub.patches)


@pytest.mark.parametrize(("said", "is_nominated"), PACES.values(), ids=PACES)
async def test_all_pods_that_a_gang_can_spare_are_marked(
    tmp_path: Path, said: str, *, is_nominated: bool
) -> None:
    here = [a_chosen(name, "4", group="few") for name in "ab"]
    far = [a_chosen(name, "4", node="node-2", group="few") for name in "cd"]
    async with beside(tmp_path, said, *here, *far) as ours:
        await ours.choose("a")
        response = await ours.delete("b", is_nominated=is_nominated)
        assert "asked to save" in response["status"]["message"]
        assert sorted(ours.fixture.marked()) == ["a", "b"]


@pytest.mark.parametrize(("said", "is_nominated"), PACES.values(), ids=PACES)
async def test_all_pods_of_a_gang_that_can_spare_none_are_marked_on_all_nodes(
    tmp_path: Path, said: str, *, is_nominated: bool
) -> None:
    """It asks to be evicted pod by pod: the operator takes no other pod with one of them."""
    gang = [a_chosen("a", "8", group="few"), a_chosen("far", "8", node="node-2", group="few")]
    async with beside(tmp_path, said, *gang) as ours:
        await ours.choose("a")
        await ours.delete("a", is_nominated=is_nominated)
        assert sorted(ours.fixture.marked()) == ["a", "far"]


SILENT = {"annotations": {}, "labels": {keys.PREEMPTION_CLASS: "3"}}
WANTING: Mapping[str, tuple[Any, Any]] = {
    "no pod of it has a checkpoint hint": (SILENT, SILENT),
    "only pods on other nodes have a checkpoint hint": (SILENT, {}),
    "only pods on this node have a checkpoint hint": ({}, SILENT),
}


@pytest.mark.parametrize(("here", "there"), WANTING.values(), ids=WANTING)
async def test_all_pods_of_a_gang_on_all_nodes_are_marked_if(
    tmp_path: Path, here: Any, there: Any
) -> None:
    """Without this, a scheduler would take those on the node, and the others would run on below the
    minimum of their gang.
    """
    gang = [
        a_chosen("a", "8", group="few", **here),
        a_chosen("far", "8", node="node-2", group="few", **there),
    ]
    async with beside(tmp_path, "auto", *gang) as ours:
        await ours.choose("a")
        response = await ours.delete("a", is_nominated=False)
        assert not response["allowed"]
        assert sorted(ours.fixture.marked()) == ["a", "far"]


@pytest.mark.parametrize(("here", "there"), [({}, {}), *WANTING.values()])
async def test_a_replica_that_did_not_choose_marks_a_gang_that_can_spare_no_pod_as_a_whole(
    tmp_path: Path, here: Any, there: Any
) -> None:
    gang = [
        a_chosen("a", "8", group="few", **here),
        a_chosen("far", "8", node="node-2", group="few", **there),
    ]
    async with beside(tmp_path, "auto", *gang, is_one_replica=False) as ours:
        await ours.choose("a")
        response = await ours.delete("a", is_nominated=False)
        assert not response["allowed"]
        assert sorted(ours.fixture.marked()) == ["a", "far"]


async def test_a_replica_that_did_not_choose_marks_no_pod_that_a_gang_can_spare(
    tmp_path: Path,
) -> None:
    gang = [
        a_chosen("a", "8", group="few"),
        *(a_chosen(name, "4", node="node-2", group="few") for name in "bc"),
    ]
    async with beside(tmp_path, "auto", *gang, is_one_replica=False) as ours:
        await ours.choose("a")
        assert not (await ours.delete("a", is_nominated=False))["allowed"]
        assert ours.fixture.marked() == ["a"]


LABELLED_GANG = {
    "labels": GANG,
    "annotations": {
        keys.CHECKPOINT_HINT: "signal:",
        keys.DISRUPTION_MODE: "pod",
        keys.MIN_MEMBER: "2",
    },
}


async def test_a_replica_that_did_not_choose_has_no_victim_wait_for_a_gang_that_leaves_beside_it(
    tmp_path: Path,
) -> None:
    gang = [
        a_chosen("a", "4", **LABELLED_GANG),
        a_chosen("far", "8", node="node-2", **LABELLED_GANG),
    ]
    single = a_chosen("single", "4")
    async with beside(tmp_path, "auto", *gang, single, is_one_replica=False) as ours:
        await ours.choose("a")
        await ours.delete("a", is_nominated=False)
        assert sorted(ours.fixture.marked()) == ["a", "far"]
        for pod in gang:
            pod["metadata"]["labels"] = {**GANG, keys.SOFT_EVICTION: "requested"}
            pod["metadata"]["annotations"] = {
                **pod["metadata"]["annotations"],
                keys.PREEMPTOR: "uid-of-high",
            }
        assert not (await ours.delete("single", is_nominated=True))["allowed"]
        assert sorted(ours.fixture.marked()) == ["a", "far", "single"]


async def test_another_victim_of_the_set_that_wants_no_notice_leaves_with_the_others(
    tmp_path: Path,
) -> None:
    gang = [a_chosen("a", "4", group="few"), a_chosen("far", "8", node="node-2", group="few")]
    async with beside(tmp_path, "auto", *gang, a_chosen("single", "4", **SILENT)) as ours:
        await ours.choose("a")
        response = await ours.delete("single", is_nominated=False)
        assert "other victims of its preemptor" in response["status"]["message"]
        assert sorted(ours.fixture.marked()) == ["a", "far", "single"]


@pytest.mark.parametrize(
    ("status", "tries"), [(409, 3), (503, 3), (0, 1)], ids=["changed", "refused", "no answer"]
)
async def test_marking_a_victim_on_another_node_is_retried_unless_the_api_server_is_away(
    tmp_path: Path, status: int, tries: int
) -> None:
    """No scheduler will delete it; but an API server that hangs would cost the first its notice."""
    gang = [a_chosen("a", "8", group="few"), a_chosen("far", "8", node="node-2", group="few")]
    async with beside(tmp_path, "auto", *gang) as ours:
        await ours.choose("a")
        ours.fixture.stub.refuses[f"{TEAM}/far"] = status
        assert not (await ours.delete("a", is_nominated=False))["allowed"]
        assert ours.fixture.marked() == ["a", *["far"] * tries]


async def test_no_pod_of_a_marked_gang_is_marked_for_another_preemptor(tmp_path: Path) -> None:
    gang = [a_chosen("a", "8", labels=GANG), a_chosen("far", "8", node="node-2", labels=GANG)]
    async with beside(tmp_path, "auto", *gang) as ours:
        await ours.choose("a")
        ours.fixture.stub.send("MODIFIED", gang[1] | _marked(gang[1]), PODS)
        response = await ours.delete("a", is_nominated=False)
        assert "already leaving" in response["status"]["message"]
        assert ours.fixture.marked() == []


async def test_without_an_operator_a_mark_delays_no_deletion(
    tmp_path: Path,
) -> None:
    marked = a_chosen("a", "8", labels={"reprieve.dev/soft-eviction": "requested"})
    async with beside(tmp_path, "auto", marked) as ours:
        assert not await ours.ask("a")
        ours.fixture.facts.facts = replace(ours.fixture.facts.facts, operator_is_live=False)
        assert await ours.ask("a")


def _marked(pod: Any) -> Any:
    return {
        "metadata": pod["metadata"]
        | {"labels": {**GANG, "reprieve.dev/soft-eviction": "requested"}}
    }


async def test_a_synchronous_scheduler_gets_no_retry_time_for_a_chosen_victim(
    tmp_path: Path,
) -> None:
    async with beside(tmp_path, "synchronous", a_chosen("a", "8", labels=GANG)) as ours:
        await ours.choose("a")
        assert seconds_of(await ours.delete("a", is_nominated=True)) is None

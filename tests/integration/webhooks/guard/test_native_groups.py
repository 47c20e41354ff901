"""A native group that is evicted as a unit is deleted on all its nodes.

Its preemptor is nominated to one of them.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_testing.guard.fixture import (
    HINT,
    MARKED,
    NODE,
    PODS,
    TEAM,
    GuardFixture,
    a_victim,
    another_victim,
    guard_fixture,
    seconds_of,
)

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/team-a/podgroups"
WHOLE, SINGLE = {"disruptionMode": {"all": {}}}, {"disruptionMode": {"single": {}}}
KEPT = {keys.PREEMPTIBLE: "false"}
LEAVING = {"labels": MARKED, "annotations": HINT | {keys.PREEMPTOR: "uid-of-high"}}


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[GuardFixture]:
    async with guard_fixture(tmp_path, a_victim(), grouped(another_victim("mate"), NODE)) as found:
        found.stub.collections[GROUPS] = {"train": {"spec": WHOLE}}
        yield found


def grouped(pod: Any, node: str = "node-2") -> Any:
    pod["spec"] |= {"nodeName": node, "schedulingGroup": {"podGroupName": "train"}}
    return pod


async def test_a_node_without_a_nomination_still_shows_asynchronous_preemption(
    here: GuardFixture,
) -> None:
    response = await here.delete_and_nominate(grouped(a_victim()))
    assert response["status"]["reason"] == "NotFound"
    assert "uid-of-high" in json.dumps(here.stub.patches)


async def test_a_pod_with_an_unhandled_mark_is_not_answered_with_404_for_ever(
    here: GuardFixture,
) -> None:
    seconds = 0.0
    here.guard._unprocessed_marks._monotonic = lambda: seconds
    await here.delete_and_nominate(grouped(a_victim()))
    asked = grouped(another_victim("mate", labels=MARKED))
    for _ in range(2):
        assert (await here.delete(asked))["status"]["reason"] == "NotFound"
        seconds += 30
    assert (await here.delete(asked))["allowed"] is True


async def test_the_scheduler_gets_a_retry_time_for_a_pod_that_may_not_be_preempted(
    here: GuardFixture,
) -> None:
    # The nomination comes while that is under review, or is there by then.
    assert seconds_of(await here.delete_and_nominate(grouped(a_victim(labels=KEPT)))) in (4, 5)
    assert here.stub.patches == []


async def test_all_victims_of_one_preemptor_count_on_all_nodes(here: GuardFixture) -> None:
    await here.delete_and_nominate(grouped(a_victim(labels=KEPT)))
    mate = grouped(another_victim("mate", labels=KEPT), "node-3")
    assert seconds_of(await here.delete(mate)) == 8


@pytest.mark.parametrize("runs_there", [True, False])
async def test_a_system_critical_pod_preempts_a_protected_group_only_where_the_group_runs(
    here: GuardFixture, *, runs_there: bool
) -> None:
    if not runs_there:
        del here.stub.collections[TEAM]["mate"]
    await here.nominate("critical", 2_000_001_000)
    said = (await here.delete(grouped(a_victim(labels=KEPT))))["status"]["message"]
    assert ("asked to save" in said) is runs_there
    assert bool(here.stub.patches) is runs_there


async def test_where_the_nodes_of_a_group_cannot_be_read_every_nomination_counts_and_is_read_once(
    here: GuardFixture,
) -> None:
    here.stub.barred.add(TEAM)
    await here.nominate("never", 2000, preemptionPolicy="Never")
    await here.nominate("high")
    assert "asked to save" in (await here.delete(grouped(a_victim())))["status"]["message"]
    assert "uid-of-high" in json.dumps(here.stub.patches)
    assert here.stub.calls[TEAM] == 1


async def test_nominations_where_the_group_runs_count_however_many_there_are_elsewhere(
    here: GuardFixture,
) -> None:
    for number in range(3, 15):
        await here.nominate(f"elsewhere-{number}", 2000, node=f"node-{number}")
    await here.nominate("never", preemptionPolicy="Never")
    assert (
        "preemptionPolicy is Never" in (await here.delete(grouped(a_victim())))["status"]["message"]
    )
    assert here.stub.patches == []


OTHERS = {
    "is preempted pod by pod": (SINGLE, {}),
    "has a priority that the preemptor's does not exceed": (
        WHOLE | {"priority": 1000},
        {"priority": 1000},
    ),
}


@pytest.mark.parametrize(("group", "spec"), OTHERS.values(), ids=OTHERS)
async def test_no_nomination_on_another_node_counts_where_the_group(
    here: GuardFixture, group: Any, spec: Any
) -> None:
    here.stub.collections[GROUPS] = {"train": {"spec": group}}
    victim = grouped(a_victim())
    victim["spec"] |= spec
    assert seconds_of(await here.delete_and_nominate(victim)) is None
    assert "uid-of-high" not in json.dumps(here.stub.patches)


SETS = {
    "asked for elsewhere, after the one beside the preemptor": (
        another_victim("mate", **LEAVING),
        NODE,
        "node-2",
    ),
    "asked for beside the preemptor, after the one elsewhere": (
        another_victim("mate", **LEAVING),
        "node-2",
        NODE,
    ),
}


@pytest.mark.parametrize(("mate", "its", "node"), SETS.values(), ids=SETS)
async def test_no_pod_of_a_leaving_group_belongs_to_a_second_set(
    here: GuardFixture, mate: Any, its: str, node: str
) -> None:
    here.stub.collections[PODS] = {"mate": grouped(mate, its)}
    assert (await here.delete_and_nominate(grouped(a_victim(), node)))["status"][
        "reason"
    ] == "NotFound"
    assert here.marked() == ["train"]


async def test_a_pod_on_a_node_of_a_leaving_group_belongs_to_the_first_set(
    here: GuardFixture,
) -> None:
    leaving = {
        "mate": grouped(another_victim("mate", **LEAVING)),
        "near": grouped(another_victim("near", **LEAVING), NODE),
    }
    here.stub.collections[PODS] = leaving
    assert "asked to save" in (await here.delete_and_nominate(a_victim()))["status"]["message"]
    del leaving["near"]
    assert "not gone yet" in (await here.delete(a_victim()))["status"]["message"]


async def test_pods_of_a_group_that_leave_for_another_preemptor_belong_to_its_set(
    here: GuardFixture,
) -> None:
    others = {"labels": MARKED, "annotations": HINT | {keys.PREEMPTOR: "uid-of-other"}}
    leaving = {
        "mate": grouped(another_victim("mate", **LEAVING)),
        "near": grouped(another_victim("near", **others), NODE),
    }
    here.stub.collections[PODS] = leaving
    assert "not gone yet" in (await here.delete_and_nominate(a_victim()))["status"]["message"]

"""What the guard looks up beside the pod: the native group that it names, and its Job."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reprieve_testing.guard_scene import Scene, a_victim, scene


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path, a_victim()) as found:
        yield found


GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/team-a/podgroups"
GROUPED = {
    "all of it goes": ({"disruptionMode": {"all": {}}}, False),
    "they go one by one": ({"disruptionMode": {"single": {}}}, True),
    "nothing is said": ({}, True),
    "there is no such group": (None, True),
}


@pytest.mark.parametrize(("spec", "is_allowed"), GROUPED.values(), ids=GROUPED)
async def test_one_of_a_native_group_that_wants_no_checkpoint(here: Scene, spec: Any, *, is_allowed: bool) -> None:
    here.stub.collections[GROUPS] = {} if spec is None else {"train": {"spec": spec}}
    pod = a_victim(annotations={})
    pod["spec"] |= {"schedulingGroup": {"podGroupName": "train"}}
    assert (await here.delete(pod))["allowed"] is is_allowed
    assert bool(here.stub.patches) is not is_allowed


async def test_one_of_a_native_group_is_preempted_by_its_groups_priority(here: Scene) -> None:
    here.stub.collections[GROUPS] = {"train": {"spec": {"priority": 5000}}}
    pod = a_victim()
    pod["spec"] |= {"schedulingGroup": {"podGroupName": "train"}}
    await here.nominate()
    assert "priority" in (await here.delete(pod))["status"]["message"]
    assert here.stub.patches == []


async def test_a_jobs_deadline_that_is_moved_counts_as_it_was_seen_first(here: Scene) -> None:
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1000)
    status = {"startTime": f"{began:%Y-%m-%dT%H:%M:%SZ}"}
    # Names of one Job: what is read of a name is remembered for a second.
    bounds = {"job": 1200, "same-job": 1290, "still-the-same": None, "and-again": 1290}
    here.stub.collections["/apis/batch/v1/namespaces/team-a/jobs"] = {
        name: {"metadata": {"uid": "uid"}, "spec": {"activeDeadlineSeconds": seconds}, "status": status}
        for name, seconds in bounds.items()
    }
    told = []
    for name in bounds:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "uid", "controller": True}
        told.append((await here.delete(a_victim(ownerReferences=[owner])))["status"]["message"])
    until_then = f"is let finish, until {began + timedelta(seconds=1200):%H:%M:%SZ}"
    assert [until_then in message for message in told] == [True, True, False, True]

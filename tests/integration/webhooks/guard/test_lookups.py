"""What the guard reads besides the pod: its native group, its Job and its budgets."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_policy.config import namespace
from reprieve_policy.preemption.guard import RequestKind
from reprieve_testing.guard.fixture import (
    MARKED,
    NODE,
    PODS,
    TEAM,
    GuardFixture,
    a_victim,
    code_of,
    guard_fixture,
)
from reprieve_testing.objects.builders import a_priority_class
from reprieve_webhooks.guard import reader
from reprieve_webhooks.lookups.limits import BURST_CALLS, CALLS_PER_SECOND


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[GuardFixture]:
    async with guard_fixture(tmp_path, a_victim()) as found:
        yield found


API_SERVER_SECONDS = 3.0
"""As the manifests have it."""
BUDGETS = "/apis/policy/v1/namespaces/team-a/poddisruptionbudgets"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/team-a/podgroups"
THEIRS = "/apis/scheduling.k8s.io/v1beta1/namespaces/team-b/podgroups"
GROUPED = {
    "the group is evicted as a unit": ({"disruptionMode": {"all": {}}}, False),
    "disruption mode single": ({"disruptionMode": {"single": {}}}, True),
    "the group has no disruption mode": ({}, True),
    "the group does not exist": (None, True),
}


@pytest.mark.parametrize(("spec", "is_allowed"), GROUPED.values(), ids=GROUPED)
async def test_whether_a_pod_of_a_native_group_without_a_checkpoint_is_deleted_at_once(
    here: GuardFixture, spec: Any, *, is_allowed: bool
) -> None:
    here.stub.collections[GROUPS] = {} if spec is None else {"train": {"spec": spec}}
    pod = a_victim(annotations={})
    pod["spec"] |= {"schedulingGroup": {"podGroupName": "train"}}
    assert (await here.delete(pod))["allowed"] is is_allowed
    assert bool(here.stub.patches) is not is_allowed


async def test_little_is_kept_of_pods_with_very_many_labels(here: GuardFixture) -> None:
    """Without this, some dozens of them would take all memory of the webhooks."""
    pod = a_victim(labels=MARKED | {f"l{number}": "" for number in range(5000)})
    here.stub.collections[PODS] = here.stub.collections[TEAM] = {"train": pod}
    reader = here.guard._reader
    evicted = await reader.find_pod("team-a", "train", RequestKind.EVICTION)
    other = await reader.find_pod("team-a", "train")
    (marked,) = await reader.pods_under_eviction()
    for found in (evicted, other, marked):
        assert found is not None
        assert found.view.labels == MARKED


async def test_victims_of_very_many_preemptions_can_be_read(here: GuardFixture) -> None:
    """Without this, those that are read last would be deleted without notice."""
    here.stub.collections[TEAM] = {"train": a_victim()}
    for _ in range(round(BURST_CALLS + CALLS_PER_SECOND)):
        assert await here.guard._reader.find_pod("team-a", "train") is not None


async def test_a_group_is_read_if_a_pod_names_one_and_counts_once_it_is_served(
    here: GuardFixture,
) -> None:
    here.stub.collections[GROUPS] = {"later": {"spec": {"disruptionMode": {"all": {}}}}}
    here.stub.absent.add(f"{GROUPS}/later")
    seconds = time.monotonic()
    here.guard._reader._pod_group_getter._single_flight._monotonic = lambda: seconds
    alone, named = a_victim(annotations={}), a_victim(annotations={})
    named["spec"] |= {"schedulingGroup": {"podGroupName": "later"}}
    assert (await here.delete(alone))["allowed"] is True
    assert not any("podgroups" in path for path in here.stub.calls)
    assert all([(await here.delete(named))["allowed"] for _ in range(5)])
    assert here.stub.calls[f"{GROUPS}/later"] == 1
    here.stub.absent.clear()
    seconds += 1
    assert "its whole gang" in (await here.delete(named))["status"]["message"]
    assert here.marked() == ["train"]


async def test_a_pod_of_a_native_group_is_preempted_by_the_priority_of_its_group(
    here: GuardFixture,
) -> None:
    here.stub.collections[GROUPS] = {"train": {"spec": {"priority": 5000}}}
    pod = a_victim()
    pod["spec"] |= {"schedulingGroup": {"podGroupName": "train"}}
    await here.nominate()
    assert "priority" in (await here.delete(pod))["status"]["message"]
    assert here.stub.patches == []


async def test_a_pod_of_a_native_group_is_defended_with_the_preemption_priority_of_its_group(
    here: GuardFixture,
) -> None:
    urgent = a_priority_class().named("urgent").worth(5000).build()
    here.facts.facts = replace(
        here.facts.facts,
        priority_classes={"urgent": urgent},
        settings=replace(here.facts.facts.settings, max_preemption_priority_lift=5000),
    )
    annotations = {keys.PREEMPTION_PRIORITY_CLASS: "urgent"}
    here.stub.collections[GROUPS] = {"train": {"metadata": {"annotations": annotations}}}
    pod = a_victim()
    pod["spec"] |= {"schedulingGroup": {"podGroupName": "train"}}
    await here.nominate()
    assert "priority is not lower" in (await here.delete(pod))["status"]["message"]
    assert here.stub.patches == []


LENT = {
    "by label": ({"metadata": {"labels": {keys.HOME_NAMESPACE: "other"}}}, True),
    "by taint": (
        {
            "spec": {
                "taints": [{"key": keys.HOME_NAMESPACE, "value": "other", "effect": "NoSchedule"}]
            }
        },
        True,
    ),
    "not at all": ({}, False),
}


@pytest.mark.parametrize(("node", "is_marked"), LENT.values(), ids=LENT)
async def test_a_service_is_preempted_on_a_node_that_is_lent_to_it(
    here: GuardFixture, node: Any, *, is_marked: bool
) -> None:
    services = namespace.read_leniently({}, {keys.WORKLOAD_TYPE: "service"})
    here.facts.facts = replace(here.facts.facts, namespace=services)
    here.stub.collections["/api/v1/nodes"] = {NODE: {"metadata": {"name": NODE}} | node}
    await here.nominate()
    said = (await here.delete(a_victim()))["status"]["message"]
    assert ("its node is not lent" in said) is not is_marked
    assert bool(here.stub.patches) is is_marked


async def test_a_pod_that_only_its_own_priority_protects_is_preempted_above_its_groups_priority(
    here: GuardFixture,
) -> None:
    """Without this, its scheduler would count as one that nominates none, and retry often."""
    here.stub.collections[GROUPS] = {"train": {"spec": {"priority": 0}}}
    pod = a_victim()
    pod["spec"] |= {"priority": 5000, "schedulingGroup": {"podGroupName": "train"}}
    assert "asked to save" in (await here.delete_and_nominate(pod))["status"]["message"]
    assert "uid-of-high" in json.dumps(here.stub.patches)
    told = a_victim(labels=MARKED)
    told["spec"] |= pod["spec"]
    codes = [code_of(await here.delete(told)) for _ in range(6)]
    assert codes == [404] * 4 + [429] * 2


async def test_a_pod_of_a_native_group_preempts_with_the_priority_of_its_group(
    here: GuardFixture,
) -> None:
    here.stub.collections[THEIRS] = {"theirs": {"spec": {"priority": 1000}}}
    victim = a_victim()
    victim["spec"] |= {"priority": 10}
    await here.delete_and_nominate(victim, priority=0, schedulingGroup={"podGroupName": "theirs"})
    assert "uid-of-high" in json.dumps(here.stub.patches)


async def test_a_group_that_does_not_outrank_the_victim_only_shows_the_schedulers_mode(
    here: GuardFixture,
) -> None:
    here.stub.collections[THEIRS] = {"theirs": {"spec": {"priority": 10}}}
    victim = a_victim()
    victim["spec"] |= {"priority": 10}
    response = await here.delete_and_nominate(
        victim, priority=5000, schedulingGroup={"podGroupName": "theirs"}
    )
    assert here.marked() == ["train"]
    assert "uid-of-high" not in json.dumps(here.stub.patches)
    assert code_of(response) == 404


async def test_of_a_jobs_changed_deadlines_the_first_one_seen_counts(
    here: GuardFixture,
) -> None:
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1000)
    status = {"startTime": f"{began:%Y-%m-%dT%H:%M:%SZ}"}
    # Names of one Job: what is read of a name is remembered for a second.
    bounds = {"job": 1200, "same-job": 1290, "still-the-same": None, "and-again": 1290}
    here.stub.collections["/apis/batch/v1/namespaces/team-a/jobs"] = {
        name: {
            "metadata": {"uid": "uid"},
            "spec": {"activeDeadlineSeconds": seconds},
            "status": status,
        }
        for name, seconds in bounds.items()
    }
    told = []
    for name in bounds:
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": "uid",
            "controller": True,
        }
        told.append((await here.delete(a_victim(ownerReferences=[owner])))["status"]["message"])
    until_then = f"may finish, until {began + timedelta(seconds=1200):%Y-%m-%dT%H:%M:%SZ}"
    assert [until_then in message for message in told] == [True, True, False, True]


def a_budget(allowed: int, **selector: str) -> Any:
    status = {
        "disruptionsAllowed": allowed,
        "observedGeneration": 1,
        "currentHealthy": 1,
        "desiredHealthy": 1,
    }
    spec = {"selector": {"matchLabels": {"reprieve.dev/preemption-class": "4"} | selector}}
    return {
        "metadata": {"name": "db", "namespace": "team-a", "generation": 1},
        "spec": spec,
        "status": status,
    }


def ready(**metadata: Any) -> Any:
    pod = a_victim(**metadata)
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return pod


BY_BUDGET = {
    "a budget that allows none": ({"db": a_budget(0)}, True),
    "a budget that allows one": ({"db": a_budget(1)}, False),
    "a budget of other pods": ({"db": a_budget(0, app="db")}, False),
    "no budget": ({}, False),
    "an invalid budget": ({"db": {"spec": {"selector": 7}}}, False),
}


@pytest.mark.parametrize(("budgets", "is_held"), BY_BUDGET.values(), ids=BY_BUDGET)
async def test_whether_the_eviction_of_a_pod_with_a_budget_is_allowed(
    tmp_path: Path, budgets: Any, *, is_held: bool
) -> None:
    async with guard_fixture(tmp_path, ready()) as here:
        here.stub.collections[BUDGETS] = budgets
        response = await here.evict()
        # Never allowed: the API server checks later, when the budget may allow the eviction, and
        # the pod would be evicted without notice.
        assert response["status"]["code"] == 429
        assert (
            "PodDisruptionBudget allows no eviction" in response["status"]["message"]
        ) is is_held
        assert bool(here.stub.patches) is not is_held


async def test_where_the_budgets_cannot_be_read_the_pod_is_notified(tmp_path: Path) -> None:
    async with guard_fixture(tmp_path, ready()) as here:
        here.stub.barred.add(BUDGETS)
        assert "asked to save a checkpoint first" in (await here.evict())["status"]["message"]
        assert len(here.stub.patches) == 1


async def test_unreadable_budgets_are_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with guard_fixture(tmp_path, ready()) as here:
        here.stub.barred.add(BUDGETS)
        pods, seconds = here.guard._reader, time.monotonic()
        pods._budget_lists._monotonic = lambda: seconds
        for passing in (0, 2, 2):
            seconds += passing
            await here.evict()
        assert here.stub.calls[BUDGETS] == 3
        pods._logged_at = {what: at - 60 for what, at in pods._logged_at.items()}
        seconds += 2
        await here.evict()
    said = [
        vars(record) for record in caplog.records if "could not read budgets" in record.getMessage()
    ]
    assert [one["namespace"] for one in said] == ["team-a", "team-a"]
    assert "403" in said[0]["error"]


@pytest.mark.parametrize("items", [{"db": a_budget(0)}, {}], ids=["one", "none"])
async def test_readable_budgets_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, items: Any
) -> None:
    async with guard_fixture(tmp_path, ready()) as here:
        here.stub.collections[BUDGETS] = items
        await here.evict()
    assert "could not read budgets" not in caplog.text


async def test_too_many_budgets_are_not_read_and_the_pod_is_notified(
    tmp_path: Path,
) -> None:
    values = [f"{number:063}" for number in range(1000)]
    large = a_budget(0)
    large["spec"]["selector"]["matchExpressions"] = [
        {"key": "tier", "operator": "NotIn", "values": values}
    ]
    async with guard_fixture(tmp_path, ready()) as here:
        here.stub.collections[BUDGETS] = {"db": large}
        assert "PodDisruptionBudget allows no eviction" in (await here.evict())["status"]["message"]
    values *= 20
    async with guard_fixture(tmp_path, ready()) as here:
        here.stub.collections[BUDGETS] = {"db": large}
        assert "asked to save a checkpoint first" in (await here.evict())["status"]["message"]


async def test_the_read_of_budgets_ends_before_the_api_servers_timeout(
    tmp_path: Path,
) -> None:
    pods = [ready(name=f"pod-{number}", uid=f"uid-{number}") for number in range(5)]
    list_timeout_seconds = reader._LIST_TIMEOUT_SECONDS
    assert list_timeout_seconds < API_SERVER_SECONDS / 2, "the other calls need time, too"
    async with guard_fixture(tmp_path, *pods, list_timeout_seconds=list_timeout_seconds) as here:
        here.guard._reader._timeout_seconds = 300.0  # Only the timeout of a list ends the read.
        here.stub.lists_released.clear()
        asked = here.guard._reader._budget_lists
        asked._monotonic = partial(float, asked._monotonic())
        for pod in pods:
            async with asyncio.timeout(60):
                response = await here.evict(pod["metadata"]["name"])
            assert "asked to save a checkpoint first" in response["status"]["message"]
        # Nor does each of a drain wait anew.
        assert here.stub.calls[BUDGETS] == 1


async def test_a_dry_run_of_a_drain_gets_a_warning_about_the_budget(tmp_path: Path) -> None:
    async with guard_fixture(tmp_path, ready()) as here:
        here.stub.collections[BUDGETS] = {"db": a_budget(0)}
        tried = await here.evict(body={"deleteOptions": {"dryRun": ["All"]}})
        # The API server refuses it then, by itself.
        assert tried["allowed"] is True
        assert "PodDisruptionBudget allows no eviction" in tried["warnings"][0]


async def test_a_drain_reads_the_budgets_of_a_namespace_once_and_only_if_a_pod_would_be_notified(
    tmp_path: Path,
) -> None:
    pods = [ready(name=f"pod-{number}", uid=f"uid-{number}") for number in range(20)]
    async with guard_fixture(tmp_path, *pods, ready(name="plain", annotations={})) as here:
        asked = here.guard._reader._budget_lists
        # What was read is not read again for a second, which a busy machine takes for these pods.
        asked._monotonic = partial(float, asked._monotonic())
        assert (await here.evict("plain"))["allowed"]
        assert here.stub.calls[BUDGETS] == 0
        here.stub.collections[BUDGETS] = {"db": a_budget(0)}
        await asyncio.gather(*(here.evict(pod["metadata"]["name"]) for pod in pods))
        assert here.stub.calls[BUDGETS] == 1
        assert here.stub.patches == []

"""What tenants change concerns their own pods: the extender answers for those of others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reprieve_policy import keys
from reprieve_policy.facts import Facts
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import Preemptor, Snapshot
from reprieve_testing.guard.fixture import NODE, PODS, FixedGuardFacts, a_nominee, another_victim
from reprieve_testing.objects.cluster_views import an_extender_call
from reprieve_testing.servers.stub_api import StubApi, stub_api, until
from reprieve_webhooks.extender.metrics import CallOutcome, ExtenderMetrics
from reprieve_webhooks.extender.service import Extender
from reprieve_webhooks.snapshot import informers
from reprieve_webhooks.snapshot.informers import ClusterInformers
from reprieve_webhooks.snapshot.recent_choices import RecentVictimSets

JOBS, GROUPS = "/apis/batch/v1/jobs", "/apis/scheduling.k8s.io/v1beta1/podgroups"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
PODS_EACH = 10


def a_job(seconds: int) -> Any:
    return {
        "metadata": {"name": "j", "namespace": "team-a", "uid": "uid-j"},
        "spec": {"activeDeadlineSeconds": seconds},
        "status": {"startTime": "2026-01-01T00:00:00Z"},
    }


def a_group(minimum: int, mode: str) -> Any:
    annotations = {keys.DISRUPTION_MODE: mode}
    return {
        "metadata": {"name": "g", "namespace": "team-a", "annotations": annotations},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }


def a_pod_of_the_tenant(name: str, node: str | None) -> Any:
    pod = another_victim(name)
    pod["metadata"]["ownerReferences"] = [OWNER]
    pod["spec"] |= {"schedulingGroup": {"podGroupName": "g"}, "nodeName": node}
    if node is None:
        pod["status"] = {"phase": "Pending"}
    return pod


@asynccontextmanager
async def extender(directory: Path) -> AsyncIterator[tuple[Extender, ClusterInformers, StubApi]]:
    """Run an extender beside a tenant's Job and group: half of their pods wait, half run."""
    waiting, low = a_nominee("high", 1000, **asking("8")), another_victim("low")
    del waiting["status"]["nominatedNodeName"]
    low["spec"] |= asking("8")
    pods = {"high": waiting, "low": low}
    for number in range(PODS_EACH):
        pods[f"runs-{number}"] = a_pod_of_the_tenant(f"runs-{number}", "node-2")
        pods[f"waits-{number}"] = a_pod_of_the_tenant(f"waits-{number}", None)
    collections = {
        PODS: pods,
        "/api/v1/nodes": {name: a_node(name) for name in (NODE, "node-2")},
        JOBS: {"j": a_job(1000)},
        GROUPS: {"g": a_group(2, "pod")},
    }
    async with stub_api(directory, collections=collections) as (stub, api):
        stub.lists_released.set()
        view = ClusterInformers(api, FixedGuardFacts(Facts(operator_is_live=True)))
        metrics = ExtenderMetrics(CollectorRegistry())
        running = asyncio.create_task(view.run())
        try:
            await until(lambda: not view.is_stale and view.is_up_to_date)
            await until(lambda: stub.open_watches == len(view.watches()))
            yield (
                Extender(
                    view,
                    RecentVictimSets(),
                    metrics,
                    timeout_seconds=5.0,
                    searches_all_nodes=False,
                ),
                view,
                stub,
            )
        finally:
            running.cancel()
            await asyncio.wait([running])


def a_node(name: str) -> Any:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}}


def asking(cpu: str) -> Any:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


async def change(view: ClusterInformers, stub: StubApi, collection: str, changed: Any) -> None:
    """Send a change, and wait until the watch has seen it."""
    store = view.watches()["jobs" if collection == JOBS else "podgroups"].store
    before = store.changes
    stub.send("MODIFIED", changed, collection)
    await until(lambda: store.changes > before)


def walltimes(snapshot: Snapshot) -> set[int]:
    return {
        pod.progress.walltime.seconds
        for pod in snapshot.nodes["node-2"].pods
        if pod.progress.walltime is not None
    }


def group_minimum(view: ClusterInformers) -> int:
    waiting = view.preemptor("uid-of-waits-0")
    return 0 if waiting is None else waiting.gang_minimum


@pytest.mark.parametrize(
    ("collection", "changed"), [(JOBS, a_job(999)), (GROUPS, a_group(3, "gang"))]
)
async def test_a_job_or_group_that_a_tenant_changes_does_not_hold_up_the_preemptors_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collection: str, changed: Any
) -> None:
    async with extender(tmp_path) as (asked, view, stub):
        # What the extender waits for does not come.
        monkeypatch.setattr(informers, "_BATCH_SIZE", 0)
        await change(view, stub, collection, changed)
        body = an_extender_call({NODE: ["uid-of-low"]}, "uid-of-high")
        response = await asked.answer(lambda: asyncio.sleep(0, body))
        assert response.outcome is CallOutcome.CHOSEN


async def test_the_last_state_of_a_job_and_of_a_group_shows_in_their_pods(tmp_path: Path) -> None:
    async with extender(tmp_path) as (_, view, stub):
        assert (walltimes(view.snapshot()), group_minimum(view)) == ({1000}, 2)
        for number in range(1, 20):
            stub.send("MODIFIED", a_job(1000 - number), JOBS)
            stub.send("MODIFIED", a_group(2 + number, "gang"), GROUPS)
        await until(lambda: walltimes(view.snapshot()) == {981})
        await until(lambda: group_minimum(view) == 21)


async def test_pods_are_not_classified_at_each_change_of_their_job_and_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classified = 0
    classify = snapshot_builder.preemptor_of

    def counted(*args: Any, **kwargs: Any) -> Preemptor:
        nonlocal classified
        classified += 1
        return classify(*args, **kwargs)

    # The changes are taken up once, at the beginning.
    monkeypatch.setattr(informers, "_TENANTS_SECONDS", 3600.0, raising=False)
    async with extender(tmp_path) as (_, view, stub):
        monkeypatch.setattr(snapshot_builder, "preemptor_of", counted)
        for number in range(1, 10):
            await change(view, stub, JOBS, a_job(1000 - number))
            await change(view, stub, GROUPS, a_group(2 + number, "gang"))
        await until(lambda: view.is_up_to_date)
        assert classified == 0

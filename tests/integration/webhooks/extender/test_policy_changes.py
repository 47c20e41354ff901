"""What an admin changes shows in the pods that are classified already."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.preemption.selection.snapshot import ScheduledPod
from reprieve_testing.guard.fixture import NODE, PODS, another_victim
from reprieve_testing.servers.stub_api import StubApi, stub_api, until
from reprieve_webhooks.facts.cluster_facts import ClusterFacts
from reprieve_webhooks.snapshot import informers
from reprieve_webhooks.snapshot.informers import ClusterInformers

NAMESPACES, CLASSES = "/api/v1/namespaces", "/apis/scheduling.k8s.io/v1/priorityclasses"
POLICY = "/api/v1/namespaces/reprieve-system/configmaps"


def a_namespace(**annotations: str) -> Any:
    return {"kind": "Namespace", "metadata": {"name": "team-a", "annotations": annotations}}


def a_config_map(default_class: str) -> Any:
    metadata = {"name": "reprieve-policy", "namespace": "reprieve-system"}
    return {"metadata": metadata, "data": {"defaultPreemptionClass": default_class}}


@asynccontextmanager
async def watching(directory: Path) -> AsyncIterator[tuple[StubApi, ClusterInformers]]:
    """Watch a pod of a Namespace, and the facts by which it is classified."""
    pod = another_victim("low", labels={})
    pod["spec"] |= {"priorityClassName": "training"}
    node = {"metadata": {"name": NODE}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}}
    collections = {
        PODS: {"low": pod},
        "/api/v1/nodes": {NODE: node},
        NAMESPACES: {"team-a": a_namespace()},
        POLICY: {"reprieve-policy": a_config_map("3")},
    }
    async with stub_api(directory, collections=collections) as (stub, api):
        stub.lists_released.set()
        facts = ClusterFacts(api, "reprieve-system", "reprieve-policy", lookup_timeout_seconds=60.0)
        view = ClusterInformers(api, facts)
        running = [asyncio.create_task(each.run()) for each in (facts, view)]
        try:
            watches = len(facts.watches()) + len(view.watches())
            await until(lambda: not view.is_stale and stub.open_watches == watches)
            await until(lambda: view.is_up_to_date)
            yield stub, view
        finally:
            for each in running:
                each.cancel()
            await asyncio.wait(running)


def the_pod(view: ClusterInformers) -> ScheduledPod:
    (found,) = view.snapshot().nodes[NODE].pods
    return found


CHANGES = {
    "its Namespace": (NAMESPACES, a_namespace(**{keys.WORKLOAD_TYPE: "service"})),
    "its PriorityClass": (CLASSES, {"kind": "PriorityClass", "metadata": {"name": "training"}}),
    "the policy": (POLICY, a_config_map("6")),
}


@pytest.mark.parametrize(("collection", "changed"), CHANGES.values(), ids=CHANGES)
async def test_a_change_by_an_admin_shows_in_the_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collection: str, changed: Any
) -> None:
    # Only the calls of a scheduler look for a change.
    monkeypatch.setattr(informers, "_POLICY_CHECK_SECONDS", 3600.0)
    async with watching(tmp_path) as (stub, view):
        before = the_pod(view)
        assert view.is_up_to_date
        stub.send("MODIFIED", changed, collection)
        await until(lambda: view.is_up_to_date and the_pod(view) != before)

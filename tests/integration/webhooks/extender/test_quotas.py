"""Extender and guard: no victim for a preemptor that its ElasticQuota would not admit."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from reprieve_policy import keys
from reprieve_policy.facts import Facts
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.quota import Quota, Quotas
from reprieve_testing.guard.fixture import (
    NODE,
    PODS,
    FixedGuardFacts,
    a_nominee,
    another_victim,
    code_of,
    guard_fixture,
)
from reprieve_testing.objects.builders import a_quota
from reprieve_testing.objects.cluster_views import an_extender_call
from reprieve_testing.servers.stub_api import stub_api, until
from reprieve_webhooks.extender.metrics import CallOutcome, ExtenderMetrics
from reprieve_webhooks.extender.service import Extender
from reprieve_webhooks.snapshot.informers import ClusterInformers
from reprieve_webhooks.snapshot.recent_choices import RecentVictimSets

IN_QUOTA = {keys.QUOTA_NAME: "gpu"}
KEPT = {**IN_QUOTA, keys.PREEMPTIBLE: "false"}
LOW = another_victim("low", labels=IN_QUOTA)
REFUSED = "the preemptor's ElasticQuota would not admit it, whatever its victims"


def bounded(least: str, *, non_preemptible_used: str = "0") -> Quota:
    used = quota.read_amounts({"cpu": non_preemptible_used})
    return replace(
        a_quota("gpu", "admin"),
        min_amounts=quota.read_amounts({"cpu": least}),
        max_amounts=quota.read_amounts({"cpu": "40"}),
        used=used,
        non_preemptible_used=used,
    )


def asking(cpu: str) -> Any:
    return [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]


def placed(pod: Any, node: str, cpu: str) -> Any:
    return {**pod, "spec": {**pod["spec"], "nodeName": node, "containers": asking(cpu)}}


@asynccontextmanager
async def extender(directory: Path, *quotas: Quota) -> AsyncIterator[tuple[Extender, Facts]]:
    """Run an extender beside two nodes: on one runs `kept`, with 4 CPUs of the quota's min."""
    waiting = a_nominee("high", 1000, containers=asking("2"))
    waiting["metadata"]["labels"] = KEPT
    del waiting["status"]["nominatedNodeName"]
    pods = [
        placed(another_victim("kept", labels=KEPT), "node-2", "4"),
        placed(LOW, NODE, "2"),
        waiting,
    ]
    nodes = {
        name: {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "110"}}}
        for name, cpu in ((NODE, "2"), ("node-2", "4"))
    }
    collections = {PODS: {pod["metadata"]["name"]: pod for pod in pods}, "/api/v1/nodes": nodes}
    async with stub_api(directory, collections=collections) as (stub, api):
        stub.lists_released.set()
        facts = Facts(operator_is_live=True, quotas=Quotas(quotas))
        view = ClusterInformers(api, FixedGuardFacts(facts))
        metrics = ExtenderMetrics(CollectorRegistry())
        running = asyncio.create_task(view.run())
        try:
            await until(lambda: not view.is_stale and view.is_up_to_date)
            yield Extender(view, RecentVictimSets(), metrics, timeout_seconds=5.0), facts
        finally:
            running.cancel()
            await asyncio.wait([running])


async def ask(asked: Extender) -> tuple[CallOutcome, list[str]]:
    body = an_extender_call({NODE: ["uid-of-low"]}, "uid-of-high")
    response = await asked.answer(lambda: asyncio.sleep(0, body))
    return response.outcome, list(json.loads(response.body)["NodeNameToMetaVictims"] or ())


async def test_the_extender_takes_no_victim_while_the_min_is_used(tmp_path: Path) -> None:
    async with extender(tmp_path, bounded("4")) as (asked, facts):
        assert await ask(asked) == (CallOutcome.QUOTA_EXCEEDED, [])
        facts.quotas.put(bounded("6"))
        assert await ask(asked) == (CallOutcome.CHOSEN, [NODE])


async def test_the_figures_that_koordinator_publishes_count_too(tmp_path: Path) -> None:
    async with extender(tmp_path, bounded("6", non_preemptible_used="5")) as (asked, _):
        assert await ask(asked) == (CallOutcome.QUOTA_EXCEEDED, [])


async def test_without_elastic_quotas_nothing_is_limited(tmp_path: Path) -> None:
    async with extender(tmp_path) as (asked, _):
        assert await ask(asked) == (CallOutcome.CHOSEN, [NODE])


async def test_the_guard_refuses_the_deletion_by_the_published_figures(tmp_path: Path) -> None:
    async with guard_fixture(tmp_path, LOW) as here:
        quotas = Quotas([bounded("4", non_preemptible_used="4")])
        here.facts.facts = replace(here.facts.facts, quotas=quotas)
        nominee = a_nominee("high", 1000, containers=asking("2"))
        nominee["metadata"]["labels"] = KEPT
        here.stub.send("ADDED", nominee, PODS)
        await until(lambda: len(here.guard.nominated_pods.reflector.items) == 1)
        response = await here.delete(LOW)
        assert f"metadata: Forbidden: {REFUSED}" in response["status"]["message"]
        assert (code_of(response), here.marked()) == (429, [])
        quotas.put(bounded("6", non_preemptible_used="4"))
        await here.delete(LOW)
        assert here.marked() == ["low"]

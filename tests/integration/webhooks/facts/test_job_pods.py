"""What a replica knows of the other pods of a job, where an ElasticQuota counts them."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.facts import Facts
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.objects import Resource
from reprieve_runtime.client.api import Api
from reprieve_testing.objects.builders import PodBuilder, a_pod, a_quota
from reprieve_testing.servers.stub_api import StubApi, stub_api
from reprieve_webhooks.facts import job_pods
from reprieve_webhooks.facts.job_pods import JobPods

PODS = "/api/v1/namespaces/team/pods"
FOUR = quota.read_amounts({"cpu": "4"})
QUOTA = replace(a_quota("gpu", "team"), min_amounts=FOUR)
FACTS = Facts(quotas=Quotas([QUOTA]))
TOLD = ("spec: its job: cpu 6 over min 4 of quota gpu",)


@dataclass
class Replica:
    """One replica, the API server that it asks, and its clock."""

    stub: StubApi
    api: Api
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.jobs = JobPods(self.api, timeout_seconds=5.0, monotonic=lambda: self.now)

    async def warnings(
        self, new: Resource, old: Resource | None = None, *, dry_run: bool = False
    ) -> tuple[str, ...]:
        others = await self.jobs.other_requests(new, old, "team", FACTS, is_dry_run=dry_run)
        return decide_admission(new, old, replace(FACTS, job_requests=others)).warnings

    def store(self, pod: Resource, **metadata: str) -> None:
        """Have the API server know a pod, also one that this replica never saw."""
        document = json.loads(msgspec.json.encode(pod))
        document["metadata"] |= metadata
        del document["kind"]  # as in a list
        self.stub.collections[PODS][pod.metadata.name or ""] = document

    @property
    def calls(self) -> int:
        return sum(count for path, count in self.stub.calls.items() if path.startswith(PODS))


@asynccontextmanager
async def replica(directory: Path) -> AsyncIterator[Replica]:
    async with stub_api(directory, collections={PODS: {}}) as (stub, api):
        stub.lists_released.set()
        yield Replica(stub, api)


def alone(name: str, cpu: str = "3") -> PodBuilder:
    pod = a_pod().named(name).with_uid(f"uid-of-{name}").asking(cpu=cpu)
    return pod.labelled(keys.QUOTA_NAME, "gpu").labelled(keys.PREEMPTIBLE, "false")


def member(name: str, cpu: str = "3") -> Resource:
    return alone(name, cpu).in_gang("job1").build()


async def test_two_bare_pods_of_one_job_are_told_that_they_do_not_fit(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        assert await one.warnings(member("a")) == ()
        assert await one.warnings(member("b")) == TOLD
        assert one.calls == 1


async def test_one_that_another_replica_admitted_counts(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        one.store(member("a"))
        assert await one.warnings(member("b")) == TOLD


async def test_pods_that_come_at_once_cost_one_call(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        pods = [member(f"p{number}", "1") for number in range(4)]
        told = await asyncio.gather(*map(one.warnings, [*pods, member("p4", "2")]))
        assert (sum(map(len, told)), one.calls) == (1, 1)


async def test_a_list_holds_for_a_second(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        assert await one.warnings(member("a")) == ()
        one.now += job_pods.TRUSTED_SECONDS + 1
        # It was refused by another webhook, and is not stored.
        assert await one.warnings(member("b")) == ()
        assert one.calls == 2
        assert len(one.jobs._jobs) == 1


async def test_a_dry_run_leaves_nothing_behind(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        assert await one.warnings(member("a"), dry_run=True) == ()
        assert await one.warnings(member("b")) == ()


async def test_a_pod_that_is_being_deleted_does_not_count(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        one.store(member("a"), deletionTimestamp="2026-11-21T12:00:00Z")
        assert await one.warnings(member("b")) == ()


async def test_a_pod_that_joins_the_job_is_told_and_counts_once(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        one.store(member("a"))
        one.store(member("b"))
        assert await one.warnings(member("b"), alone("b").build()) == TOLD


async def test_other_updates_and_other_pods_cost_no_call(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        one.store(member("a"))
        assert await one.warnings(member("b"), member("b")) == ()
        assert await one.warnings(alone("c").build()) == ()
        assert await one.warnings(a_pod().in_gang("job1").asking(cpu="9").build()) == ()
        assert one.calls == 0


async def test_pods_that_cannot_be_read_do_not_count(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        del one.stub.collections[PODS]
        assert await one.warnings(member("b")) == ()


def test_pods_with_very_many_labels_are_not_all_in_memory_at_once() -> None:
    """As many as a list may have would take more than the webhooks may."""
    document = json.loads(msgspec.json.encode(member("a")))
    document["metadata"]["labels"] |= {f"l{number}": "" for number in range(5000)}
    text = json.dumps({"items": [document] * 20}).encode()
    tracemalloc.start()
    try:
        assert len(job_pods._read_pods(text, "team", FACTS)) == 1
        assert tracemalloc.get_traced_memory()[1] < 2 * len(text)
    finally:
        tracemalloc.stop()

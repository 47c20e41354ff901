"""What a replica knows of the other pods of a job, where an ElasticQuota counts them."""

import asyncio
import json
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import msgspec
import pytest

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.facts import Facts
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.objects import Resource
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.api_error import ANSWER_TOO_LARGE
from reprieve_testing.objects.builders import PodBuilder, a_pod, a_quota
from reprieve_testing.servers.stub_api import StubApi, stub_api
from reprieve_webhooks.facts import job_pod_reader, job_pods
from reprieve_webhooks.facts.job_pods import JobPods

PODS = "/api/v1/namespaces/team/pods"
FOUR = quota.read_amounts({"cpu": "4"})
QUOTA = replace(a_quota("gpu", "team"), min_amounts=FOUR)
FACTS = Facts(quotas=Quotas([QUOTA]))
LABELS = {keys.QUOTA_NAME: "gpu", keys.PREEMPTIBLE: "false"}
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


async def test_pods_with_very_many_labels_are_not_all_in_memory_at_once() -> None:
    """As many as a list may have would take more than the webhooks may."""
    document = json.loads(msgspec.json.encode(member("a")))
    document["metadata"]["labels"] |= {f"l{number}": "" for number in range(5000)}
    text = json.dumps({"items": [document] * 20}).encode()
    tracemalloc.start()
    try:
        assert len(await job_pod_reader.read_pods(text, "team", FACTS) or ()) == 1
        assert tracemalloc.get_traced_memory()[1] < 2 * len(text)
    finally:
        tracemalloc.stop()


class CountingApi:
    """Answers each list after a while, and counts how many are read at a time."""

    def __init__(self) -> None:
        self.lists: list[str] = []
        self.under_way: Counter[str] = Counter()
        self.most_at_once = self.most_of_a_namespace = 0
        self.is_too_large = False
        self.seconds = 0.001

    async def request(self, _method: str, path: str, *, max_bytes: int, **_: object) -> bytes:
        self.lists.append(path)
        self.under_way[path] += 1
        self.most_at_once = max(self.most_at_once, self.under_way.total())
        self.most_of_a_namespace = max(self.most_of_a_namespace, *self.under_way.values())
        await asyncio.sleep(self.seconds)
        self.under_way[path] -= 1
        if self.is_too_large:
            raise ApiError(0, ANSWER_TOO_LARGE, f"more than {max_bytes} bytes")
        return b'{"items": []}'


def counted(api: CountingApi, monotonic: Callable[[], float] = lambda: 1000.0) -> JobPods:
    return JobPods(cast("Api", api), timeout_seconds=30.0, monotonic=monotonic)


async def review_gangs(jobs: JobPods, gangs: range, namespace: str = "team") -> None:
    pods = [alone("a").in_gang(f"job{number}").build() for number in gangs]
    await asyncio.gather(
        *(jobs.other_requests(pod, None, namespace, FACTS, is_dry_run=True) for pod in pods)
    )


async def test_two_lists_are_read_at_a_time_and_one_of_a_namespace() -> None:
    """Each takes up to 16 MiB; one dry run for each of a hundred gangs would take all memory."""
    api = CountingApi()
    jobs = counted(api)
    await asyncio.gather(*(review_gangs(jobs, range(10), name) for name in ("team", "x", "y")))
    assert (api.most_at_once, api.most_of_a_namespace, len(api.lists)) == (2, 1, 30)


async def test_the_jobs_of_one_namespace_do_not_use_up_the_lists_of_others() -> None:
    api = CountingApi()
    jobs = counted(api)
    await review_gangs(jobs, range(100))
    own = len(api.lists)
    await review_gangs(jobs, range(10), "other")
    assert (own, len(api.lists)) == (50, 60)


async def test_a_list_that_is_too_large_is_not_read_again_for_each_review() -> None:
    api, now = CountingApi(), 1000.0
    api.is_too_large = True
    jobs = counted(api, lambda: now)
    for _ in range(3):
        await review_gangs(jobs, range(1))
    assert len(api.lists) == 1
    now += job_pods.TRUSTED_SECONDS + 1
    await review_gangs(jobs, range(1))
    assert len(api.lists) == 2


async def test_a_list_that_waits_too_long_for_its_turn_is_not_counted() -> None:
    api = CountingApi()
    jobs = JobPods(cast("Api", api), timeout_seconds=0.01)
    own_turn = jobs._reader._turns_by_namespace.setdefault("team", asyncio.Lock())
    async with own_turn:
        await review_gangs(jobs, range(10))
    assert api.lists == []
    assert all(known.listed is None for known in jobs._jobs.values())


def a_list_of(pods: int, *, containers: int = 1, resources: int = 1, padding: int = 0) -> bytes:
    """Return a list of pods whose containers request a CPU, and made-up resources."""
    amounts = {"cpu": "1"} | {f"a/{number}": "1" for number in range(resources - 1)}
    spec = {"containers": [{"resources": {"requests": amounts}}] * containers}
    items = [
        {"metadata": {"name": f"p{number}", "labels": LABELS}, "spec": spec, "x": "x" * padding}
        for number in range(pods)
    ]
    return json.dumps({"items": items}).encode()


async def test_a_usual_job_of_a_thousand_pods_is_counted() -> None:
    text = a_list_of(1000, containers=4, resources=3, padding=7 * 1024)
    assert len(text) < job_pod_reader._MAX_LIST_BYTES
    found = await job_pod_reader.read_pods(text, "team", FACTS)
    assert found is not None
    assert len(found) == 1000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(a_list_of(3, containers=10, resources=1000), id="requests"),
        pytest.param(a_list_of(3, containers=10_000), id="containers"),
    ],
)
async def test_pods_with_very_many_requests_are_not_added_up(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes microseconds in which no review is answered."""
    read: list[int] = []
    read_amounts = quota.read_amounts
    monkeypatch.setattr(
        quota,
        "read_amounts",
        lambda written: read.append(1 + len(written)) or read_amounts(written),
    )
    assert await job_pod_reader.read_pods(text, "team", FACTS) is None
    assert sum(read) <= job_pod_reader._MAX_ENTRIES


async def test_other_reviews_have_their_turn_while_a_list_is_decoded() -> None:
    text = a_list_of(1000, padding=4 * 1024)
    turns = 0
    reading = asyncio.create_task(job_pod_reader.read_pods(text, "team", FACTS))
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > len(text) // (2 * job_pod_reader._STEP_BYTES)


async def test_only_what_the_quota_limits_is_kept() -> None:
    found = await job_pod_reader.read_pods(a_list_of(2, resources=1000), "team", FACTS)
    assert found is not None
    assert [list(pod.amounts) for pod in found.values()] == [["cpu"], ["cpu"]]


async def test_the_amounts_that_are_kept_of_all_jobs_are_bounded(tmp_path: Path) -> None:
    """Also where a user may write a quota that names a thousand resources."""
    names = {"cpu": "4"} | {f"a/{number}": "1" for number in range(999)}
    facts = Facts(quotas=Quotas([replace(QUOTA, min_amounts=quota.read_amounts(names))]))
    async with replica(tmp_path) as one:
        for item in json.loads(a_list_of(15, resources=1000))["items"]:
            one.stub.collections[PODS][item["metadata"]["name"]] = item
        for number in range(10):
            pod = alone("a").in_gang(f"job{number}").build()
            others = await one.jobs.other_requests(pod, None, "team", facts, is_dry_run=True)
            assert len(others.requested) == 1000
        kept = [known.listed or {} for known in one.jobs._jobs.values()]
        assert sum(len(pod.amounts) for listed in kept for pod in listed.values()) <= 50_000
        assert len(kept) == 3

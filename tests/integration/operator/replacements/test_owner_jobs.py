"""A Job is read once for all its victims, and again after a second; a missing Job each time."""

import asyncio
import gc
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.replacements.owner_jobs import OwnerJobs
from reprieve_policy.kube.jobs import Job
from reprieve_testing.objects.builders import NOW

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": True}
JOB = {"metadata": {"name": "j", "namespace": "team", "uid": "job"}, "spec": {}}


def a_pod_of_the_job(uid: str, namespace: str = "team") -> VictimPod:
    metadata = {"name": uid, "namespace": namespace, "uid": uid, "ownerReferences": [OWNER]}
    return msgspec.convert({"metadata": metadata, "spec": {}}, VictimPod)


class Cluster:
    """Answers with one Job and two pods, and counts the reads."""

    def __init__(self) -> None:
        self.job: Mapping[str, Any] | None = JOB
        self.now, self.reads, self.lists = 0.0, 0, 0
        clock = SimpleNamespace(monotonic=lambda: self.now, now=lambda: NOW)
        self.jobs = OwnerJobs(cast("Writes", self), cast("Clock", clock))

    async def get(self, path: str, kind: type[Job]) -> Job | None:
        self.reads += 1
        await asyncio.sleep(0)
        is_known = self.job is not None and "/namespaces/team/" in path
        return msgspec.convert(self.job, kind) if is_known else None

    async def list_pages(self, *_: object, **__: object) -> AsyncIterator[list[VictimPod]]:
        self.lists += 1
        yield [a_pod_of_the_job("a"), a_pod_of_the_job("b")]


async def test_victims_of_one_job_share_what_was_read_for_a_second():
    cluster, reads = Cluster(), []
    for now, uid in ((0.0, "a"), (0.9, "b"), (1.0, "a")):
        cluster.now = now
        found = await cluster.jobs.get(a_pod_of_the_job(uid))
        assert found is not None
        assert len(found.other_pods) == 1
        reads.append((cluster.reads, cluster.lists))
    assert reads == [(1, 1), (1, 1), (2, 2)]


async def test_a_pod_of_another_namespace_that_names_the_same_owner_changes_nothing():
    cluster = Cluster()
    pods = [a_pod_of_the_job("x", "attacker"), a_pod_of_the_job("a")]
    assert [found is not None for found in await asyncio.gather(*map(cluster.jobs.get, pods))] == [
        False,
        True,
    ]


async def test_a_job_that_does_not_exist_is_read_each_time():
    cluster = Cluster()
    cluster.job = None
    for _ in range(2):
        assert await cluster.jobs.get(a_pod_of_the_job("a")) is None
    cluster.job = {**JOB, "metadata": {**JOB["metadata"], "uid": "another"}}
    assert await cluster.jobs.get(a_pod_of_the_job("a")) is None
    assert (cluster.reads, cluster.lists) == (3, 0)


async def test_of_a_job_that_was_read_little_is_kept():
    """Without this, 256 Jobs with very many labels, once a second, would take all memory."""
    cluster, known = Cluster(), len(jobs_in_memory())
    assert await cluster.jobs.get(a_pod_of_the_job("a")) is not None
    assert len(jobs_in_memory()) == known


def jobs_in_memory() -> list[Job]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Job)]

"""What a replica knows of a gang: one record of its live members.

Only the first pod and one that differs cost a call.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import ObjectMeta, Resource
from reprieve_runtime.client.api import Api
from reprieve_testing.objects.builders import PodBuilder, a_pod
from reprieve_testing.servers.stub_api import StubApi, stub_api
from reprieve_webhooks.facts import gang_records
from reprieve_webhooks.facts.gang_records import GangRecords
from reprieve_webhooks.lookups import limits

PODS = "/api/v1/namespaces/team/pods"
FACTS = Facts()


@dataclass
class Replica:
    """One replica's records, the API server that it asks, and its clock."""

    stub: StubApi
    api: Api
    now: float = 1000.0
    max_gangs: int = gang_records.MAX_GANGS

    def __post_init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.restart()

    def restart(self) -> None:
        """Forget everything, as a new process does."""
        self.gangs = GangRecords(
            self.api,
            timeout_seconds=5.0,
            count=lambda outcome: self.found.update([outcome]),
            max_gangs=self.max_gangs,
            monotonic=lambda: self.now,
        )

    async def is_admitted(self, pod: PodBuilder, *, dry_run: bool = False) -> bool:
        new = pod.build()
        rest = await self.gangs.other_members_traits(new, "team", FACTS, is_dry_run=dry_run)
        return decide_admission(new, None, replace(FACTS, gang_traits=rest)).is_allowed

    async def creates(self, pod: PodBuilder) -> bool:
        """Create a pod where that is admitted, and say whether it was."""
        is_admitted = await self.is_admitted(pod)
        if is_admitted:
            self.store(pod)
        return is_admitted

    def store(self, pod: PodBuilder, **status: str) -> None:
        """Have the API server know a pod, also one that this replica never saw."""
        new = pod.build()
        document = json.loads(msgspec.json.encode(new)) | {"status": status}
        del document["kind"]  # as in a list
        self.stub.collections[PODS][new.metadata.name or ""] = document

    def delete_all(self) -> None:
        self.stub.collections[PODS].clear()

    @property
    def calls(self) -> int:
        return sum(count for path, count in self.stub.calls.items() if path.startswith(PODS))


@asynccontextmanager
async def replica(directory: Path, **settings: int) -> AsyncIterator[Replica]:
    async with stub_api(directory, collections={PODS: {}}) as (stub, api):
        stub.lists_released.set()
        yield Replica(stub, api, **settings)


def member(name: str, gang: str = "train") -> PodBuilder:
    return a_pod().named(name).with_uid(f"uid-of-{name}").in_gang(gang)


def unselectable(name: str) -> PodBuilder:
    return a_pod().named(name).with_uid(f"uid-of-{name}").in_koordinators_gang("train")


async def test_a_pod_that_differs_from_a_living_member_is_refused(tmp_path: Path):
    async with replica(tmp_path) as one:
        assert await one.creates(member("a"))
        assert not await one.creates(member("b").in_class(5))
        assert await one.creates(member("c"))
        assert not await one.creates(member("d", "train").labelled(keys.PREEMPTIBLE, "false"))
        assert await one.creates(member("e", "other").in_class(5))


async def test_a_gang_of_large_pods_takes_little_memory_and_fails_no_review(tmp_path: Path):
    """A review that fails admits its pod unchecked."""
    async with replica(tmp_path) as one:
        one.store(member("a").annotated("example.com/note", "x" * 1024 * 1024))
        assert await one.is_admitted(member("b").in_class(5))
        assert one.calls == 2
        queries = [path for _, path, _ in one.stub.accepts]
        assert ["limit=8" in queries[0], "limit=1" in queries[1]] == [True, True]
    async with replica(tmp_path) as one:
        one.stub.serves_pages = True
        for name in ("a", "b", "c"):
            one.store(member(name).annotated("example.com/note", "x" * 400_000))
        assert not await one.is_admitted(member("d").in_class(5))


async def test_a_thousand_pods_of_one_gang_cost_one_call_and_one_record(tmp_path: Path):
    async with replica(tmp_path) as one:
        for number in range(1000):
            assert await one.is_admitted(member(f"p{number}"))
        assert (one.calls, len(one.gangs)) == (1, 1)


async def test_a_thousand_pods_at_once_cost_one_call(tmp_path: Path):
    async with replica(tmp_path) as one:
        one.store(member("a"))
        admitted = await asyncio.gather(
            *(one.is_admitted(member(f"p{number}")) for number in range(1000))
        )
        assert all(admitted)
        assert one.calls == 1


async def test_of_two_pods_that_differ_and_come_at_once_one_is_refused(tmp_path: Path):
    async with replica(tmp_path) as one:
        pods = (member("a"), member("b").in_class(5))
        assert sorted(await asyncio.gather(*map(one.creates, pods))) == [False, True]


async def test_a_pod_that_was_admitted_and_never_created_refuses_no_other(tmp_path: Path):
    """Without this, a client without credentials could keep the pods of a gang out."""
    async with replica(tmp_path) as one:
        for _ in range(3):
            assert await one.is_admitted(member("forged").in_class(5))
            assert await one.is_admitted(member("a"))
            one.now += gang_records.IN_FLIGHT_SECONDS + 0.1


async def test_a_restart_in_between_does_not_matter(tmp_path: Path):
    async with replica(tmp_path) as one:
        assert await one.creates(member("a"))
        one.restart()
        assert not await one.creates(member("b").in_class(5))
        assert await one.creates(member("c"))


async def test_a_gang_created_again_may_state_other_values(tmp_path: Path):
    async with replica(tmp_path) as one:
        assert await one.creates(member("a"))
        one.delete_all()
        one.now += gang_records.IN_FLIGHT_SECONDS + 0.1
        assert await one.creates(member("a").in_class(5))
        assert not await one.creates(member("b"))


async def test_members_that_have_ended_or_are_terminating_do_not_count(tmp_path: Path):
    async with replica(tmp_path) as one:
        for number, phase in enumerate(("Succeeded", "Failed")):
            one.store(member(f"p{number}").in_class(3), phase=phase)
        one.store(member("leaving").in_class(3).being_deleted(), phase="Running")
        assert await one.creates(member("a").in_class(5))


async def test_a_listed_pod_that_is_no_member_does_not_count(tmp_path: Path):
    async with replica(tmp_path) as one:
        one.store(member("of-another", "other").in_class(3))
        one.store(a_pod().named("of-none").in_class(3))
        assert await one.creates(member("a").in_class(5))


async def test_members_that_another_replica_admitted_count(tmp_path: Path):
    async with replica(tmp_path) as one:
        one.store(member("a").in_class(5))
        assert not await one.creates(member("b"))


async def test_a_record_is_confirmed_again_after_a_while(tmp_path: Path):
    async with replica(tmp_path) as one:
        assert await one.creates(member("a"))
        one.delete_all()
        one.store(member("made-by-another").in_class(5))
        one.now += gang_records.TRUSTED_SECONDS + 1
        assert not await one.creates(member("b"))


async def test_after_a_change_of_a_member_the_gang_is_read_again(tmp_path: Path):
    async with replica(tmp_path) as one:
        assert await one.creates(member("a").in_class(5))
        one.store(member("a").in_class(3))
        one.gangs.forget(member("a").in_class(3).build(), "team")
        assert not await one.creates(member("b").in_class(5))
        assert await one.creates(member("c").in_class(3))
        one.gangs.forget(a_pod().build(), "team")


async def test_a_dry_run_leaves_nothing_behind(tmp_path: Path):
    async with replica(tmp_path) as one:
        assert await one.is_admitted(member("a"), dry_run=True)
        assert len(one.gangs) == 0
        assert await one.creates(member("b").in_class(5))


async def test_without_a_label_selector_the_members_admitted_last_are_read(tmp_path: Path):
    async with replica(tmp_path) as one:
        for name in ("a", "b", "c", "d"):
            assert await one.creates(unselectable(name))
        assert one.calls == 0
        del one.stub.collections[PODS]["d"]
        assert not await one.creates(unselectable("e").in_class(5))
        one.now += gang_records.IN_FLIGHT_SECONDS + 0.1
        # Another pod under the name of a member is none.
        one.delete_all()
        one.store(unselectable("d").with_uid("of-another").in_class(5))
        assert await one.creates(unselectable("f").in_class(5))


async def test_without_a_label_selector_the_first_member_after_a_restart_counts(tmp_path: Path):
    async with replica(tmp_path) as one:
        assert await one.creates(unselectable("a"))
        one.restart()
        assert await one.creates(unselectable("b").in_class(5))
        assert not await one.creates(unselectable("c"))


async def test_an_api_server_that_fails_refuses_nothing_and_is_counted(tmp_path: Path):
    async with replica(tmp_path) as one:
        assert await one.creates(member("a"))
        assert await one.creates(unselectable("b"))
        one.stub.is_failing = True
        assert await one.is_admitted(member("c").in_class(5))
        assert await one.is_admitted(unselectable("d").in_class(5))
        one.stub.is_failing = False
        assert not await one.is_admitted(member("c").in_class(5))
        assert one.found == {"no-member": 1, "unknown": 2, "member": 1}


async def test_a_flood_of_new_gangs_is_not_passed_on_to_the_api_server(tmp_path: Path):
    async with replica(tmp_path) as one:
        flood = (one.is_admitted(member("a", f"gang-{number}")) for number in range(1000))
        assert all(await asyncio.gather(*flood))
        assert one.calls == limits.BURST_CALLS // 2, "the rest is for other namespaces"
        assert len(one.gangs) == limits.BURST_CALLS // 2


async def test_the_number_of_records_is_bounded_and_the_longest_unused_is_dropped(tmp_path: Path):
    async with replica(tmp_path, max_gangs=3) as one:
        for name in ("a", "b", "c", "a", "d"):
            assert await one.creates(member(f"of-{name}-{one.calls}", name))
        before = one.calls
        assert len(one.gangs) == 3
        assert await one.is_admitted(member("again", "a"))
        assert one.calls == before
        assert await one.is_admitted(member("again", "b"))
        assert one.calls == before + 1


async def test_the_pods_of_a_job_cost_no_call(tmp_path: Path):
    async with replica(tmp_path) as one:
        assert await one.is_admitted(a_pod().labelled(keys.JOB, "train"))
        assert await one.is_admitted(a_pod())
        assert (one.calls, len(one.gangs)) == (0, 0)


async def test_no_namespace_can_change_the_path_of_a_call(tmp_path: Path):
    async with replica(tmp_path) as one:
        for namespace in ("..", "a/b", "", "A"):
            assert (
                await one.gangs.other_members_traits(member("a").build(), namespace, FACTS) is None
            )
        assert one.stub.calls.total() == 0


async def test_a_pod_without_a_name_is_not_remembered_as_a_member(tmp_path: Path):
    async with replica(tmp_path) as one:
        nameless = Resource(
            kind="Pod", metadata=ObjectMeta(annotations={keys.KOORDINATOR_GANG: "train"})
        )
        await one.gangs.other_members_traits(nameless, "team", FACTS)
        assert await one.is_admitted(unselectable("b"))
        assert one.calls == 0

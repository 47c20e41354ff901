"""The divergence monitor: reads only what changed, reports once, forgets what is gone."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VersionedObject
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.gangs import pod_groups
from reprieve_operator.gangs.divergence import DivergenceMonitor
from reprieve_operator.gangs.pod_groups import CONDITION, ListedPodGroup, PodGroupConditions
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import NOW, PodBuilder, a_pod
from reprieve_testing.servers.stub_api import StubApi, stub_api

PODS = "/api/v1/namespaces/team/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/podgroups"
DIFFERS = (
    'differs from other pods of gang "a" in class; a gang is preempted as a whole or not at all'
)
Said = tuple[str, str, str]


@dataclass
class Count:
    """A monitor, the API server that it reads, its Events and its writes."""

    stub: StubApi
    monitor: DivergenceMonitor
    told: list[Said]
    written: list[Any]
    refusal: list[ApiError]
    policy: SimpleNamespace

    async def sweep(self, *pods: PodBuilder, **status: str) -> list[Said]:
        """Pass the metadata of pods on as a resync does, and return the Events."""
        self.serve(*pods, **status)
        self.list_pods()
        self.told.clear()
        await self.monitor.check_changed_namespaces()
        return list(self.told)

    def serve(self, *pods: PodBuilder, **status: str) -> None:
        """Have the API server know these pods, and no others."""
        self.stub.collections[PODS] = {
            str(number): as_json(pod, status) for number, pod in enumerate(pods)
        }

    def list_pods(self) -> None:
        """Begin a resync, up to the end of its list."""
        self.monitor.begin()
        for document in self.stub.collections[PODS].values():
            self.monitor.add_pod(
                msgspec.convert({"metadata": document["metadata"]}, VersionedObject).metadata
            )

    @property
    def reads(self) -> int:
        return self.stub.calls[PODS]


@dataclass
class _Writes:
    written: list[Any]
    refusal: list[ApiError] = field(default_factory=list)

    async def write_conditions(
        self, path: str, metadata: VersionedMeta, conditions: list[Any]
    ) -> None:
        if self.refusal:
            raise self.refusal.pop()
        self.written.append((path, metadata.resourceVersion, conditions))


@asynccontextmanager
async def counting(
    directory: Path, *groups: Any, policy: NamespacePolicy | None = None
) -> AsyncIterator[Count]:
    known = {CLASSES: {}, GROUPS: {str(number): group for number, group in enumerate(groups)}}
    async with stub_api(directory, collections=known) as (stub, api):
        stub.lists_released.set()
        told: list[Said] = []
        writes = _Writes([])
        known_policy = SimpleNamespace(of_namespace=policy or NamespacePolicy())

        def announce(about: ObjectReference, reason: str, note: str) -> None:
            told.append((about.name, reason, note))

        monitor = DivergenceMonitor(
            api,
            cast("Writes", writes),
            cast("EventRecorder", SimpleNamespace(event=announce)),
            cast("PolicySource", SimpleNamespace(current=PolicySettings())),
            cast("NamespacePolicies", SimpleNamespace(get=lambda _: known_policy.of_namespace)),
            SimpleNamespace(now=lambda: NOW),  # type: ignore[arg-type]  # the part of a clock that is asked
        )
        yield Count(stub, monitor, told, writes.written, writes.refusal, known_policy)


def as_json(pod: PodBuilder, status: dict[str, str]) -> Any:
    new = pod.build()
    document = json.loads(msgspec.json.encode(replace(new, kind="")))
    return document | {"status": status}


def member(name: str, gang: str = "a") -> PodBuilder:
    return a_pod().named(name).with_uid(f"uid-of-{name}").in_gang(gang)


def a_group(name: str = "g", priority: int | None = 0, conditions: Any = None) -> Any:
    metadata = {"name": name, "namespace": "team", "uid": f"uid-of-{name}", "resourceVersion": "7"}
    return {
        "metadata": metadata,
        "spec": {"priority": priority},
        "status": {"conditions": conditions},
    }


def native(name: str, priority: int) -> PodBuilder:
    return (
        a_pod().named(name).with_uid(f"uid-of-{name}").in_native_gang("g").with_priority(priority)
    )


async def test_a_diverging_gang_is_reported_once_and_counted_until_it_agrees(tmp_path: Path):
    async with counting(tmp_path) as count:
        differing = member("p2").in_class(5)
        assert await count.sweep(member("p1"), differing) == [("p2", "GangDiverges", DIFFERS)]
        assert count.monitor.count_diverging() == 1
        (known,) = count.monitor.diverging()
        assert (f'"{known.name}"' in DIFFERS, known.text) == (True, DIFFERS)
        assert await count.sweep(member("p1"), differing, member("p3")) == []
        assert count.monitor.count_diverging() == 1
        assert await count.sweep(member("p1"), member("p3")) == []
        assert count.monitor.count_diverging() == 0


async def test_an_unchanged_namespace_is_not_read_again(tmp_path: Path):
    async with counting(tmp_path) as count:
        pods = (member("p1"), member("p2"))
        await count.sweep(*pods)
        await count.sweep(*reversed(pods))
        await count.sweep(*pods, a_pod().named("of-none").with_uid("of-none"))
        assert count.reads == 1
        await count.sweep(*pods, member("p3"))
        await count.sweep(member("p1").in_class(5), member("p2"), member("p3"))
        assert count.reads == 3


async def test_a_pod_that_was_made_after_the_list_and_is_gone_before_the_next_is_forgotten(
    tmp_path: Path,
):
    """The lists before and after are the same, and between them it was reported."""
    async with counting(tmp_path, a_group()) as count:
        agreeing = (member("p1"), native("n1", 0))
        count.serve(*agreeing)
        count.list_pods()
        count.serve(*agreeing, member("p2").in_class(5), native("n2", 9))
        await count.monitor.check_changed_namespaces()
        assert count.monitor.count_diverging() == 2
        ((_, _, conditions),) = count.written
        count.written.clear()
        count.stub.collections[GROUPS]["0"] = a_group(conditions=conditions)
        await count.sweep(*agreeing)
        assert count.monitor.count_diverging() == 0
        ((_, _, (condition,)),) = count.written
        assert condition["reason"] == "PodsMatch"


async def test_what_a_pod_made_after_the_list_is_part_of_is_not_read_again(tmp_path: Path):
    async with counting(tmp_path) as count:
        count.serve(member("p1"))
        count.list_pods()
        count.serve(member("p1"), member("p2"))
        await count.monitor.check_changed_namespaces()
        await count.sweep(member("p1"), member("p2"))
        assert count.reads == 1


async def test_a_resync_that_failed_midway_has_nothing_read_again(tmp_path: Path):
    async with counting(tmp_path) as count:
        pods = (member("p1"), member("p2"))
        await count.sweep(*pods)
        count.serve(*pods[:1])
        count.list_pods()
        await count.sweep(*pods)
        assert count.reads == 1


async def test_a_change_of_a_policy_has_a_namespace_read_again(tmp_path: Path):
    """An admin mends a divergence by the Namespace's default class, say."""
    async with counting(tmp_path, policy=NamespacePolicy(default_class=4)) as count:
        pods = (member("p1"), member("p2").in_class(5))
        await count.sweep(*pods)
        assert count.monitor.count_diverging() == 1
        count.policy.of_namespace = NamespacePolicy(default_class=5)
        await count.sweep(*pods)
        assert count.monitor.count_diverging() == 0


async def test_a_namespace_without_gangs_is_never_read(tmp_path: Path):
    async with counting(tmp_path) as count:
        await count.sweep(a_pod().with_uid("u"))
        assert (count.reads, count.stub.calls[CLASSES]) == (0, 0)


async def test_nothing_is_reported_if_enforcement_is_off(tmp_path: Path):
    async with counting(tmp_path, policy=NamespacePolicy(enforcement="off")) as count:
        assert await count.sweep(member("p1"), member("p2").in_class(5)) == []
        assert count.reads == 0


async def test_a_namespace_that_is_gone_is_forgotten(tmp_path: Path):
    async with counting(tmp_path) as count:
        await count.sweep(member("p1"), member("p2").in_class(5))
        await count.sweep()
        assert count.monitor.count_diverging() == 0
        assert len(count.monitor._checked_hashes) == 0


async def test_ended_and_terminating_pods_do_not_count(tmp_path: Path):
    async with counting(tmp_path) as count:
        assert await count.sweep(member("p1"), member("p2").in_class(5), phase="Succeeded") == []
        assert await count.sweep(member("p1"), member("p2").in_class(5).being_deleted()) == []


async def test_a_failed_read_is_repeated(tmp_path: Path):
    async with counting(tmp_path) as count:
        pods = (member("p1"), member("p2").in_class(5))
        count.stub.is_failing = True
        with pytest.raises(ApiError):
            await count.sweep(*pods)
        count.stub.is_failing = False
        assert len(await count.sweep(*pods)) == 1


async def test_pods_of_another_priority_set_a_condition_of_their_group(tmp_path: Path):
    async with counting(tmp_path, a_group()) as count:
        await count.sweep(native("p1", 0), native("p2", 9))
        ((path, version, (condition,)),) = count.written
        assert (path, version) == (
            f"{GROUPS.replace('podgroups', 'namespaces/team/podgroups')}/g/status",
            "7",
        )
        assert condition == {
            "type": CONDITION,
            "status": "True",
            "reason": "PodsOfAnotherPriority",
            "message": "pods with another priority than the group's 0: 1",
            "lastTransitionTime": "2026-11-21T12:00:00Z",
        }


async def test_groups_that_are_not_served_cost_one_call_a_resync_and_count_once_they_are(
    tmp_path: Path,
):
    async with counting(tmp_path, a_group()) as count:
        count.stub.absent.add(GROUPS)
        for sweeps in (1, 2, 3):
            assert (
                await count.sweep(native("p1", 9), a_pod().named("alone").with_uid("alone")) == []
            )
            assert count.stub.calls[GROUPS] == sweeps
        assert count.written == []
        count.stub.absent.clear()
        await count.sweep(native("p1", 9))
        ((_, _, (condition,)),) = count.written
        assert condition["status"] == "True"


async def test_the_condition_changes_when_the_last_pod_of_a_group_is_gone(tmp_path: Path):
    async with counting(tmp_path, a_group(conditions=[TRUE])) as count:
        await count.sweep()
        ((_, _, (condition,)),) = count.written
        assert (condition["status"], condition["reason"]) == ("False", "PodsMatch")


async def test_a_group_that_another_client_changed_is_written_in_the_next_resync(tmp_path: Path):
    async with counting(tmp_path, a_group()) as count:
        count.refusal.append(ApiError(409, "Conflict", "changed"))
        await count.sweep(native("p1", 9))
        assert count.written == []
        await count.sweep(native("p1", 9))
        assert len(count.written) == 1


async def test_a_failed_write_prevents_no_other_and_is_repeated(tmp_path: Path):
    async with counting(tmp_path, a_group()) as count:
        count.refusal.append(ApiError(500, "InternalError", "x"))
        await count.sweep(native("p1", 9), member("p2"))
        assert count.written == []
        await count.sweep(native("p1", 9), member("p2"))
        assert len(count.written) == 1


async def test_a_group_without_pods_or_with_equal_pods_gets_no_condition(tmp_path: Path):
    async with counting(
        tmp_path, a_group(), a_group("empty"), a_group("without", priority=None)
    ) as count:
        await count.sweep(native("p1", 0))
        assert count.written == []


OTHER = {"type": "PodGroupInitiallyScheduled", "status": "True"}
TRUE = {
    "type": CONDITION,
    "status": "True",
    "reason": "PodsOfAnotherPriority",
    "message": "pods with another priority than the group's 0: 1",
    "lastTransitionTime": "2026-11-20T00:00:00Z",
}
NOW_TEXT = "2026-11-21T12:00:00Z"
CONDITIONS: dict[str, tuple[Any, int, Any]] = {
    "a condition that was never true is not written": ([OTHER], 0, None),
    "an unchanged condition is not written": ([OTHER, TRUE], 1, None),
    "conditions of other controllers stay": (
        [OTHER],
        1,
        [OTHER, TRUE | {"lastTransitionTime": NOW_TEXT}],
    ),
    "another number of pods is no transition": (
        [TRUE],
        2,
        [TRUE | {"message": "pods with another priority than the group's 0: 2"}],
    ),
    "the end of a divergence is written": (
        [TRUE, OTHER],
        0,
        [
            TRUE
            | {
                "status": "False",
                "reason": "PodsMatch",
                "message": "all pods have the group's priority 0",
                "lastTransitionTime": NOW_TEXT,
            },
            OTHER,
        ],
    ),
}


@pytest.mark.parametrize(("before", "misfits", "after"), CONDITIONS.values(), ids=CONDITIONS)
def test_when_the_condition_of_a_group_changes(before: Any, misfits: int, after: Any) -> None:
    group = msgspec.convert(a_group(conditions=before), ListedPodGroup)
    assert pod_groups._desired_conditions(group, misfits, NOW_TEXT) == after


async def test_little_is_kept_of_groups_with_very_many_labels(tmp_path: Path) -> None:
    """Without this, 30 groups of 1.3 MB would end the operator for its memory, at each resync."""
    group = a_group()
    group["metadata"]["labels"] = {f"l{number}": "" for number in range(20_000)}
    known = {GROUPS: dict.fromkeys(map(str, range(5)), group)}
    async with stub_api(tmp_path, collections=known) as (stub, api):
        stub.lists_released.set()
        stub.serves_pages = True
        conditions = PodGroupConditions(api, cast("Writes", None), cast("Clock", None))
        (found,) = (await conditions.list_by_namespace()).values()
    assert [len(msgspec.json.encode(kept)) < 500 for kept in found] == [True] * 5


async def test_a_group_with_conditions_of_a_megabyte_is_left_out(tmp_path: Path) -> None:
    """They would be kept, and written again."""
    long = {**OTHER, "message": "x" * 20_000}
    async with counting(tmp_path, a_group(conditions=[long])) as count:
        await count.sweep(native("p", priority=5))
        assert count.written == []

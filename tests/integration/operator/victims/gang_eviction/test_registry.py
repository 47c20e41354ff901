"""Gangs on an API server that counts calls: one list for a decision, none without a gang."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.victims.assessment import VictimAssessor
from reprieve_operator.victims.gang_eviction.eviction import GangEviction
from reprieve_operator.victims.gang_eviction.registry import GangRegistry
from reprieve_operator.victims.gang_eviction.spare_pods import LIST_TTL_SECONDS
from reprieve_policy import keys
from reprieve_policy.gangs import disruption
from reprieve_policy.lifecycle.eviction import Eviction, Phase, Protection, ProtectionReason
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import NOW, an_eviction
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

TEAM, GROUPS = (
    "/api/v1/namespaces/team/pods",
    "/apis/scheduling.k8s.io/v1beta1/namespaces/team/podgroups",
)
BEGUN = an_eviction().build()


@dataclass
class RecordedReasons:
    """Records the reasons of Events."""

    reasons: list[str] = field(default_factory=list)

    def event(self, regarding: object, reason: str, note: str) -> None:  # noqa: ARG002 - the recorder's interface
        self.reasons.append(reason)


@dataclass
class Running:
    """The gang registry of a term, and its collaborators."""

    stub: StubApi
    recorded: RecordedReasons
    gangs: GangRegistry
    started: list[str]
    seconds: float = 0.0
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)

    def calls(self, verb: str) -> float:
        """Return how many successful calls were counted."""
        found = self.metrics.registry.get_sample_value(
            "reprieve_api_calls_total", {"verb": verb, "outcome": "ok"}
        )
        return found or 0

    async def find(self, document: Any, state: Eviction = BEGUN) -> GangEviction | None:
        return await self.gangs.find_eviction(a_pod_of(document), state)


@asynccontextmanager
async def gangs_of(
    directory: Path, *documents: Any, groups: Any = None, assessor: "CountingAssessor | None" = None
) -> AsyncIterator[Running]:
    pods = {document["metadata"]["name"]: document for document in documents}
    async with stub_api(directory, collections={TEAM: pods, GROUPS: groups or {}}) as (stub, api):
        stub.lists_released.set()
        recorded, started = RecordedReasons(), cast("list[str]", [])
        running = Running(stub, recorded, cast("GangRegistry", None), started)
        clock = Clock(
            now=lambda: NOW, monotonic=lambda: running.seconds, wall=lambda: running.seconds
        )
        writes = Writes(api, CallLimiter(32), cast("LeaderElection", None), running.metrics, clock)
        running.gangs = GangRegistry(
            writes,
            cast("EventRecorder", recorded),
            clock,
            lambda: cast("VictimAssessor", assessor),
            lambda pod, _: started.append(pod.metadata.name or ""),
        )
        yield running


def a_document(name: str, gang: str = "train", *, native: bool = False, **metadata: Any) -> Any:
    labels = {} if native or not gang else {keys.POD_GROUP: gang}
    identity = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "creationTimestamp": "2026-11-21T09:00:00Z",
    }
    spec = {"schedulingGroup": {"podGroupName": gang}} if native else {}
    return {
        "metadata": identity | {"labels": labels} | metadata,
        "spec": spec,
        "status": {"phase": "Running"},
    }


def a_pod_of(document: Any) -> VictimPod:
    return msgspec.convert(document, VictimPod)


@pytest.mark.parametrize("labels", [{}, {keys.JOB: "train"}])
def test_a_pod_without_a_gang_costs_no_call(tmp_path: Path, labels: dict[str, str]) -> None:
    async def run() -> None:
        async with gangs_of(tmp_path) as running:
            assert await running.find(a_document("a", labels=labels)) is None
            assert not running.stub.calls

    asyncio.run(run())


def test_a_gang_is_listed_once_however_many_of_its_pods_are_marked(tmp_path: Path) -> None:
    async def run() -> None:
        documents = [a_document(name) for name in "abc"] + [
            a_document("d", "other"),
            a_document("e", ""),
        ]
        async with gangs_of(tmp_path, *documents) as running:
            found = await asyncio.gather(*(running.find(document) for document in documents[:3]))
            (gang_eviction,) = {id(one): one for one in found}.values()
            assert gang_eviction is not None
            assert running.stub.calls[TEAM] == 1
            assert (gang_eviction.pod_count, gang_eviction.is_in_progress) == (3, False)
            assert running.calls("list") == 1
            assert running.started == []
            running.gangs.start(gang_eviction)
            running.gangs.start(gang_eviction)
            await until(lambda: not running.gangs.starts)
            assert running.started == ["a", "b", "c"]

    asyncio.run(run())


MEMBERS = 300
PASSES = MEMBERS // 20
"""Of the event loop, at least, for the pods of a gang: a few in each."""
PERMANENT = Protection(ProtectionReason.NON_PREEMPTIBLE, None)
PREEMPTED = an_eviction().asked_by_scheduler().build()


@dataclass
class CountingAssessor:
    """Has one pod protected; counts the pods that it is asked for. It reads no Job."""

    protected_uid: str = ""
    asked: list[str] = field(default_factory=list)

    async def protection_of(self, pod: VictimPod, _: Eviction) -> Protection | None:
        uid = pod.metadata.uid or ""
        self.asked.append(uid)
        return PERMANENT if uid == self.protected_uid else None


async def count_passes_until(task: "asyncio.Task[None]") -> int:
    """Return how many passes of the event loop there were before the task has ended."""
    passes = 0
    while not task.done():
        await asyncio.sleep(0)
        passes += 1
    return passes


def test_the_event_loop_goes_on_while_a_large_gang_is_assessed(tmp_path: Path) -> None:
    async def run() -> None:
        assessor = CountingAssessor()
        gang_eviction, _ = a_gang_eviction(*map(str, range(MEMBERS)))
        async with gangs_of(tmp_path, assessor=assessor) as running:
            assessing = running.gangs.assess_protection(gang_eviction, PREEMPTED)
            assert await count_passes_until(asyncio.create_task(assessing)) >= PASSES
            assert (len(assessor.asked), gang_eviction.protection) == (MEMBERS, None)

    asyncio.run(run())


def test_after_a_pod_that_protects_its_whole_gang_no_other_is_assessed(tmp_path: Path) -> None:
    async def run() -> None:
        assessor = CountingAssessor(protected_uid="b")
        gang_eviction, _ = a_gang_eviction("a", "b", "c", "d")
        async with gangs_of(tmp_path, assessor=assessor) as running:
            await running.gangs.assess_protection(gang_eviction, PREEMPTED)
            assert (assessor.asked, gang_eviction.protection) == (["a", "b"], PERMANENT)

    asyncio.run(run())


def test_the_event_loop_goes_on_while_the_pods_of_a_large_gang_are_started(tmp_path: Path) -> None:
    async def run() -> None:
        gang_eviction, _ = a_gang_eviction(*map(str, range(MEMBERS)))
        async with gangs_of(tmp_path) as running:
            running.gangs.start(gang_eviction)
            (starting,) = running.gangs.starts
            assert await count_passes_until(starting) >= PASSES
            assert len(running.started) == MEMBERS

    asyncio.run(run())


def test_a_gang_has_members_until_all_of_its_pods_are_started(tmp_path: Path) -> None:
    async def run() -> None:
        gang_eviction, _ = a_gang_eviction("a")
        async with gangs_of(tmp_path) as running:
            running.gangs.start(gang_eviction)
            gang_eviction.remove_member("a")
            assert not gang_eviction.is_empty
            await until(lambda: not running.gangs.starts)
            assert gang_eviction.is_empty

    asyncio.run(run())


def test_a_gang_that_is_too_large_is_listed_once_a_minute_and_its_pods_are_evicted_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disruption, "MAX_MEMBERS", 2)

    async def run() -> None:
        documents = [a_document(name) for name in "abc"]
        async with gangs_of(tmp_path, *documents) as running:
            assert [await running.find(document) for document in documents] == [None, None, None]
            assert (running.stub.calls[TEAM], running.recorded.reasons) == (1, ["GangTooLarge"])
            running.seconds = 60.0
            assert await running.find(documents[0]) is None
            assert running.stub.calls[TEAM] == 2

    asyncio.run(run())


@pytest.mark.parametrize("namespaces", [1, 2, 4])
def test_lists_of_a_few_namespaces_that_hang_delay_no_gang_of_another(
    tmp_path: Path, namespaces: int
) -> None:
    other = TEAM.replace("team", "other")

    async def run() -> None:
        async with gangs_of(tmp_path) as running:
            running.stub.lists_released.clear()
            documents = [
                a_document(f"pod-{number}", f"gang-{number}", namespace=f"team-{namespace}")
                for namespace in range(namespaces)
                for number in range(8)
            ]
            tasks = [asyncio.create_task(running.find(document)) for document in documents]
            lists = running.stub.calls
            await until(lambda: len(+lists) == namespaces)
            tasks.append(asyncio.create_task(running.find(a_document("pod", namespace="other"))))
            await until(lambda: lists[other] > 0)
            running.stub.lists_released.set()
            await asyncio.gather(*tasks)

    asyncio.run(run())


def test_a_gang_that_states_it_goes_pod_by_pod_costs_no_call(tmp_path: Path) -> None:
    async def run() -> None:
        by_pod = {keys.DISRUPTION_MODE: "pod"}
        async with gangs_of(tmp_path) as running:
            assert await running.find(a_document("a", annotations=by_pod)) is None
            assert not running.stub.calls

    asyncio.run(run())


@pytest.mark.parametrize(("minimum", "is_whole"), [("2", False), ("3", True)])
def test_a_gang_that_goes_pod_by_pod_never_falls_below_its_minimum(
    tmp_path: Path, minimum: str, *, is_whole: bool
) -> None:
    async def run() -> None:
        stated = {
            keys.DISRUPTION_MODE: "pod",
            keys.KOORDINATOR_GANG: "train",
            keys.KOORDINATOR_MIN_AVAILABLE: minimum,
        }
        documents = [a_document(name, annotations=stated) for name in "abc"]
        async with gangs_of(tmp_path, *documents) as running:
            found = await running.find(documents[0])
            assert (None if found is None else found.pod_count) == (3 if is_whole else None)
            if is_whole:
                resumed = disruption.as_gang_member(BEGUN, "train", BEGUN)
                assert await running.find(documents[1], resumed) is found

    asyncio.run(run())


def documents_of_gang(size: int, minimum: int) -> list[Any]:
    """Return the pods of a gang that is evicted pod by pod and states how many must stay."""
    stated = {keys.DISRUPTION_MODE: "pod", keys.MIN_MEMBER: str(minimum)}
    return [a_document(f"pod-{number}", annotations=stated) for number in range(size)]


async def mark_and_find(running: Running, document: Any) -> GangEviction | None:
    document["metadata"]["labels"][keys.SOFT_EVICTION] = "requested"
    return await running.find(document)


@pytest.mark.parametrize(("size", "minimum"), [(100, 1), (100, 40), (20, 19), (20, 20), (5, 6)])
def test_victims_of_a_gang_share_its_list_and_never_undercut_its_minimum(
    tmp_path: Path, size: int, minimum: int
) -> None:
    async def run() -> None:
        documents = documents_of_gang(size, minimum)
        async with gangs_of(tmp_path, *documents) as running:
            found = await asyncio.gather(*(mark_and_find(running, each) for each in documents))
            assert found.count(None) == 0, "the list shows that all are leaving"
            assert running.stub.calls[TEAM] == 1
        documents = documents_of_gang(size, minimum)
        async with gangs_of(tmp_path, *documents) as running:
            found = [await mark_and_find(running, each) for each in documents]
            assert found.count(None) == max(0, size - minimum), "the list is older than the marks"
            # The second list is that of the first pod that the gang cannot spare.
            assert running.stub.calls[TEAM] == (2 if minimum < size else 1)

    asyncio.run(run())


def test_the_list_of_a_gang_is_used_for_a_second(tmp_path: Path) -> None:
    async def run() -> None:
        documents = documents_of_gang(6, 2)
        async with gangs_of(tmp_path, *documents) as running:
            assert await mark_and_find(running, documents[0]) is None
            assert await mark_and_find(running, documents[1]) is None
            assert running.stub.calls[TEAM] == 1
            for gone in documents[4:]:
                del running.stub.collections[TEAM][gone["metadata"]["name"]]
            running.seconds = LIST_TTL_SECONDS
            assert await mark_and_find(running, documents[2]) is not None
            assert running.stub.calls[TEAM] == 2

    asyncio.run(run())


def test_a_gang_is_listed_again_before_all_of_it_goes(tmp_path: Path) -> None:
    async def run() -> None:
        *documents, replacement = documents_of_gang(4, 2)
        async with gangs_of(tmp_path, *documents) as running:
            assert await mark_and_find(running, documents[0]) is None
            running.stub.collections[TEAM]["replacement"] = replacement
            assert await mark_and_find(running, documents[1]) is None
            assert running.stub.calls[TEAM] == 2

    asyncio.run(run())


def test_gangs_of_the_same_name_in_two_namespaces_share_no_list(tmp_path: Path) -> None:
    other = TEAM.replace("team", "other")

    async def run() -> None:
        documents = documents_of_gang(3, 2)
        elsewhere = documents_of_gang(2, 2)
        for document in elsewhere:
            document["metadata"]["namespace"] = "other"
        async with gangs_of(tmp_path, *documents) as running:
            running.stub.collections[other] = {each["metadata"]["name"]: each for each in elsewhere}
            assert await mark_and_find(running, documents[0]) is None
            assert await mark_and_find(running, elsewhere[1]) is not None
            assert (running.stub.calls[TEAM], running.stub.calls[other]) == (1, 1)

    asyncio.run(run())


def test_a_gang_that_goes_pod_by_pod_and_is_too_large_is_listed_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disruption, "MAX_MEMBERS", 2)

    async def run() -> None:
        documents = documents_of_gang(3, 2)
        async with gangs_of(tmp_path, *documents) as running:
            assert [await running.find(document) for document in documents] == [None, None, None]
            assert (running.stub.calls[TEAM], running.recorded.reasons) == (1, ["GangTooLarge"])

    asyncio.run(run())


def test_a_gang_that_goes_pod_by_pod_keeps_the_pods_that_its_pod_group_needs(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        stated = {keys.DISRUPTION_MODE: "pod", keys.MIN_MEMBER: "2"}
        documents = [a_document(name, annotations=stated) for name in "abc"]
        async with gangs_of(tmp_path, *documents) as running:
            assert await running.find(documents[0]) is None
        async with gangs_of(tmp_path, *documents[:2]) as running:
            found = await running.find(documents[0])
            assert found is not None
            assert found.pod_count == 2

    asyncio.run(run())


def test_a_written_decision_about_a_gang_stands_if_it_could_spare_the_pod_now(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        stated = {
            keys.DISRUPTION_MODE: "pod",
            keys.KOORDINATOR_GANG: "train",
            keys.KOORDINATOR_MIN_AVAILABLE: "1",
        }
        documents = [a_document(name, annotations=stated) for name in "abc"]
        async with gangs_of(tmp_path, *documents) as running:
            resumed = disruption.as_gang_member(BEGUN, "train", BEGUN)
            assert await running.find(documents[0], resumed) is not None

    asyncio.run(run())


NATIVE = {
    "all by annotation": (
        {"metadata": {"annotations": {keys.DISRUPTION_MODE: "gang"}}, "spec": {}},
        True,
    ),
    "all": ({"spec": {"disruptionMode": {"all": {}}}}, True),
    "single": ({"spec": {"disruptionMode": {"single": {}}}}, False),
    "no disruption mode": ({"spec": {}}, False),
    "a group that does not exist": (None, False),
}


@pytest.mark.parametrize(("group", "is_whole"), NATIVE.values(), ids=NATIVE)
def test_a_native_group_decides_whether_it_is_evicted_as_a_unit(
    tmp_path: Path, group: Any, *, is_whole: bool
) -> None:
    async def run() -> None:
        documents = [a_document(name, native=True) for name in "ab"]
        async with gangs_of(
            tmp_path, *documents, groups={"train": group} if group else {}
        ) as running:
            found = await running.find(documents[0])
            assert (found is not None) is is_whole
            assert running.stub.calls[f"{GROUPS}/train"] == 1

    asyncio.run(run())


def test_a_native_group_counts_once_its_type_is_served(tmp_path: Path) -> None:
    async def run() -> None:
        group = {"train": {"spec": {"disruptionMode": {"all": {}}}}}
        documents = [a_document(name, native=True) for name in "ab"]
        async with gangs_of(tmp_path, *documents, groups=group) as running:
            running.stub.absent.add(f"{GROUPS}/train")
            assert await running.find(documents[0]) is None
            # One question for a decision, and no look at who else there is.
            assert running.stub.calls == {f"{GROUPS}/train": 1}
            running.stub.absent.clear()
            found = await running.find(documents[0])
            assert found is not None
            assert found.pod_count == 2

    asyncio.run(run())


def test_the_mode_of_a_native_group_is_not_read_again_for_a_written_decision(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        resumed = disruption.as_gang_member(BEGUN, "train", BEGUN)
        async with gangs_of(tmp_path, a_document("a", native=True)) as running:
            assert await running.find(a_document("a", native=True), resumed) is not None
            assert running.stub.calls[f"{GROUPS}/train"] == 0

    asyncio.run(run())


def test_a_failed_list_is_not_taken_for_an_empty_gang(tmp_path: Path) -> None:
    async def run() -> None:
        async with gangs_of(tmp_path, a_document("a")) as running:
            running.stub.is_failing = True
            with pytest.raises(ApiError):
                await running.find(a_document("a"))
            with pytest.raises(ApiError):
                await running.find(a_document("b", native=True))
            running.stub.is_failing = False
            assert await running.find(a_document("a")) is not None

    asyncio.run(run())


def a_state_in(phase: Phase) -> Eviction:
    return an_eviction().in_phase(phase).build()


def test_a_new_mark_waits_until_the_cancellation_of_its_gang_is_done(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        documents = [a_document(name) for name in "ab"]
        async with gangs_of(tmp_path, *documents) as running:
            first = await running.find(documents[0])
            assert first is not None
            for uid in "ab":
                first.add_member(uid, lambda: None)
            first.on_state_written("a", a_state_in(Phase.CANCELLED))
            first.remove_member("a")
            again = asyncio.create_task(running.find(documents[0]))
            await asyncio.sleep(0)
            resumed = disruption.as_gang_member(BEGUN, "train", BEGUN)
            first.remove_member("b")
            running.gangs.remove(first)
            second = await again
            assert second is not None
            assert second is not first
            assert await running.find(documents[1], resumed) is second

    asyncio.run(run())


def a_gang_eviction(*uids: str) -> tuple[GangEviction, list[str]]:
    pods = {uid: a_pod_of(a_document(uid)) for uid in uids}
    decision = disruption.decide_gang("train", BEGUN, map(pod_state.member_of, pods.values()))
    gang_eviction, woken = GangEviction("train", decision, pods), cast("list[str]", [])
    for uid in uids:
        gang_eviction.add_member(uid, lambda uid=uid: woken.append(uid))
    return gang_eviction, woken


def test_all_members_are_woken_when_the_last_has_answered() -> None:
    gang_eviction, woken = a_gang_eviction("a", "b", "c")
    gang_eviction.on_state_written("a", a_state_in(Phase.SETTLED))
    gang_eviction.on_state_written("b", a_state_in(Phase.CHECKPOINTING))
    gang_eviction.remove_member("b")
    assert (woken, gang_eviction.may_terminate("a"), gang_eviction.may_terminate("c")) == (
        [],
        False,
        True,
    )
    gang_eviction.on_state_written("c", a_state_in(Phase.SAVED))
    assert sorted(woken) == ["a", "c"]
    assert gang_eviction.may_terminate("a")
    assert not gang_eviction.accepts_members


def test_a_cancellation_after_all_have_answered_cancels_no_other_pod() -> None:
    gang_eviction, _ = a_gang_eviction("a", "b")
    gang_eviction.on_state_written("a", a_state_in(Phase.SETTLED))
    gang_eviction.on_state_written("b", a_state_in(Phase.TERMINATING))
    gang_eviction.on_state_written("a", a_state_in(Phase.CANCELLED))
    assert not gang_eviction.is_cancelled


def test_a_cancellation_wakes_all_members() -> None:
    gang_eviction, woken = a_gang_eviction("a", "b")
    gang_eviction.on_state_written("b", a_state_in(Phase.CANCELLED))
    assert gang_eviction.is_cancelled
    assert sorted(woken) == ["a", "b"]

"""The gate controller on a stub API server: its calls, its writes, and the failures it survives."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.gangs import gang_counts, gang_tasks, gate_controller, gate_pods
from reprieve_operator.gangs.gate_controller import GateController
from reprieve_operator.gangs.gate_pods import LabelledPod
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.gangs.gate_steps import GateStep
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.kube.values import timestamp
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.reflector import Reflector
from reprieve_testing.objects.builders import NOW, after
from reprieve_testing.operator_parts import Leadership
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

ALL, TEAM, NODES = "/api/v1/pods", "/api/v1/namespaces/team/pods", "/api/v1/nodes"
RECOUNT_SECONDS = 30.0
RELEASED = {keys.GANG_GATE_LABEL: "released"}
NO_LABEL = {keys.GANG_GATE_LABEL: None}


@dataclass
class Time:
    """A clock that a test sets."""

    seconds: float = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def clock(self) -> Clock:
        return Clock(now=self.now, monotonic=lambda: self.seconds, wall=lambda: self.seconds)


@dataclass
class EventReasons:
    """Collects the reasons of Events, and their notes."""

    reasons: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def event(self, regarding: object, reason: str, note: str) -> None:  # noqa: ARG002
        self.reasons.append(reason)
        self.notes[reason] = note


@dataclass
class Policy:
    """The current policy."""

    current: PolicySettings = field(default_factory=lambda: PolicySettings(gang_gate=True))
    warnings: list[str] = field(default_factory=list)

    def record_warning(self, reason: str, note: str) -> None:  # noqa: ARG002
        self.warnings.append(reason)


class SlowCalls:
    """Calls for pods of the Namespace `slow`: none is answered until a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[str] = []
        """The pod of each call that is under way."""
        self.are_answered = asyncio.Event()
        self.error: Exception | None = None
        """The answer; none: what the API server answers."""
        for name in ("release_from_gate", "remove_gate", "request_eviction", "delete_unscheduled"):
            monkeypatch.setattr(Writes, name, self._slow_write(getattr(Writes, name)))
        monkeypatch.setattr(gate_pods, "list_members", self._slow_list(gate_pods.list_members))

    def _slow_write(self, write: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def slow(writes: Writes, metadata: VersionedMeta, *args: Any) -> None:
            await self._answer(metadata)
            await write(writes, metadata, *args)

        return slow

    def _slow_list(self, list_members: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def slow(api: Api, pod: LabelledPod) -> Any:
            await self._answer(pod.metadata)
            return await list_members(api, pod)

        return slow

    async def _answer(self, metadata: VersionedMeta) -> None:
        if metadata.namespace != "slow":
            return
        self.waiting.append(metadata.name or "")
        try:
            await self.are_answered.wait()
        finally:
            self.waiting.remove(metadata.name or "")
        if self.error is not None:
            raise self.error


class NoNamespaces:
    """No Namespace has a policy of its own."""

    def get(self, name: str | None) -> NamespacePolicy:  # noqa: ARG002
        return NamespacePolicy()


@dataclass
class Running:
    """A running gate controller with its collaborators."""

    stub: StubApi
    time: Time
    events: EventReasons
    leadership: Leadership
    metrics: OperatorMetrics
    controller: GateController
    policy: Policy

    def add(self, *pods: Any) -> None:
        """Create pods, or change them, and send them on the watches."""
        self.stub.collections[TEAM] |= {pod["metadata"]["name"]: pod for pod in pods}
        self.stub.collections[ALL] |= {pod["metadata"]["name"]: pod for pod in pods}
        self.show(*pods)

    def remove(self, *pods: Any) -> None:
        """Delete pods."""
        for pod in pods:
            self.stub.collections[TEAM].pop(pod["metadata"]["name"], None)
            self.stub.collections[ALL].pop(pod["metadata"]["name"], None)
            self.stub.send("DELETED", pod, ALL)

    def set_room(self, pods: int) -> None:
        """Give the node room for so many pods."""
        node = self.stub.collections[NODES]["n"] = a_node(pods)
        self.stub.send("MODIFIED", node, NODES)

    def released(self, names: str) -> list[str]:
        """Return which of these pods, with names of one letter, were released, in their order."""
        bodies = [(path.rpartition("/")[2], body) for path, body in self.stub.patches]
        return [
            name
            for name, body in bodies
            if name in names and body["metadata"].get("labels", {}) == RELEASED
        ]

    def deleted(self) -> list[str]:
        return sorted(path.rpartition("/")[2] for path, _ in self.stub.deletions)

    def show(self, *pods: Any) -> None:
        """Send pods on the watch."""
        for pod in pods:
            self.stub.send("MODIFIED", pod, ALL)

    def pass_time(self, seconds: float, *pods: Any) -> None:
        """Let time pass, and wake the controller by sending pods again."""
        self.time.seconds += seconds
        self.show(*pods)

    def patches(self, name: str) -> int:
        return sum(path == f"{TEAM}/{name}" for path, _ in self.stub.patches)

    until = staticmethod(until)

    async def has_reconciled(self) -> None:
        """Wait until all events so far are processed: a pod without a gang is released at once."""
        # A name of its own each time: an earlier one has been released already.
        name = f"witness-{len(self.stub.patches)}"
        witness = self.stub.collections[TEAM][name] = a_pod(
            name, labels={keys.GANG_GATE_LABEL: "waiting"}
        )
        self.show(witness)
        await self.until(lambda: self.patches(name) == 1)
        self.stub.send("DELETED", witness, ALL)
        await self.until(lambda: ("team", name) not in self.controller._reflector.items)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconcile soon after a change, and often without one."""
    monkeypatch.setattr(gate_controller, "_BATCH_SECONDS", 0.01)
    monkeypatch.setattr(gate_controller, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(gate_controller, "_UNSEEN_SECONDS", 0.02)


@asynccontextmanager
async def running_controller(
    directory: Path, *pods: Any, room: int = 110, barred: tuple[str, ...] = (), **collections: Any
) -> AsyncIterator[Running]:
    """Run the controller in a cluster of one node with room for so many pods."""
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    known = {ALL: by_name, TEAM: dict(by_name), NODES: {"n": a_node(room)}, **collections}
    async with stub_api(directory, collections=known, applies_selectors=True) as (stub, api):
        stub.barred |= set(barred)
        policy = Policy()
        time, events, leadership, metrics = Time(), EventReasons(), Leadership(), OperatorMetrics()
        effects = Writes(
            api, CallLimiter(32), cast("LeaderElection", leadership), metrics, time.clock()
        )
        controller = GateController(
            api,
            effects,
            cast("PolicySource", policy),
            cast("NamespacePolicies", NoNamespaces()),
            cast("EventRecorder", events),
            metrics,
            time.clock(),
            recount_seconds=RECOUNT_SECONDS,
        )
        stub.lists_released.set()
        running = asyncio.create_task(controller.run())
        try:
            made = Running(stub, time, events, leadership, metrics, controller, policy)
            await made.until(lambda: stub.open_watches >= 2)
            await made.has_reconciled()
            yield made
        finally:
            running.cancel()
            await asyncio.wait({running}, timeout=60)
            assert running.cancelled()


def a_node(pods: int) -> Any:
    return {"metadata": {"name": "n"}, "status": {"allocatable": {"pods": str(pods)}}}


def a_pod(
    name: str,
    *,
    labels: dict[str, str],
    gates: tuple[str, ...] = (keys.GANG_GATE,),
    version: str = "1",
    **metadata: Any,
) -> Any:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": "j",
        "controller": True,
    }
    told = {
        "name": name,
        "namespace": "team",
        "uid": f"of-{name}",
        "resourceVersion": version,
        "labels": labels,
        "creationTimestamp": "2026-11-21T12:00:00Z",
        "ownerReferences": [owner],
    }
    spec = {"schedulingGates": [{"name": gate} for gate in gates]}
    return {"metadata": told | metadata, "spec": spec}


def members(
    names: str, *, of: int = 4, version: str = "1", gang: str = "train", **metadata: Any
) -> list[Any]:
    """Return pods with names of one letter, which the gate holds."""
    labels = {
        keys.OLD_POD_GROUP: gang,
        keys.OLD_MIN_AVAILABLE: str(of),
        keys.GANG_GATE_LABEL: "waiting",
    }
    return [a_pod(name, labels=dict(labels), version=version, **metadata) for name in names]


def released(
    names: str, *, seconds: float = 0, node: str = "", version: str = "2", **fields: Any
) -> list[Any]:
    """Return the same pods as an operator released them, and where the scheduler put them."""
    pods = members(names, version=version, **fields)
    for pod in pods:
        pod["metadata"]["labels"] |= RELEASED
        at = timestamp.render(after(seconds))
        pod["metadata"]["annotations"] = {keys.GANG_RELEASED_AT: at}
        pod["spec"] = {"nodeName": node} if node else {}
    return pods


async def test_a_gang_that_is_complete_costs_one_patch_a_pod_and_no_list(tmp_path: Path):
    async with running_controller(tmp_path) as running:
        running.stub.collections[TEAM] |= {pod["metadata"]["name"]: pod for pod in members("abcd")}
        running.show(*members("abcd"))
        await running.until(lambda: running.events.reasons == ["GangReleased"])
        # The watch has not shown yet that they are released.
        await running.has_reconciled()

        assert [running.patches(name) for name in "abcd"] == [1, 1, 1, 1]
        assert running.stub.calls[TEAM] == 0


async def test_an_incomplete_gang_is_listed_after_a_delay_and_then_periodically(tmp_path: Path):
    waiting_pods = members("ab")
    async with running_controller(tmp_path, *waiting_pods) as running:
        await running.has_reconciled()
        assert running.stub.calls[TEAM] == 0
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.stub.calls[TEAM] == 1)
        for _ in range(5):
            running.pass_time(1.1, *waiting_pods)
            await running.has_reconciled()
        assert running.stub.calls[TEAM] == 1
        running.pass_time(RECOUNT_SECONDS, *waiting_pods)
        await running.until(lambda: running.stub.calls[TEAM] == 2)

        assert running.events.reasons == ["GangWaiting"]
        assert [running.patches(name) for name in "ab"] == [0, 0]


async def test_many_incomplete_gangs_of_one_namespace_are_counted_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # A pass waits for all of its lists, however slow the machine is.
    monkeypatch.setattr(gang_tasks, "_WAIT_SECONDS", 60.0)
    minimum = {keys.OLD_MIN_AVAILABLE: "4", keys.GANG_GATE_LABEL: "waiting"}
    waiting_pods = [
        a_pod(f"p{number}", labels={keys.OLD_POD_GROUP: f"gang-{number}", **minimum})
        for number in range(40)
    ]
    async with running_controller(tmp_path, *waiting_pods) as running:
        lists_in_a_pass = []

        async def reconcile_all() -> float:
            before = running.stub.calls[TEAM]
            seconds = await GateController._reconcile_all(running.controller)
            lists_in_a_pass.append(running.stub.calls[TEAM] - before)
            return seconds

        monkeypatch.setattr(running.controller, "_reconcile_all", reconcile_all)
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.stub.calls[TEAM] >= len(waiting_pods))
        await running.has_reconciled()

        assert max(lists_in_a_pass) == gang_counts.MAX_COUNTS_PER_NAMESPACE
        assert sum(lists_in_a_pass) == len(waiting_pods)


async def test_running_members_count_though_the_watch_does_not_select_them(tmp_path: Path):
    waiting_pods = members("a")
    async with running_controller(tmp_path, *waiting_pods) as running:
        for pod in members("bcd"):
            pod["spec"]["schedulingGates"] = []
            running.stub.collections[TEAM][pod["metadata"]["name"]] = pod
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.events.reasons == ["GangReleased"])

        assert running.patches("a") == 1


async def test_a_pod_that_is_listed_before_its_watch_event_counts_once(tmp_path: Path):
    waiting_pods, late = members("ab"), members("c")
    async with running_controller(tmp_path, *waiting_pods) as running:
        running.stub.collections[TEAM]["c"] = late[0]
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.events.reasons == ["GangWaiting"])
        running.show(*late)
        await running.has_reconciled()

        assert running.events.reasons == ["GangWaiting"]
        assert [running.patches(name) for name in "abc"] == [0, 0, 0]


async def test_members_of_another_group_in_the_same_list_do_not_count(tmp_path: Path):
    waiting_pods = members("abc")
    async with running_controller(tmp_path, *waiting_pods) as running:
        other = members("d")[0]
        other["metadata"]["labels"][keys.OLD_POD_GROUP] = "serve"
        failed = members("e")[0] | {"status": {"phase": "Failed"}}
        running.stub.collections[TEAM] |= {"d": other, "e": failed}
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.events.reasons == ["GangWaiting"])

        assert [running.patches(name) for name in "abc"] == [0, 0, 0]


async def test_an_incomplete_gang_waits_on_at_its_timeout_and_that_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    waiting_pods = members("ab")
    async with running_controller(tmp_path, *waiting_pods) as running:
        running.stub.is_failing = True
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.stub.calls[TEAM] == 1)
        running.stub.is_failing = False
        for _ in range(3):
            running.pass_time(600, *waiting_pods)
            await running.has_reconciled()

        messages = {record.message for record in caplog.records}
        assert "could not list the members of a gang" in messages
        assert "gate controller failed; restarting" not in messages, "other gangs are not affected"
        assert running.events.reasons == ["GangIncomplete"]
        assert running.metrics.gang_failures.labels("incomplete")._value.get() == 1
        assert running.released("ab") == []


async def test_a_pod_that_changed_is_released_in_its_new_version(tmp_path: Path):
    async with running_controller(tmp_path) as running:
        # Patches answer 404: as if the pods had been deleted and created again.
        running.stub.refuses = {f"{TEAM}/{name}": 404 for name in "ab"}
        running.show(*members("ab", of=2))
        await running.until(lambda: running.patches("a") == running.patches("b") == 1)
        assert running.events.reasons == []
        running.stub.refuses = {}
        running.stub.collections[TEAM] |= {"a": members("a", of=2)[0], "b": members("b", of=2)[0]}
        running.show(*members("ab", of=2, version="2"))
        await running.until(lambda: running.events.reasons == ["GangReleased"])


async def test_a_replica_that_does_not_lead_releases_no_pods_and_keeps_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level("DEBUG")
    monkeypatch.setattr(gate_controller, "RETRY_SECONDS", 0.1)
    async with running_controller(tmp_path) as running:
        running.leadership.is_leading = False
        running.add(*members("ab", of=2))
        await running.until(lambda: "not the leader: no pods are released" in caplog.messages)
        assert [running.patches(name) for name in "ab"] == [0, 0]
        running.leadership.is_leading = True
        await running.until(lambda: running.events.reasons == ["GangReleased"])


async def test_the_gated_pods_are_counted_for_a_metric(tmp_path: Path):
    async with running_controller(tmp_path, *members("ab")) as running:
        assert running.controller.count_gated() == 2
        running.stub.send("DELETED", members("a")[0], ALL)
        await running.until(lambda: running.controller.count_gated() == 1)


async def test_what_each_gang_waits_for_is_known_for_the_page(tmp_path: Path):
    pods = (*members("abcd"), *members("efgh", gang="next"), *members("xy", gang="half"))
    async with running_controller(tmp_path, *pods, room=3) as running:
        await running.until(lambda: running.events.reasons.count("GangWaitingForRoom") == 2)
        found = {one.name: one for one in running.controller.statuses()}
        assert {name: (one.step, one.turn, one.count) for name, one in found.items()} == {
            "train": (GateStep.QUEUE, 1, 4),
            "next": (GateStep.QUEUE, 2, 4),
            "half": (GateStep.WAIT, 0, 2),
        }
        assert found["half"].until == after(running.policy.current.gang_gate_timeout_seconds)
        assert found["train"].until is None
        running.set_room(4)
        await running.until(lambda: running.released("abcd") == list("abcd"))
        running.add(*released("abcd"))
        await running.has_reconciled()
        (placed,) = [one for one in running.controller.statuses() if one.name == "train"]
        assert (placed.step, placed.gated, placed.bound, placed.turn) == (GateStep.WAIT, 0, 0, 0)
        assert placed.until is not None


async def test_released_pods_show_it_until_their_gang_is_placed(tmp_path: Path):
    async with running_controller(tmp_path) as running:
        running.add(*members("ab", of=2))
        await running.until(lambda: running.released("ab") == ["a", "b"])
        body = running.stub.patches[-1][1]
        assert body["metadata"]["annotations"] == {keys.GANG_RELEASED_AT: timestamp.render(NOW)}
        assert body["spec"] == {"schedulingGates": []}

        running.add(*released("a", of=2, node="n", version="3"), *released("b", of=2))
        await running.has_reconciled()
        assert running.patches("a") == 1, "the other one is not placed yet"
        running.add(*released("b", of=2, node="n", version="3"))
        await running.until(lambda: running.patches("a") == running.patches("b") == 2)

        assert [body["metadata"]["labels"] for _, body in running.stub.patches[-2:]] == [
            NO_LABEL,
            NO_LABEL,
        ]


async def test_only_as_many_pods_as_the_gang_needs_are_released_at_first(tmp_path: Path):
    async with running_controller(tmp_path) as running:
        running.add(*members("abcd", of=2))
        await running.until(lambda: running.released("abcd") == ["a", "b"])
        running.add(*released("ab", of=2, node="n", version="3"))
        await running.until(lambda: running.patches("c") == running.patches("d") == 1)


async def test_a_gang_without_room_waits_and_says_so(tmp_path: Path):
    async with running_controller(tmp_path, room=3) as running:
        running.add(*members("abcd"))
        await running.until(lambda: running.events.reasons == ["GangWaitingForRoom"])
        assert running.released("abcd") == []
        running.set_room(4)
        await running.until(lambda: running.released("abcd") == list("abcd"))


async def test_of_two_gangs_that_contend_the_second_waits_for_the_first_to_be_placed_and_to_end(
    tmp_path: Path,
):
    async with running_controller(tmp_path, room=3) as running:
        running.add(*members("ab", of=2, gang="one"), *members("cd", of=2, gang="two"))
        await running.until(lambda: running.released("abcd") == ["a", "b"])
        for pods in (released("ab", of=2, gang="one"),):
            running.add(*pods)
        await running.has_reconciled()
        placed = released("ab", of=2, gang="one", node="n", version="3")
        running.add(*placed)
        await running.until(lambda: running.patches("a") == 2)
        running.show(*members("cd", of=2, gang="two"))
        await running.has_reconciled()
        assert running.released("cd") == [], "the first gang takes the room"
        running.remove(*placed)
        await running.until(lambda: running.released("cd") == ["c", "d"])


async def test_the_more_important_gang_comes_first(tmp_path: Path):
    late = members("cd", of=2, gang="two")
    for pod in late:
        pod["spec"]["priority"] = 5
    async with running_controller(tmp_path, room=3) as running:
        running.add(*members("ab", of=2, gang="one"), *late)
        await running.until(lambda: running.released("abcd") == ["c", "d"])


async def test_a_gang_that_an_operator_released_before_it_was_killed_keeps_its_room(
    tmp_path: Path,
):
    before = released("ab", of=2, gang="one")
    waiting = members("cd", of=2, gang="two")
    async with running_controller(tmp_path, *before, *waiting, room=3) as running:
        await running.until(lambda: running.events.reasons == ["GangWaitingForRoom"])
        assert running.released("cd") == []


async def test_a_gang_that_an_operator_released_by_half_is_released_as_a_whole(tmp_path: Path):
    pods = [*released("ab"), *members("cd")]
    async with running_controller(tmp_path, *pods, room=4) as running:
        await running.until(lambda: running.released("cd") == ["c", "d"])
        assert running.patches("a") == running.patches("b") == 0


async def test_a_gang_that_no_gate_held_keeps_its_room_while_it_is_placed(tmp_path: Path):
    """Created while no webhook ran: without the label."""
    others = released("ab", of=2, gang="one")
    for pod in others:
        del pod["metadata"]["labels"][keys.GANG_GATE_LABEL]
    async with running_controller(tmp_path, room=3) as running:
        running.stub.collections[ALL] |= {pod["metadata"]["name"]: pod for pod in others}
        running.add(*members("cd", of=2, gang="two"))
        await running.until(lambda: running.events.reasons == ["GangWaitingForRoom"])
        running.remove(*others)
        running.time.seconds += 60
        await running.until(lambda: running.released("cd") == ["c", "d"])


async def test_a_gang_that_is_not_placed_in_time_is_replaced_and_waits_again(tmp_path: Path):
    half = [*released("a", of=2, node="n"), *released("b", of=2)]
    async with running_controller(tmp_path, *half, room=1) as running:
        running.pass_time(599, *half)
        await running.has_reconciled()
        assert (running.deleted(), running.patches("a")) == ([], 0)
        running.pass_time(1, *half)
        await running.until(lambda: running.patches("a") == 1)

        # The pod without a node is deleted, with the condition that Jobs know; the other is marked.
        assert running.deleted() == ["b"]
        status = dict(running.stub.patches)[f"{TEAM}/b/status"]
        assert status["status"]["conditions"][0]["type"] == "DisruptionTarget"
        mark = dict(running.stub.patches)[f"{TEAM}/a"]
        assert mark["metadata"]["labels"] == {keys.SOFT_EVICTION: "requested"}
        assert running.events.reasons == ["GangHeldBack"]
        assert running.events.notes["GangHeldBack"].startswith("1 of 2 pods were placed after 10m")
        assert running.metrics.gang_failures.labels("not-placed")._value.get() == 1

        # Its replacements have room, and still wait for the end of the back-off.
        running.remove(*half)
        again = members("cd", of=2, creationTimestamp=timestamp.render(after(600)))
        running.set_room(4)
        running.add(*again)
        await running.until(lambda: "GangWaitingForRoom" in running.events.reasons)
        assert running.released("cd") == []
        running.pass_time(10, *again)
        await running.until(lambda: running.released("cd") == ["c", "d"])


async def test_a_gang_that_runs_loses_no_pod_for_a_new_one_that_is_not_placed(tmp_path: Path):
    running_pods = [
        a_pod(name, labels={keys.OLD_POD_GROUP: "train", keys.OLD_MIN_AVAILABLE: "2"})
        for name in "xy"
    ]
    for pod in running_pods:
        pod["spec"] = {"nodeName": "n"}
    half = [*released("a", of=2, node="n"), *released("b", of=2)]
    async with running_controller(tmp_path, *half, *running_pods) as running:
        running.pass_time(600, *half)
        # The gate lets go of them: the scheduler may place the second one later.
        await running.until(lambda: running.patches("a") == running.patches("b") == 1)
        assert running.deleted() == []
        assert keys.SOFT_EVICTION not in str(running.stub.patches)


async def test_pods_that_no_controller_replaces_are_left_to_the_scheduler(tmp_path: Path):
    half = [
        *released("a", of=2, node="n", ownerReferences=[]),
        *released("b", of=2, ownerReferences=[]),
    ]
    async with running_controller(tmp_path, *half) as running:
        running.pass_time(600, *half)
        await running.until(lambda: running.events.reasons == ["GangNotReplaced"])
        assert running.deleted() == []
        assert [body["metadata"]["labels"] for _, body in running.stub.patches[-2:]] == [
            NO_LABEL,
            NO_LABEL,
        ]


async def test_where_nodes_may_not_be_listed_gangs_are_released_as_soon_as_they_are_complete(
    tmp_path: Path,
):
    async with running_controller(tmp_path, room=1, barred=(NODES,)) as running:
        running.add(*members("ab", of=2))
        await running.until(lambda: running.events.reasons == ["GangReleased"])
        await running.until(lambda: running.policy.warnings == ["GangRoomUnknown"])
        assert running.released("ab") == [], "the label goes with the gate: nothing is held back"
        incomplete = members("c", of=2, gang="two")
        running.add(*incomplete)
        running.pass_time(600, *incomplete)
        await running.until(lambda: running.patches("c") == 1)


GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"


def in_pod_group(pods: list[Any]) -> list[Any]:
    for pod in pods:
        labels = pod["metadata"]["labels"]
        labels[keys.POD_GROUP] = labels.pop(keys.OLD_POD_GROUP)
        del labels[keys.OLD_MIN_AVAILABLE]
    return pods


def a_group(**spec: Any) -> Any:
    return {"metadata": {"name": "train", "namespace": "team"}, "spec": spec}


async def test_a_pod_group_of_the_coscheduling_plugin_states_what_its_gang_needs(tmp_path: Path):
    group = a_group(minMember=3, scheduleTimeoutSeconds=60, minResources={"pods": "5"})
    async with running_controller(tmp_path, room=4, **{GROUPS: {"train": group}}) as running:
        running.add(*in_pod_group(members("ab")))
        await running.has_reconciled()
        assert running.released("ab") == [], "three pods are needed"
        running.add(*in_pod_group(members("c")))
        await running.until(lambda: running.events.reasons == ["GangWaitingForRoom"])
        running.set_room(5)
        await running.until(lambda: running.released("abc") == list("abc"))
        half = [*in_pod_group(released("a", node="n")), *in_pod_group(released("bc"))]
        running.add(*half)
        running.pass_time(60, *half)
        await running.until(lambda: running.deleted() == ["b", "c"])
        assert not any("podgroups" in path for path, _ in running.stub.patches)


async def test_pods_whose_pod_group_does_not_exist_do_not_wait(tmp_path: Path):
    pods = in_pod_group(members("ab"))
    async with running_controller(tmp_path) as running:
        running.add(*pods)
        await running.has_reconciled()
        assert running.patches("a") == 0, "the watch may be about to show it"
        running.pass_time(1.1, *pods)
        await running.until(lambda: running.patches("a") == running.patches("b") == 1)


async def test_nodes_and_pods_are_watched_only_while_a_gang_waits_for_room(tmp_path: Path):
    async with running_controller(tmp_path, *members("a")) as running:
        await running.has_reconciled()
        assert running.stub.calls[NODES] == 0
        running.add(*members("bcd"))
        await running.until(lambda: running.released("abcd") == list("abcd"))
        assert running.stub.calls[NODES] == 1


async def test_watches_that_fail_while_they_end_are_not_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Reflector.run

    async def run_and_fail(reflector: Any) -> None:
        try:
            await run(reflector)
        finally:
            raise ConnectionError

    monkeypatch.setattr(Reflector, "run", run_and_fail)
    # With a whole gang, so that the room is watched as well.
    async with running_controller(tmp_path, *members("abcd")) as running:
        await running.until(lambda: running.patches("d") > 0)


async def test_pods_that_a_gang_does_not_need_wait_for_room_beside_other_gangs(tmp_path: Path):
    """The four places are those of the gang that runs, and of the one that is being placed."""
    runs = released("ab", of=2, gang="one", node="n")
    placing = released("ef", of=2, gang="two")
    async with running_controller(
        tmp_path, *runs, *members("cd", of=2, gang="one"), *placing, room=4
    ) as running:
        await running.has_reconciled()
        await running.until(lambda: running.stub.calls[NODES] == 1)
        await running.has_reconciled()
        assert running.patches("c") == running.patches("d") == 0
        assert running.patches("a") == running.patches("b") == 0, "the labels show that it runs"
        running.set_room(5)
        await running.until(lambda: running.released("cd") == ["c"])
        running.add(*released("c", of=2, gang="one", node="n", version="3"))
        running.set_room(6)
        await running.until(lambda: running.released("cd") == ["c", "d"])
        running.add(*released("d", of=2, gang="one", node="n", version="3"))
        await running.until(lambda: all(running.patches(name) for name in "ab"))


async def test_a_pod_that_a_gang_does_not_need_and_that_is_not_placed_is_left_to_the_scheduler(
    tmp_path: Path,
):
    pods = [*released("ab", of=2, node="n"), *released("c", of=2)]
    async with running_controller(tmp_path, *pods) as running:
        running.pass_time(599, *pods)
        await running.has_reconciled()
        assert running.patches("c") == 0
        running.pass_time(1, *pods)
        await running.until(lambda: all(running.patches(name) == 1 for name in "abc"))
        assert running.deleted() == []


async def test_a_pod_on_a_node_goes_with_its_gang_also_where_its_mark_fails_at_first(
    tmp_path: Path,
):
    half = [*released("a", of=2, node="n"), *released("b", of=2)]
    async with running_controller(tmp_path, *half) as running:
        running.stub.refuses[f"{TEAM}/a"] = 500
        running.pass_time(600, *half)
        await running.until(lambda: running.deleted() == ["b"] and running.patches("a") == 1)
        running.stub.refuses.clear()
        running.remove(half[1])
        again = members("c", of=2, creationTimestamp=timestamp.render(after(600)))
        running.add(*again)
        await running.has_reconciled()
        assert running.released("c") == [], "half of it would sit idle"
        running.pass_time(5, half[0], *again)
        await running.until(lambda: running.patches("a") == 2)
        mark = dict(running.stub.patches)[f"{TEAM}/a"]
        assert mark["metadata"]["labels"] == {keys.SOFT_EVICTION: "requested"}


async def test_a_gang_that_ran_keeps_its_pods_where_another_one_of_them_is_not_placed_again(
    tmp_path: Path,
):
    """The labels of a gang stay while more of its pods wait for room."""
    runs, waits = released("abcd", node="n"), members("e")
    async with running_controller(tmp_path, *runs, *waits, room=4) as running:
        await running.until(lambda: running.stub.calls[NODES] == 1)
        await running.has_reconciled()
        assert running.released("e") == []
        running.remove(runs[3])
        await running.until(lambda: running.released("e") == ["e"])
        unplaced = released("e", version="3")
        running.add(*unplaced)
        running.pass_time(600, *runs[:3], *unplaced)
        # It is left to the scheduler, as in a gang all of whose pods had been placed.
        await running.until(lambda: running.patches("e") == 2 or bool(running.deleted()))
        await running.has_reconciled()
        assert running.deleted() == []
        assert keys.SOFT_EVICTION not in str(running.stub.patches)


async def test_a_gang_that_is_held_back_fails_once_while_its_pods_on_nodes_leave(tmp_path: Path):
    half = [*released("a", of=2, node="n"), *released("b", of=2)]
    async with running_controller(tmp_path, *half) as running:
        running.pass_time(600, *half)
        await running.until(lambda: running.patches("a") == 1)
        running.remove(half[1])
        leaving = released("a", of=2, node="n", version="3")
        leaving[0]["metadata"]["labels"][keys.SOFT_EVICTION] = "requested"
        again = members("c", of=2, creationTimestamp=timestamp.render(after(600)))
        running.add(*leaving, *again)
        running.pass_time(700, *leaving, *again)
        await running.has_reconciled()
        assert "GangIncomplete" not in running.events.reasons
        assert running.metrics.gang_failures.labels("incomplete")._value.get() == 0
        assert running.events.notes["GangHeldBack"].endswith(
            "unless its podFailurePolicy ignores the condition DisruptionTarget"
        )


async def test_pods_of_another_projects_job_count_towards_no_backoff_limit(tmp_path: Path):
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "train",
        "uid": "j",
        "controller": True,
    }
    half = [
        *released("a", of=2, node="n", ownerReferences=[owner]),
        *released("b", of=2, ownerReferences=[owner]),
    ]
    async with running_controller(tmp_path, *half) as running:
        running.pass_time(600, *half)
        await running.until(lambda: "GangHeldBack" in running.events.reasons)
        assert "podFailurePolicy" not in running.events.notes["GangHeldBack"]


async def test_a_pod_that_no_controller_replaces_exempts_itself_and_not_its_gang(tmp_path: Path):
    half = [
        *released("a", of=3, node="n"),
        *released("b", of=3),
        *released("c", of=3, ownerReferences=[]),
    ]
    async with running_controller(tmp_path, *half) as running:
        running.pass_time(600, *half)
        await running.until(lambda: running.deleted() == ["b"] and running.patches("a") == 1)
        assert running.events.reasons == ["GangNotReplaced", "GangHeldBack"]
        assert dict(running.stub.patches)[f"{TEAM}/c"]["metadata"]["labels"] == NO_LABEL


ENDED_BEFORE = {
    "ownerReferences": [{"kind": "Job", "name": "train", "uid": "i", "controller": True}]
}
NO_MEMBERS = {
    "a victim": ({"labels": {keys.SOFT_EVICTION: "requested"}}, "Running"),
    "a pod of an earlier Job that succeeded": (ENDED_BEFORE, "Succeeded"),
}


@pytest.mark.parametrize(("metadata", "phase"), NO_MEMBERS.values(), ids=NO_MEMBERS)
async def test_what_is_no_member_any_more_lets_no_pod_go_before_the_rest(
    tmp_path: Path, metadata: Any, phase: str
):
    waiting_pods, others = members("a"), members("bcd")
    async with running_controller(tmp_path, *waiting_pods) as running:
        for pod in others:
            pod["metadata"] |= metadata | {
                "labels": {**pod["metadata"]["labels"], **metadata.get("labels", {})}
            }
            pod["spec"], pod["status"] = {"nodeName": "n"}, {"phase": phase}
            running.stub.collections[TEAM][pod["metadata"]["name"]] = pod
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.events.reasons == ["GangWaiting"])
        assert running.patches("a") == 0


async def test_pods_of_the_same_job_that_succeeded_count(tmp_path: Path):
    waiting_pods = members("a")
    async with running_controller(tmp_path, *waiting_pods) as running:
        for pod in members("bcd"):
            pod["spec"], pod["status"] = {"nodeName": "n"}, {"phase": "Succeeded"}
            running.stub.collections[TEAM][pod["metadata"]["name"]] = pod
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.patches("a") == 1)


SLOW_PODS = {
    "of a gang that is released": members("abcd", namespace="slow"),
    "of a gang that has started": released("abcd", node="n", namespace="slow"),
    "of a gang that is held back": released("abcd", seconds=-600, namespace="slow"),
    "on a node, of a gang that is held back": [
        *released("abc", seconds=-600, node="n", namespace="slow"),
        *released("d", seconds=-600, namespace="slow"),
    ],
    "of a gang whose other members are listed": members("ab", namespace="slow"),
    "of more gangs than are listed at a time": [
        pod for name in "abcdijklmnop" for pod in members(name, gang=name, namespace="slow")
    ],
    "without a gang": [
        a_pod("a", labels={keys.GANG_GATE_LABEL: "waiting"}, namespace="slow"),
    ],
}


@pytest.mark.parametrize("pods", SLOW_PODS.values(), ids=SLOW_PODS)
async def test_calls_of_one_namespace_that_hang_hold_up_no_gang_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pods: list[Any]
):
    """Such as at an admission webhook of that Namespace that does not answer."""
    slow = SlowCalls(monkeypatch)
    async with running_controller(tmp_path) as running:
        running.show(*pods)
        await running.has_reconciled()
        running.pass_time(1.1, *pods)
        await running.until(lambda: bool(slow.waiting))
        # One of its members has no label, so that the members are listed.
        others, late = members("efg"), members("h")
        running.stub.collections[TEAM]["h"] = late[0]
        late[0]["spec"]["schedulingGates"] = []
        running.add(*others)
        await running.has_reconciled()
        running.pass_time(1.1, *others)
        await running.until(lambda: running.released("efg") == ["e", "f", "g"])
        assert slow.waiting
    assert not slow.waiting, "they end with the controller"


async def test_a_gang_whose_release_hangs_keeps_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    slow = SlowCalls(monkeypatch)
    async with running_controller(tmp_path, room=6) as running:
        running.show(*members("abcd", namespace="slow"))
        await running.until(lambda: sorted(slow.waiting) == list("abcd"))
        running.add(*members("efgh"))
        await running.until(lambda: "GangWaitingForRoom" in running.events.reasons)
        assert running.released("abcdefgh") == []
        running.set_room(8)
        await running.until(lambda: running.released("efgh") == list("efgh"))
        slow.are_answered.set()
        await running.until(lambda: not slow.waiting)
        await running.has_reconciled()
        assert running.released("abcd") == list("abcd"), "each of them once"


async def test_an_unexpected_error_in_calls_that_hung_restarts_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gate_controller, "RETRY_SECONDS", 0.01)
    slow = SlowCalls(monkeypatch)
    slow.error = RuntimeError("unexpected")
    async with running_controller(tmp_path) as running:
        running.add(*members("abcd", namespace="slow"))
        await running.until(lambda: sorted(slow.waiting) == list("abcd"))
        await running.has_reconciled()
        slow.are_answered.set()
        await running.until(lambda: not slow.waiting)
        slow.error = None
        await running.until(lambda: running.released("abcd") == list("abcd"))


async def test_gangs_that_cannot_be_replaced_keep_no_other_from_being_held_back(tmp_path: Path):
    """Their members are listed each time, and few gangs of a Namespace are listed in a pass."""
    gangs = [
        released(name, of=2, gang=name) + released(name.upper(), of=2, gang=name)
        for name in "abcdefgh"
    ]
    pods = [pod for gang in gangs for pod in gang]
    async with running_controller(tmp_path, *pods) as running:
        for name in "aAbBcCdD":
            running.stub.refuses[f"{TEAM}/{name}/status"] = 500
        for _ in range(4):
            running.pass_time(600, *pods)
            await running.has_reconciled()
        await running.until(lambda: running.deleted() == sorted("eEfFgGhH"))

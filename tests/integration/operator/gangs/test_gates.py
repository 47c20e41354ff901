"""The gate controller on a stub API server: its calls, its writes, and the failures it survives."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import LeaderElection, NotLeading
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.gangs import gate_controller
from reprieve_operator.gangs.gate_controller import GateController
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_testing.objects.builders import NOW
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

ALL, TEAM = "/api/v1/pods", "/api/v1/namespaces/team/pods"
RECOUNT_SECONDS = 30.0


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
    """Collects the reasons of Events."""

    reasons: list[str] = field(default_factory=list)

    def event(self, regarding: object, reason: str, note: str) -> None:  # noqa: ARG002
        self.reasons.append(reason)


@dataclass
class Leadership:
    """The part of the election that `Writes` uses."""

    is_leading: bool = True

    def require_leadership(self) -> None:
        if not self.is_leading:
            raise NotLeading


@dataclass
class Policy:
    """The current policy."""

    current: PolicySettings = field(default_factory=lambda: PolicySettings(gang_gate=True))


@dataclass
class Running:
    """A running gate controller with its collaborators."""

    stub: StubApi
    time: Time
    events: EventReasons
    leadership: Leadership
    metrics: OperatorMetrics
    controller: GateController

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
        name = f"witness-{sum(self.stub.calls.values())}"
        witness = self.stub.collections[TEAM][name] = a_pod(
            name, labels={keys.GANG_GATE_LABEL: "waiting"}
        )
        self.show(witness)
        await self.until(lambda: self.patches(name) == 1)
        self.stub.send("DELETED", witness, ALL)
        await self.until(lambda: ("team", name) not in self.controller._reflector.items)


@asynccontextmanager
async def running_controller(directory: Path, *pods: Any) -> AsyncIterator[Running]:
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    async with stub_api(directory, collections={ALL: by_name, TEAM: dict(by_name)}) as (stub, api):
        time, events, leadership, metrics = Time(), EventReasons(), Leadership(), OperatorMetrics()
        effects = Writes(
            api, CallLimiter(32), cast("LeaderElection", leadership), metrics, time.clock()
        )
        controller = GateController(
            api,
            effects,
            cast("PolicySource", Policy()),
            cast("EventRecorder", events),
            metrics,
            time.clock(),
            recount_seconds=RECOUNT_SECONDS,
        )
        stub.lists_released.set()
        running = asyncio.create_task(controller.run())
        try:
            made = Running(stub, time, events, leadership, metrics, controller)
            await made.until(lambda: stub.open_watches == 1)
            await made.has_reconciled()
            yield made
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


def a_pod(
    name: str,
    *,
    labels: dict[str, str],
    gates: tuple[str, ...] = (keys.GANG_GATE,),
    version: str = "1",
) -> Any:
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"of-{name}",
        "resourceVersion": version,
        "labels": labels,
    }
    metadata["creationTimestamp"] = "2026-11-21T12:00:00Z"
    return {"metadata": metadata, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}}


def members(*names: str, of: int = 4, version: str = "1") -> list[Any]:
    labels = {
        keys.OLD_POD_GROUP: "train",
        keys.OLD_MIN_AVAILABLE: str(of),
        keys.GANG_GATE_LABEL: "waiting",
    }
    return [a_pod(name, labels=labels, version=version) for name in names]


async def test_a_gang_that_is_complete_costs_one_patch_a_pod_and_no_list(tmp_path: Path):
    async with running_controller(tmp_path) as running:
        running.stub.collections[TEAM] |= {
            pod["metadata"]["name"]: pod for pod in members("a", "b", "c", "d")
        }
        running.show(*members("a", "b", "c", "d"))
        await running.until(lambda: running.events.reasons == ["GangReleased"])
        # The watch has not shown yet that they are released.
        await running.has_reconciled()

        assert [running.patches(name) for name in "abcd"] == [1, 1, 1, 1]
        assert running.stub.calls[TEAM] == 0


async def test_an_incomplete_gang_is_listed_after_a_delay_and_then_periodically(tmp_path: Path):
    waiting_pods = members("a", "b")
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

        assert max(lists_in_a_pass) == gate_controller.MAX_COUNTS_PER_NAMESPACE
        assert sum(lists_in_a_pass) == len(waiting_pods)


async def test_running_members_count_though_the_watch_does_not_select_them(tmp_path: Path):
    waiting_pods = members("a")
    async with running_controller(tmp_path, *waiting_pods) as running:
        for pod in members("b", "c", "d"):
            pod["spec"]["schedulingGates"] = []
            running.stub.collections[TEAM][pod["metadata"]["name"]] = pod
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.events.reasons == ["GangReleased"])

        assert running.patches("a") == 1


async def test_a_pod_that_is_listed_before_its_watch_event_counts_once(tmp_path: Path):
    waiting_pods, late = members("a", "b"), members("c")
    async with running_controller(tmp_path, *waiting_pods) as running:
        running.stub.collections[TEAM]["c"] = late[0]
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.events.reasons == ["GangWaiting"])
        running.show(*late)
        await running.has_reconciled()

        assert running.events.reasons == ["GangWaiting"]
        assert [running.patches(name) for name in "abc"] == [0, 0, 0]


async def test_members_of_another_group_in_the_same_list_do_not_count(tmp_path: Path):
    waiting_pods = members("a", "b", "c")
    async with running_controller(tmp_path, *waiting_pods) as running:
        other = members("d")[0]
        other["metadata"]["labels"][keys.OLD_POD_GROUP] = "serve"
        failed = members("e")[0] | {"status": {"phase": "Failed"}}
        running.stub.collections[TEAM] |= {"d": other, "e": failed}
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.events.reasons == ["GangWaiting"])

        assert [running.patches(name) for name in "abc"] == [0, 0, 0]


async def test_at_the_timeout_all_pods_are_released_even_if_members_cannot_be_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    waiting_pods = members("a", "b")
    async with running_controller(tmp_path, *waiting_pods) as running:
        running.stub.is_failing = True
        running.pass_time(1.1, *waiting_pods)
        await running.until(lambda: running.stub.calls[TEAM] == 1)
        running.stub.is_failing = False
        running.pass_time(600, *waiting_pods)
        await running.until(lambda: running.events.reasons == ["GangIncomplete"])

        messages = {record.message for record in caplog.records}
        assert "could not list the members of a gang" in messages
        assert "gate controller failed; restarting" not in messages, "other gangs are not affected"
        assert [running.patches(name) for name in "ab"] == [1, 1]


async def test_a_pod_that_changed_is_released_in_its_new_version(tmp_path: Path):
    async with running_controller(tmp_path) as running:
        # Patches answer 404: as if the pods had been deleted and created again.
        running.stub.refuses = {f"{TEAM}/{name}": 404 for name in "ab"}
        running.show(*members("a", of=2), *members("b", of=2))
        await running.until(lambda: running.patches("a") == running.patches("b") == 1)
        assert running.events.reasons == []
        running.stub.refuses = {}
        running.stub.collections[TEAM] |= {"a": members("a", of=2)[0], "b": members("b", of=2)[0]}
        running.show(*members("a", "b", of=2, version="2"))
        await running.until(lambda: running.events.reasons == ["GangReleased"])


async def test_a_replica_that_does_not_lead_releases_no_pods_and_keeps_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level("DEBUG")
    monkeypatch.setattr(gate_controller, "RETRY_SECONDS", 0.1)
    async with running_controller(tmp_path) as running:
        running.leadership.is_leading = False
        running.stub.collections[TEAM] |= {
            pod["metadata"]["name"]: pod for pod in members("a", "b", of=2)
        }
        running.show(*members("a", "b", of=2))
        await running.until(lambda: "not the leader: no pods are released" in caplog.messages)
        assert [running.patches(name) for name in "ab"] == [0, 0]
        running.leadership.is_leading = True
        await running.until(lambda: running.events.reasons == ["GangReleased"])


async def test_the_gated_pods_are_counted_for_a_metric(tmp_path: Path):
    async with running_controller(tmp_path, *members("a", "b")) as running:
        assert running.controller.count_gated() == 2
        running.stub.send("DELETED", members("a")[0], ALL)
        await running.until(lambda: running.controller.count_gated() == 1)

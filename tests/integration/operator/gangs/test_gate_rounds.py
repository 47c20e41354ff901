"""The gate controller beside a scheduler of the test's own, in one process.

The scheduler binds any pod to any node that has room, in any order: a stock one chooses better. No
two gangs are ever half-placed at one moment, and all run in the end, also where the operator is
killed at random. `tests/cluster/gangs/test_gate_room.py` shows the same on a real cluster.
"""

import asyncio
import contextlib
import itertools
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.gangs import gate_controller, gate_turns
from reprieve_operator.gangs.gate_controller import GateController
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_runtime.client.api import Api
from reprieve_testing.servers import stub_api as stub_module
from reprieve_testing.servers.stub_api import StubApi, stub_api

ALL, TEAM, NODES = "/api/v1/pods", "/api/v1/namespaces/team/pods", "/api/v1/nodes"
NODE_COUNT, NODE_PODS = 2, 4
SIZE = 5
"""5 of 8 places: no two gangs fit."""
GANGS = 6
DEADLINE_SECONDS = 60.0
STEP_SECONDS = 0.002
"""Of the scheduler and the Job controller. One step in ten binds a pod."""


class Cluster(StubApi):
    """A stub that applies patches and deletions, and shows them on its watches."""

    versions = itertools.count(2)
    ended: set[str]

    def put(self, pod: Any) -> None:
        pod["metadata"]["resourceVersion"] = str(next(self.versions))
        name = pod["metadata"]["name"]
        is_new = name not in self.collections[ALL]
        self.collections[ALL][name] = self.collections[TEAM][name] = pod
        self.send_event("ADDED" if is_new else "MODIFIED", pod)

    def drop(self, pod: Any) -> None:
        del self.collections[ALL][pod["metadata"]["name"]]
        del self.collections[TEAM][pod["metadata"]["name"]]
        pod["metadata"]["resourceVersion"] = str(next(self.versions))
        self.send_event("DELETED", pod)

    def send_event(self, kind: str, pod: Any) -> None:
        for queue, watch in self._watches.items():
            if watch.path == ALL:
                # A pod that has left the selection of a watch is deleted for that watch.
                shown = kind if self._selects(watch.selector, pod) else "DELETED"
                line = json.dumps({"type": shown, "object": pod}).encode() + b"\n"
                queue.put_nowait(line)

    async def _patch(self, request: web.BaseRequest) -> web.Response:
        path, body = request.path.removesuffix("/status"), await request.json()
        pod = self.collections[TEAM].get(path.rpartition("/")[2])
        if pod is None:
            return web.json_response({"code": 404, "reason": "NotFound"}, status=404)
        metadata = body.get("metadata", {})
        if metadata.get("resourceVersion") != pod["metadata"]["resourceVersion"]:
            return web.json_response({"code": 409, "reason": "Conflict"}, status=409)
        changed = json.loads(json.dumps(pod))
        for part in ("labels", "annotations"):
            values = changed["metadata"].setdefault(part, {})
            for key, value in metadata.get(part, {}).items():
                values.pop(key, None) if value is None else values.update({key: value})
        changed["spec"] |= body.get("spec", {})
        self.put(changed)
        return web.json_response({"metadata": changed["metadata"]})

    async def _delete(self, request: web.BaseRequest) -> web.StreamResponse:
        pod = self.collections[TEAM].get(request.path.rpartition("/")[2])
        if pod is not None:
            self.drop(pod)
        return web.json_response({"metadata": {}})

    def pods(self) -> list[Any]:
        return list(self.collections[ALL].values())


def a_pod(gang: str, index: int, created: int) -> Any:
    labels = {
        keys.OLD_POD_GROUP: gang,
        keys.OLD_MIN_AVAILABLE: str(SIZE),
        keys.GANG_GATE_LABEL: "waiting",
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": gang, "uid": gang, "controller": True}
    name = f"{gang}-{index}-{created}"
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "labels": labels,
        "ownerReferences": [owner],
        "creationTimestamp": f"2026-11-21T12:{created // 60 % 60:02}:{created % 60:02}Z",
    }
    return {"metadata": metadata, "spec": {"schedulingGates": [{"name": keys.GANG_GATE}]}}


def gang_of(pod: Any) -> str:
    return str(pod["metadata"]["labels"][keys.OLD_POD_GROUP])


class World:
    """A scheduler, a Job controller, and gangs that end some time after they have started."""

    def __init__(self, stub: Cluster, chance: random.Random, stuck: str = "") -> None:
        """Of the gang `stuck`, the scheduler never places the first pod."""
        self.stub, self.chance, self.stuck = stub, chance, stuck
        self.ended: set[str] = set()
        self.created = itertools.count()
        self.wanted: set[str] = set()

    def create(self, *gangs: str) -> None:
        self.wanted |= {f"{gang}-{index}" for gang in gangs for index in range(SIZE)}
        self.replace_pods()

    def step(self) -> None:
        """Bind a pod, replace those that are gone, and end a gang that runs."""
        self.replace_pods()
        pods = self.stub.pods()
        used = Counter(pod["spec"].get("nodeName") for pod in pods)
        free = [f"n{node}" for node in range(NODE_COUNT) if used[f"n{node}"] < NODE_PODS]
        pending = [
            pod
            for pod in pods
            if not pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName")
        ]
        pending = [
            pod for pod in pending if not pod["metadata"]["name"].startswith(f"{self.stuck}-0-")
        ]
        # Seldom: the gate has the time to decide in the middle of a gang.
        if pending and free and self.chance.random() < 0.1:
            pod = json.loads(json.dumps(self.chance.choice(pending)))
            pod["spec"]["nodeName"] = self.chance.choice(free)
            self.stub.put(pod)
        self.check()
        self.end_gangs()

    def replace_pods(self) -> None:
        """End the pods that are marked, and make others for those that are gone."""
        for pod in self.stub.pods():
            if keys.SOFT_EVICTION in pod["metadata"]["labels"]:
                self.stub.drop(pod)
        names = {pod["metadata"]["name"].rpartition("-")[0] for pod in self.stub.pods()}
        for name in sorted(self.wanted - names):
            gang, _, index = name.rpartition("-")
            if gang not in self.ended:
                self.stub.put(a_pod(gang, int(index), next(self.created)))

    def placed(self) -> Counter[str]:
        return Counter(gang_of(pod) for pod in self.stub.pods() if pod["spec"].get("nodeName"))

    def check(self) -> None:
        half = {gang: count for gang, count in self.placed().items() if count < SIZE}
        assert len(half) <= 1, f"half placed at one moment: {half}"

    def end_gangs(self) -> None:
        for gang, count in self.placed().items():
            if count == SIZE and self.chance.random() < 0.2:
                for pod in self.stub.pods():
                    if gang_of(pod) == gang:
                        self.stub.drop(pod)
                self.ended.add(gang)


class Fixed:
    """The policy, the Namespaces, the election and the Events."""

    def __init__(self, timeout_seconds: int) -> None:
        self.current = PolicySettings(gang_gate=True, gang_gate_timeout_seconds=timeout_seconds)

    def get(self, name: str | None) -> NamespacePolicy:  # noqa: ARG002
        return NamespacePolicy()

    def require_leadership(self) -> float:
        return DEADLINE_SECONDS

    def event(self, *_: object) -> None:
        return


def start_controller(api: Api, timeout_seconds: int = 600) -> asyncio.Task[None]:
    fixed, metrics, clock = Fixed(timeout_seconds), OperatorMetrics(), Clock()
    writes = Writes(api, CallLimiter(32), cast("LeaderElection", fixed), metrics, clock)
    controller = GateController(
        api,
        writes,
        cast("PolicySource", fixed),
        cast("NamespacePolicies", fixed),
        cast("EventRecorder", fixed),
        metrics,
        clock,
        recount_seconds=30.0,
    )
    return asyncio.create_task(controller.run())


async def stop_controller(running: asyncio.Task[None]) -> None:
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@asynccontextmanager
async def a_world(
    directory: Path, monkeypatch: pytest.MonkeyPatch, stuck: str = ""
) -> AsyncIterator[tuple[World, Api]]:
    monkeypatch.setattr(gate_controller, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(gate_controller, "_BATCH_SECONDS", 0.01)
    # No decision that was missed is made up for.
    monkeypatch.setattr(gate_turns, "_FULL_SECONDS", float("inf"))
    monkeypatch.setattr(stub_module, "StubApi", Cluster)
    nodes = {
        f"n{node}": {
            "metadata": {"name": f"n{node}"},
            "status": {"allocatable": {"pods": str(NODE_PODS)}},
        }
        for node in range(NODE_COUNT)
    }
    collections: dict[str, Any] = {ALL: {}, TEAM: {}, NODES: nodes}
    async with stub_api(directory, collections=collections, applies_selectors=True) as (stub, api):
        stub.lists_released.set()
        yield World(cast("Cluster", stub), random.Random(7), stuck), api


@pytest.mark.parametrize("kills", [0.0, 0.02], ids=["undisturbed", "killed at random"])
async def test_gangs_of_which_one_fits_at_a_time_all_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: float
):
    async with a_world(tmp_path, monkeypatch) as (world, api):
        gangs = {f"gang-{number}" for number in range(GANGS)}
        running = start_controller(api)
        try:
            world.create(*sorted(gangs))
            async with asyncio.timeout(DEADLINE_SECONDS):
                while world.ended != gangs:
                    world.step()
                    if world.chance.random() < kills:
                        await stop_controller(running)
                        running = start_controller(api)
                    await asyncio.sleep(STEP_SECONDS)
        finally:
            await stop_controller(running)


async def test_a_gang_that_the_scheduler_never_places_holds_the_others_up_for_its_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with a_world(tmp_path, monkeypatch, stuck="gang-0") as (world, api):
        gangs = {f"gang-{number}" for number in range(3)}
        running = start_controller(api, timeout_seconds=2)
        try:
            world.create(*sorted(gangs))
            async with asyncio.timeout(DEADLINE_SECONDS):
                while world.ended != gangs - {"gang-0"}:
                    world.step()
                    await asyncio.sleep(STEP_SECONDS)
            assert next(world.created) > len(world.wanted), "its pods were replaced"
            assert world.placed()["gang-0"] == 0, "none of them is idle on a node"
        finally:
            await stop_controller(running)

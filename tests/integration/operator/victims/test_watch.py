"""The watch of victims, against an API server that loses its watch at will."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from reprieve_operator.background import background
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.victims.watch import VictimWatch
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

ALL = "/api/v1/pods"
WATCH = f"{ALL}?watch"


class Told:
    """Records what the watch delivers."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.lost: list[str] = []

    def see(self, pod: VictimPod) -> None:
        self.seen.append(f"{pod.metadata.uid} {pod.status.phase}")

    def lose(self, uid: str) -> None:
        self.lost.append(uid)


def pod(name: str, uid: str, phase: str = "Running") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": uid, "resourceVersion": "2"}
    return {"metadata": metadata, "status": {"phase": phase}}


@asynccontextmanager
async def watched(directory: Path, *pods: dict[str, Any]) -> AsyncIterator[tuple[StubApi, Told]]:
    told = Told()
    async with stub_api(
        directory, collections={ALL: {found["metadata"]["name"]: found for found in pods}}
    ) as (
        stub,
        api,
    ):
        stub.lists_released.set()
        async with background(VictimWatch(api, told.see, told.lose).run):
            await until(lambda: stub.open_watches == 1)
            yield stub, told


async def break_watch(stub: StubApi) -> None:
    """Make the watch list all pods again: its resourceVersion is too old."""
    watches = stub.calls[WATCH]
    stub.send("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
    await until(lambda: stub.calls[WATCH] > watches)


async def test_pods_of_kube_system_are_not_watched(tmp_path: Path) -> None:
    """The operator may not write to them (`manifests/base/program-limits.yaml`)."""
    there = pod("there", "1")
    there["metadata"]["namespace"] = "kube-system"
    async with watched(tmp_path, there, pod("here", "2")) as (_, told):
        assert told.seen == ["2 Running"]


async def test_the_end_of_the_first_list_is_reported_once(tmp_path: Path) -> None:
    told, listed = Told(), list[int]()
    async with stub_api(tmp_path, collections={ALL: {"a": pod("a", "1")}}) as (stub, api):
        watch = VictimWatch(
            api, told.see, told.lose, on_listed=lambda: listed.append(len(told.seen))
        )
        async with background(watch.run):
            await until(lambda: stub.calls[ALL] == 1)
            assert listed == []
            stub.lists_released.set()
            await until(lambda: stub.open_watches == 1 and listed == [1])
            await break_watch(stub)
            assert listed == [1]


async def test_existing_and_changed_victims_are_delivered(tmp_path: Path) -> None:
    async with watched(tmp_path, pod("a", "1")) as (stub, told):
        stub.send("ADDED", pod("b", "2", "Pending"))
        stub.send("MODIFIED", pod("b", "2"))
        await until(lambda: len(told.seen) == 3)
        assert told.seen == ["1 Running", "2 Pending", "2 Running"]
        assert told.lost == []


async def test_a_pod_that_loses_its_label_is_reported_as_deleted(tmp_path: Path) -> None:
    async with watched(tmp_path, pod("a", "1")) as (stub, told):
        stub.send("DELETED", pod("a", "1"))
        await until(lambda: bool(told.lost))
        assert (told.seen, told.lost) == (["1 Running"], ["1"])


async def test_a_pod_that_left_while_the_watch_was_interrupted_is_reported_as_deleted(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, pod("a", "1"), pod("b", "2")) as (stub, told):
        del stub.collections[ALL]["a"]
        await break_watch(stub)
        assert told.lost == ["1"]
        assert told.seen[2:] == ["2 Running"]


async def test_a_pod_whose_name_another_pod_has_is_reported_as_deleted(tmp_path: Path) -> None:
    async with watched(tmp_path, pod("a", "1")) as (stub, told):
        stub.collections[ALL]["a"] = pod("a", "9", "Pending")
        await break_watch(stub)
        assert (told.lost, told.seen[1:]) == (["1"], ["9 Pending"])
        stub.send("DELETED", pod("a", "9"))
        await until(lambda: told.lost == ["1", "9"])

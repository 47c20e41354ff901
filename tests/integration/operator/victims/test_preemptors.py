"""The watch of preemptors, against an API server that the test plays.

A preemptor that left its node is noticed once it stays away, and only if it was seen there.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reprieve_operator.background import background
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.victims.preemptors import Preemptors
from reprieve_operator.victims.victim_sets import VictimSets
from reprieve_policy import keys
from reprieve_policy.lifecycle import mark
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

ALL = "/api/v1/pods"
WATCH = f"{ALL}?watch"
TEAM = "/api/v1/namespaces/team/pods"
LEFT_SECONDS = 3.0
IDLE_SECONDS = 0.01


@dataclass
class World:
    """Preemptors on a clock that the test sets."""

    stub: StubApi
    sets: VictimSets
    preemptors: Preemptors
    seconds: float = 0.0
    wakes: int = 0
    witnesses: int = 0

    def mark(self, name: str, *, node: str = "node", preemptor: str = "uid-of-high") -> None:
        """Show a victim of this preemptor."""
        document = {
            "metadata": {
                "name": name,
                "uid": name,
                "labels": {keys.SOFT_EVICTION: mark.REQUESTED},
                "annotations": {keys.PREEMPTOR: preemptor},
            },
            "spec": {"nodeName": node},
        }
        self.sets.on_pod_update(msgspec.convert(document, VictimPod), self._wake)

    async def send(self, kind: str, document: Any) -> None:
        """Send an event, and wait until it is handled."""
        self.witnesses += 1
        name = f"witness-{self.witnesses}"
        self.stub.send(kind, document)
        self.stub.send("ADDED", a_preemptor(name, node="another"))
        await until(lambda: ("team", name) in self.preemptors._nominations)

    def _wake(self) -> None:
        self.wakes += 1


def a_preemptor(name: str = "high", *, node: str = "node", uid: str = "", **labels: str) -> Any:
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": uid or f"uid-of-{name}",
        "resourceVersion": "2",
        "labels": labels,
    }
    return {"metadata": metadata, "status": {"phase": "Pending", "nominatedNodeName": node}}


@asynccontextmanager
async def watching(directory: Path, *nominated: Any) -> AsyncIterator[World]:
    """Watch for victims `a` and `b`, with these pods nominated."""
    pods = {pod["metadata"]["name"]: pod for pod in nominated}
    async with stub_api(directory, collections={ALL: pods, TEAM: pods}) as (stub, api):
        stub.lists_released.set()
        clock = Clock(monotonic=lambda: world.seconds)
        sets = VictimSets(clock)
        preemptors = Preemptors(
            api, sets, clock, left_seconds=LEFT_SECONDS, idle_seconds=IDLE_SECONDS
        )
        world = World(stub, sets, preemptors)
        async with background(preemptors.run):
            world.mark("a")
            world.mark("b")
            await until(lambda: stub.open_watches == 1)
            yield world


async def test_a_preemptor_that_stays_away_has_left(tmp_path: Path) -> None:
    async with watching(tmp_path, a_preemptor()) as world:
        assert world.preemptors.is_node_wanted("a")
        assert world.preemptors.names() == {"uid-of-high": ("team", "high")}
        world.seconds = 10.0
        await world.send("DELETED", a_preemptor())
        assert not world.preemptors.has_left("a")
        world.seconds = 10.0 + LEFT_SECONDS
        assert world.preemptors.has_left("a")
        assert world.preemptors.has_left("b")
        assert not world.preemptors.is_node_wanted("a")


BOUND = a_preemptor() | {"spec": {"nodeName": "another"}}


@pytest.mark.parametrize(
    ("pod", "has_left"),
    [
        (BOUND, True),
        (None, True),
        (a_preemptor(uid="of-a-namesake"), True),
        (a_preemptor(node=""), False),
    ],
    ids=["bound", "gone", "replaced", "still pending"],
)
async def test_the_victims_of_a_preemptor_that_needs_no_room_stay_at_once(
    pod: Any, tmp_path: Path, *, has_left: bool
) -> None:
    """Without this, those that wait for the slowest of their set would be deleted in vain."""
    async with watching(tmp_path, a_preemptor()) as world:
        world.stub.collections[TEAM] = {"high": pod} if pod else {}
        await world.send("DELETED", a_preemptor())
        await until(lambda: world.stub.calls[f"{TEAM}/high"] == 1)
        if has_left:
            await until(lambda: world.preemptors.has_left("a") and world.wakes == 2)
        await world.send("ADDED", a_preemptor("other", node="another"))
        assert world.preemptors.has_left("b") == has_left


async def test_a_preemptor_that_cannot_be_read_has_left_once_it_stays_away(tmp_path: Path) -> None:
    async with watching(tmp_path, a_preemptor()) as world:
        world.stub.is_failing = True
        await world.send("DELETED", a_preemptor())
        await until(lambda: bool(world.stub.calls[f"{TEAM}/high"]))
        assert not world.preemptors.has_left("a")
        world.seconds = LEFT_SECONDS
        assert world.preemptors.has_left("a")


async def test_a_preemptor_without_victims_is_not_read(tmp_path: Path) -> None:
    async with watching(tmp_path, a_preemptor()) as world:
        world.sets.remove("a")
        world.sets.remove("b")
        world.mark("c", preemptor="uid-of-another")
        await world.send("DELETED", a_preemptor())
        await world.send("ADDED", a_preemptor("other", node="another"))
        assert not world.stub.calls[f"{TEAM}/high"]


async def test_a_preemptor_that_moved_to_a_node_where_it_has_no_victims_has_not_left(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path, a_preemptor()) as world:
        world.mark("of-another", node="other", preemptor="uid-of-another")
        await world.send("MODIFIED", a_preemptor(node="other"))
        world.seconds = 10 * LEFT_SECONDS
        assert not world.preemptors.has_left("a")
        assert not world.preemptors.has_left("b")


async def test_a_preemptor_that_moved_to_a_node_where_it_has_victims_has_left(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path, a_preemptor()) as world:
        world.mark("there", node="other")
        await world.send("MODIFIED", a_preemptor(node="other"))
        assert not world.preemptors.has_left("a")
        world.seconds = LEFT_SECONDS
        assert world.preemptors.has_left("a")
        assert not world.preemptors.has_left("there")
        await world.send("MODIFIED", a_preemptor())
        assert not world.preemptors.has_left("a")


async def test_a_preemptor_that_moved_has_left_once_it_has_victims_on_the_other_node(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path, a_preemptor()) as world:
        await world.send("MODIFIED", a_preemptor(node="other"))
        world.seconds = LEFT_SECONDS
        assert not world.preemptors.has_left("a")
        world.mark("there", node="other")
        assert world.preemptors.has_left("a")
        world.sets.remove("there")
        assert not world.preemptors.has_left("a")


async def test_a_preemptor_that_moved_and_then_disappeared_has_left(tmp_path: Path) -> None:
    async with watching(tmp_path, a_preemptor()) as world:
        await world.send("MODIFIED", a_preemptor(node="other"))
        world.seconds = LEFT_SECONDS
        assert not world.preemptors.has_left("a")
        await world.send("DELETED", a_preemptor(node="other"))
        assert world.preemptors.has_left("a")


async def test_another_pod_of_the_same_name_is_no_preemptor(tmp_path: Path) -> None:
    async with watching(tmp_path, a_preemptor()) as world:
        await world.send("ADDED", a_preemptor(uid="uid-of-another"))
        world.seconds = LEFT_SECONDS
        assert world.preemptors.has_left("a")
        assert world.preemptors.is_node_wanted("a")


async def test_a_preemptor_that_was_never_seen_there_has_not_left(tmp_path: Path) -> None:
    """A synchronous scheduler nominates late, and a gang has victims on several nodes."""
    async with watching(tmp_path, a_preemptor(node="other")) as world:
        await world.send("DELETED", a_preemptor(node="other"))
        world.mark("c", preemptor="uid-of-nobody")
        world.seconds = 100.0
        assert not world.preemptors.has_left("a")
        assert not world.preemptors.has_left("c")
        assert not world.preemptors.has_left("unknown")
        assert not world.preemptors.is_node_wanted("unknown")


async def test_a_victim_that_is_marked_afterwards_is_needed(tmp_path: Path) -> None:
    """The watch of preemptors is behind that of victims."""
    async with watching(tmp_path, a_preemptor()) as world:
        await world.send("DELETED", a_preemptor())
        world.seconds = LEFT_SECONDS
        world.mark("c")
        world.seconds += LEFT_SECONDS
        assert world.preemptors.has_left("a")
        assert not world.preemptors.has_left("c")


async def test_a_pod_of_a_gang_leaves_its_victims_to_the_others(tmp_path: Path) -> None:
    member = a_preemptor(**{keys.POD_GROUP: "train"})
    async with watching(tmp_path, member) as world:
        await world.send("DELETED", member)
        world.seconds = LEFT_SECONDS
        assert not world.preemptors.has_left("a")


async def test_a_pod_of_a_job_leaves_alone(tmp_path: Path) -> None:
    member = a_preemptor(**{keys.JOB: "train"})
    async with watching(tmp_path, member) as world:
        await world.send("DELETED", member)
        world.seconds = LEFT_SECONDS
        assert world.preemptors.has_left("a")


async def test_a_preemptor_that_left_during_an_outage_has_left(tmp_path: Path) -> None:
    async with watching(tmp_path, a_preemptor()) as world:
        del world.stub.collections[ALL]["high"]
        watches = world.stub.calls[WATCH]
        world.stub.send("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
        await until(lambda: world.stub.calls[WATCH] > watches)
        world.seconds = LEFT_SECONDS
        assert world.preemptors.has_left("a")


async def test_a_pod_for_which_a_lent_node_was_reclaimed_leaves_without_a_nomination(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path) as world:
        world.preemptors.note_left(VictimSetKey("uid-of-high", "another"))
        world.preemptors.note_left(VictimSetKey("uid-of-high", "node"))
        assert not world.preemptors.has_left("a")
        world.seconds = LEFT_SECONDS
        assert world.preemptors.has_left("a")


async def test_the_reconcilers_are_woken_when_a_preemptor_has_left(tmp_path: Path) -> None:
    async with stub_api(tmp_path, collections={ALL: {"high": a_preemptor()}}) as (stub, api):
        stub.lists_released.set()
        sets = VictimSets(Clock(), growing_seconds=1000.0)
        preemptors = Preemptors(api, sets, Clock(), left_seconds=0.05)
        world = World(stub, sets, preemptors)
        async with background(preemptors.run):
            world.mark("a")
            await until(lambda: stub.open_watches == 1 and preemptors.is_node_wanted("a"))
            stub.send("DELETED", a_preemptor())
            await until(lambda: world.wakes == 1)
            assert preemptors.has_left("a")


async def test_there_is_a_watch_only_while_victims_name_a_preemptor(tmp_path: Path) -> None:
    async with watching(tmp_path, a_preemptor()) as world:
        world.sets.remove("a")
        world.sets.remove("b")
        await until(lambda: not world.preemptors._nominations)
        lists = world.stub.calls[ALL]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(world.sets.wait_until_any(), 0.1)
        assert world.stub.calls[ALL] == lists
        world.mark("c")
        await until(lambda: world.preemptors.is_node_wanted("c"))
        assert world.stub.calls[ALL] == lists + 1

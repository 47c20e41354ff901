"""The operator is killed with SIGKILL just before and just after each write of a victim's life: nothing is lost.

Once where victims are deleted, and, for what is then another write, once where they are evicted; and once where a budget holds them
until a short ceiling.
"""

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_policy.lifecycle.transitions import Observation
from reprieve_testing.chaos import edges, records
from reprieve_testing.chaos.actors import (
    DELETION,
    FINALIZER_REMOVAL,
    LEDGER,
    KillPoint,
    ScriptedVictim,
    When,
    lost_at,
    point_of,
    unseen_at,
    victim_for_edge,
)
from reprieve_testing.chaos.director import ChaosRunner
from reprieve_testing.chaos.edges import Edge
from reprieve_testing.chaos.stage import ChaosNamespace
from reprieve_testing.cluster import ClusterHandle, Program

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

Json = Any

TIMES = int(os.environ.get("TIMES", "20"))
"""So often at each write, on each side of it."""
AT_ONCE = {"delete": 5, "evict": 10, "hold": 20}
"""Of each kill: so many victims in all that two cores play them in time."""
MOST_ROUNDS = 16
SIDES: tuple[When, ...] = ("before", "after")
BESIDE = (DELETION, FINALIZER_REMOVAL, LEDGER)
"""Writes of a victim's end that the table does not name."""
ENDS_WELL = Edge(Phase.CHECKPOINTING, Observation.SAVED)

Roles = Mapping[str, Callable[[str], ScriptedVictim]]
Crash = Callable[[Roles, int], Awaitable[None]]


def roles_at(written: Iterable[Edge], beside: Iterable[KillPoint] = BESIDE) -> Roles:
    """Return who is killed at the writes of these edges, and of a victim's end: what each kill is called, and its actors."""
    roles: dict[str, Callable[[str], ScriptedVictim]] = {}
    points = [(edge, point_of(edge)) for edge in written] + [(ENDS_WELL, point) for point in beside]
    for when in SIDES:
        for edge, point in points:
            roles[f"{when} {point.name}"] = lambda name, edge=edge, point=point, when=when: (
                victim_for_edge(edge, point, when, name)
            )
    return roles


def lost_roles() -> Roles:
    """Return who loses its object, and its operator before it can see that."""
    return {
        f"after {edge}": lambda name, edge=edge: lost_at(edge, name) for edge in edges.lost_edges()
    }


def unseen_roles() -> Roles:
    """Return who is nobody's victim any more as its first state is written, and loses its operator before it can see that."""
    return {
        f"{when} {edge}": lambda name, edge=edge, when=when: unseen_at(edge, when, name)
        for when in SIDES
        for edge in edges.unseen_edges()
    }


def company(roles: Roles, hits: Counter[str], number: int, at_once: int) -> list[ScriptedVictim]:
    """Return the actors of one round: some for each kill that has not happened often enough."""
    return [
        make(f"r{number}-{index}-{copy}")
        for index, (kill, make) in enumerate(roles.items())
        for copy in range(min(at_once, TIMES - hits[kill]))
    ]


class Successors:
    """Starts operators one after the other, each with its code loaded while the one before it still ran."""

    def __init__(self, prepare: Callable[[], Program]) -> None:
        self._prepare = prepare
        self._next = prepare()

    def close(self) -> None:
        """End the one that is not needed any more."""
        self._next.kill(end_lease=False)
        assert self._next.process.stdin is not None
        self._next.process.stdin.close()

    def __call__(self, **_: object) -> Program:
        program, self._next = self._next, self._prepare()
        program.release()
        return program


@pytest.fixture
def prepare(cluster: ClusterHandle, kubeconfig: Path) -> Callable[[], Program]:
    """Load an operator that is released later."""

    def prepare() -> Program:
        # The same identity: a crashed container's successor need not wait until its own lease is over.
        # A lease that outlasts what is held: the operator gives up calls when its own is no longer certain.
        # Not asked again too soon: hundreds of workloads that save would take all the time there is.
        return cluster.prepare_operator(
            kubeconfig=kubeconfig,
            identity="chaos",
            cleanup_finalizer=True,
            sweep_interval_seconds=10,
            poll_interval_seconds=2,
            lease_duration_seconds=30,
            renew_deadline_seconds=20,
        )

    return prepare


@pytest.fixture
def crash(
    director: ChaosRunner,
    stage: ChaosNamespace,
    prepare: Callable[[], Program],
    say: Callable[[str], None],
) -> Crash:
    """Kill operators until each kill has happened often enough, and check every victim of it."""

    async def crash(roles: Roles, at_once: int) -> None:
        director.start = successors = Successors(prepare)
        began = time.monotonic()
        async with director.crashing():
            for number in itertools.count(1):
                actors = company(roles, director.hits, number, at_once)
                if not actors:
                    break
                lacking = {
                    kill: director.hits[kill] for kill in roles if director.hits[kill] < TIMES
                }
                assert number <= MOST_ROUNDS, f"too rare: {lacking}"
                await director.create_victims(actors)
                await director.mark()
                await director.wait_over()
                await check_ledgers(stage, actors)
                await director.check()
                done = sum(director.hits[kill] >= TIMES for kill in roles)
                say(
                    f"round {number}: {len(actors)} victims, {director.kills} kills, "
                    f"{done} of {len(roles)} writes done, {time.monotonic() - began:.0f} s"
                )
        successors.close()

    return crash


async def test_killed_at_every_write_it_resumes_exactly(
    crash: Crash, say: Callable[[str], None]
) -> None:
    """Of the time that a victim takes, this says little: killed so often, most of it counts as time in which nobody could act.

    What fails here is one with which nothing happens for long. That each ends within its bound is shown in the other files,
    with one outage or none.
    """
    await crash(
        {**roles_at(edges.written_edges()), **lost_roles(), **unseen_roles()}, AT_ONCE["delete"]
    )
    assert edges.left_edges() == []
    say("each edge of the table")


async def test_killed_around_each_eviction_it_evicts_each_once(
    cluster: ClusterHandle, director: ChaosRunner, stage: ChaosNamespace, crash: Crash
) -> None:
    cluster.set_policy(extensionPercent="100", ceiling="10m", endWith="evict")
    await crash(roles_at(edges.ending_edges()), AT_ONCE["evict"])
    # That it is once for each was checked with everything else; no DELETE is among them.
    ends = {
        write.what
        for write in records.read_writes(director.audit_log, stage.namespace)
        if write.is_deletion
    }
    assert ends == {"create eviction"}


async def test_killed_as_it_stands_down_what_a_budget_holds_at_the_ceiling_it_deletes_none(
    cluster: ClusterHandle, director: ChaosRunner, stage: ChaosNamespace, crash: Crash
) -> None:
    cluster.set_policy(
        ceiling="20s", checkpointTimeout="10s", maxDeferral="5s", nearCompletion="0s"
    )
    await stage.hold()
    await crash(roles_at([edges.AT_THE_CEILING], beside=()), AT_ONCE["hold"])
    ends = [
        write
        for write in records.read_writes(director.audit_log, stage.namespace)
        if write.is_deletion
    ]
    assert {write.what for write in ends} == {"create eviction"}
    assert not any(write.has_succeeded for write in ends)


async def check_ledgers(stage: ChaosNamespace, actors: list[ScriptedVictim]) -> None:
    """Assert that each eviction was counted on its owner, once; of one that stayed after all, that it is not."""
    for actor in filter(lambda actor: actor.has_owner, actors):
        owner = await stage.owner(actor.name)
        assert counted(owner) == (0 if actor.trigger.is_held else 1), (
            f"{actor.name}: {owner['metadata']}"
        )


def counted(owner: Json) -> int:
    """Return the number of evictions in a Job's ledger."""
    ledger = owner["metadata"].get("annotations", {}).get(keys.LEDGER)
    return (
        0 if ledger is None else sum(slot["count"] for slot in json.loads(ledger)["slots"].values())
    )

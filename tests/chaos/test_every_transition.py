"""The operator is killed with SIGKILL just before and just after each write of a victim's life.

Nothing is lost. One test deletes the victims; one evicts them, for the writes that differ then; one
has a budget hold them until a short ceiling.
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
from reprieve_testing.chaos.chaos_namespace import ChaosNamespace
from reprieve_testing.chaos.chaos_runner import ChaosRunner
from reprieve_testing.chaos.edges import Edge
from reprieve_testing.chaos.scripted_victims import (
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
from reprieve_testing.cluster.handle import ClusterHandle, Program

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
    """Return the victims at whose writes the operator is killed, by the kill's name.

    The writes are those of these edges and of a victim's end.
    """
    roles: dict[str, Callable[[str], ScriptedVictim]] = {}
    points = [(edge, point_of(edge)) for edge in written] + [(ENDS_WELL, point) for point in beside]
    for when in SIDES:
        for edge, point in points:
            roles[f"{when} {point.name}"] = lambda name, edge=edge, point=point, when=when: (
                victim_for_edge(edge, point, when, name)
            )
    return roles


def lost_roles() -> Roles:
    """Return the victims that lose their object, and their operator before it can see that."""
    return {
        f"after {edge}": lambda name, edge=edge: lost_at(edge, name) for edge in edges.lost_edges()
    }


def unseen_roles() -> Roles:
    """Return the pods that stop being victims as their first state is written.

    They lose their operator before it can see that.
    """
    return {
        f"{when} {edge}": lambda name, edge=edge, when=when: unseen_at(edge, when, name)
        for when in SIDES
        for edge in edges.unseen_edges()
    }


def company(roles: Roles, hits: Counter[str], number: int, at_once: int) -> list[ScriptedVictim]:
    """Return the victims of one round: some for each kill that has not happened often enough."""
    return [
        make(f"r{number}-{index}-{copy}")
        for index, (kill, make) in enumerate(roles.items())
        for copy in range(min(at_once, TIMES - hits[kill]))
    ]


class Successors:
    """Starts operators one after the other, each with its code loaded while its predecessor
    runs.
    """

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
        # The same identity: a crashed container's successor need not wait until its predecessor's
        # lease is over. The lease is longer than the proxy holds calls: the operator gives up calls
        # when it is no longer certain of its lease. The poll interval is long: hundreds of
        # workloads that save would otherwise take all the time.
        return cluster.prepare_operator(
            kubeconfig=kubeconfig,
            identity="chaos",
            sweep_interval_seconds=10,
            poll_interval_seconds=2,
            lease_duration_seconds=30,
            renew_deadline_seconds=20,
        )

    return prepare


@pytest.fixture
def crash(
    chaos_runner: ChaosRunner,
    namespace: ChaosNamespace,
    prepare: Callable[[], Program],
    say: Callable[[str], None],
) -> Crash:
    """Kill operators until each kill has happened often enough, and check every victim of it."""

    async def crash(roles: Roles, at_once: int) -> None:
        chaos_runner.start = successors = Successors(prepare)
        began = time.monotonic()
        async with chaos_runner.crashing():
            for number in itertools.count(1):
                victims = company(roles, chaos_runner.hits, number, at_once)
                if not victims:
                    break
                lacking = {
                    kill: chaos_runner.hits[kill]
                    for kill in roles
                    if chaos_runner.hits[kill] < TIMES
                }
                assert number <= MOST_ROUNDS, f"too rare: {lacking}"
                await chaos_runner.create_victims(victims)
                await chaos_runner.mark()
                await chaos_runner.wait_over()
                await check_ledgers(namespace, victims)
                await chaos_runner.check()
                done = sum(chaos_runner.hits[kill] >= TIMES for kill in roles)
                say(
                    f"round {number}: {len(victims)} victims, {chaos_runner.kills} kills, "
                    f"{done} of {len(roles)} writes done, {time.monotonic() - began:.0f} s"
                )
        successors.close()

    return crash


async def test_an_operator_that_is_killed_at_any_write_resumes_exactly(
    crash: Crash, say: Callable[[str], None]
) -> None:
    """This shows little about the time that a victim takes.

    The operator is killed so often that most of the time counts as time without an operator. A
    victim without progress for long fails here. The other files show, with one outage or none, that
    each victim ends within its bound.
    """
    await crash(
        {**roles_at(edges.written_edges()), **lost_roles(), **unseen_roles()}, AT_ONCE["delete"]
    )
    assert edges.left_edges() == []
    say("each edge of the table")


async def test_an_operator_that_is_killed_around_each_eviction_evicts_each_pod_once(
    cluster: ClusterHandle, chaos_runner: ChaosRunner, namespace: ChaosNamespace, crash: Crash
) -> None:
    cluster.set_policy(extensionPercent="100", ceiling="10m", endWith="evict")
    await crash(roles_at(edges.ending_edges()), AT_ONCE["evict"])
    # That it is once for each was checked with everything else; no DELETE is among them.
    ends = {
        write.what
        for write in records.read_writes(chaos_runner.audit_log, namespace.namespace)
        if write.is_deletion
    }
    assert ends == {"create eviction"}


async def test_an_operator_killed_as_it_cancels_held_evictions_at_the_ceiling_deletes_no_pod(
    cluster: ClusterHandle, chaos_runner: ChaosRunner, namespace: ChaosNamespace, crash: Crash
) -> None:
    cluster.set_policy(
        ceiling="20s", checkpointTimeout="10s", maxDeferral="5s", nearCompletion="0s"
    )
    await namespace.hold()
    await crash(roles_at([edges.AT_THE_CEILING], beside=()), AT_ONCE["hold"])
    ends = [
        write
        for write in records.read_writes(chaos_runner.audit_log, namespace.namespace)
        if write.is_deletion
    ]
    assert {write.what for write in ends} == {"create eviction"}
    assert not any(write.has_succeeded for write in ends)


async def check_ledgers(namespace: ChaosNamespace, victims: list[ScriptedVictim]) -> None:
    """Assert that the owner counted each eviction once, and none of a victim that stayed after
    all.
    """
    for victim in filter(lambda victim: victim.has_owner, victims):
        owner = await namespace.owner(victim.name)
        assert counted(owner) == (0 if victim.trigger.is_held else 1), (
            f"{victim.name}: {owner['metadata']}"
        )


def counted(owner: Json) -> int:
    """Return the number of evictions in a Job's ledger."""
    ledger = owner["metadata"].get("annotations", {}).get(keys.LEDGER)
    return (
        0 if ledger is None else sum(slot["count"] for slot in json.loads(ledger)["slots"].values())
    )

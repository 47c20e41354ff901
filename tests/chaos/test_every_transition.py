"""The operator is killed with SIGKILL just before and just after each write of a victim's life: nothing is lost."""

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.eviction import Phase
from reprieve_policy.life_table import Observation
from reprieve_testing.chaos import edges, invariants, records
from reprieve_testing.chaos.actors import DELETION, HELD, LEDGER, LETTING_GO, Actor, When, Workloads, actor_of, point_of
from reprieve_testing.chaos.director import Director
from reprieve_testing.chaos.edges import Edge
from reprieve_testing.chaos.invariants import History
from reprieve_testing.chaos.proxy import ApiProxy
from reprieve_testing.chaos.stage import Stage, all_of
from reprieve_testing.cluster import ClusterHandle, Program

pytestmark = pytest.mark.cluster

Json = Any

TIMES = int(os.environ.get("TIMES", "20"))
"""So often at each write, on each side of it."""
AT_ONCE = 5
MOST_ROUNDS = 12
SIDES: tuple[When, ...] = ("before", "after")
BESIDE = (DELETION, LETTING_GO, LEDGER)
"""Writes of a victim's end that the table does not name."""
ENDS_WELL = Edge(Phase.CHECKPOINTING, Observation.SAVED)


def cast() -> Mapping[str, Callable[[str], Actor]]:
    """Return who is killed where: what each kill is called, and what makes an actor of a name for it."""
    roles = {}
    for when in SIDES:
        for edge in edges.written_edges():
            roles[f"{when} {point_of(edge).name}"] = lambda name, edge=edge, when=when: actor_of(edge, when, name)
        for point in BESIDE:
            roles[f"{when} {point.name}"] = lambda name, point=point, when=when: owned(
                actor_of(ENDS_WELL, when, name, point)
            )
    return roles


def owned(actor: Actor) -> Actor:
    actor.has_owner = True
    return actor


def company(roles: Mapping[str, Callable[[str], Actor]], hits: Counter[str], number: int) -> list[Actor]:
    """Return the actors of one round: some for each kill that has not happened often enough."""
    return [
        make(f"r{number}-{index}-{copy}")
        for index, (kill, make) in enumerate(roles.items())
        for copy in range(min(AT_ONCE, TIMES - hits[kill]))
    ]


async def test_killed_at_every_write_it_resumes_exactly(
    cluster: ClusterHandle, stage: Stage, proxy: ApiProxy, kubeconfig: Path, say: Callable[[str], None]
) -> None:
    def start() -> Program:
        # The same identity: a crashed container's successor need not wait until its own lease is over.
        return cluster.start_operator(
            kubeconfig=kubeconfig, identity="chaos", cleanup_finalizer=True, sweep_interval_seconds=5
        )

    roles, began = cast(), time.monotonic()
    async with Workloads() as workloads:
        director = Director(stage, workloads, start)
        proxy.before, proxy.after = director.before, director.after
        async with director.crashing():
            for number in itertools.count(1):
                actors = company(roles, director.hits, number)
                if not actors:
                    break
                assert number <= MOST_ROUNDS, f"too rare: {lacking(roles, director.hits)}"
                await director.perform(actors)
                await check(cluster, stage, director, actors)
                done = sum(director.hits[kill] >= TIMES for kill in roles)
                say(
                    f"round {number}: {len(actors)} victims, {director.kills} kills, "
                    f"{done} of {len(roles)} writes done, {time.monotonic() - began:.0f} s"
                )


async def check(cluster: ClusterHandle, stage: Stage, director: Director, actors: list[Actor]) -> None:
    """Assert that every promise was kept to these actors, and clear the stage."""
    uids = {actor.uid for actor in actors}
    history = History(
        victims=[actor.as_victim(stage.namespace) for actor in actors],
        writes=[write for write in records.read_writes(cluster.cluster.audit_log) if write.uid in uids],
        hints=[hint for hint in director.workloads.hints if hint.uid in uids],
        said=[said for said in director.workloads.said if said.uid in uids],
        outages=director.outages,
    )
    left = await stage.pods()
    assert invariants.breaches(history) + list(invariants.no_finalizer_left(left.values())) == []
    for actor in filter(lambda actor: actor.has_owner, actors):
        owner = await stage.owner(actor.name)
        assert counted(owner) == 1, f"{actor.name}: {owner['metadata']['annotations']}"
    await stage.release(left, HELD)
    await all_of(stage.delete(name) for name in left)


def counted(owner: Json) -> int:
    """Return the number of evictions in a Job's ledger."""
    slots = json.loads(owner["metadata"]["annotations"][keys.LEDGER])["slots"]
    return sum(slot["count"] for slot in slots.values())


def lacking(roles: Mapping[str, object], hits: Counter[str]) -> dict[str, int]:
    return {kill: hits[kill] for kill in roles if hits[kill] < TIMES}

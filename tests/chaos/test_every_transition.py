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
from reprieve_testing.chaos import edges
from reprieve_testing.chaos.actors import DELETION, LEDGER, LETTING_GO, Actor, When, actor_of, point_of
from reprieve_testing.chaos.director import Director
from reprieve_testing.chaos.edges import Edge
from reprieve_testing.chaos.stage import Stage
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

Roles = Mapping[str, Callable[[str], Actor]]


def all_roles() -> Roles:
    """Return who is killed where: what each kill is called, and what makes an actor of a name for it."""
    roles: dict[str, Callable[[str], Actor]] = {}
    for when in SIDES:
        for edge in edges.written_edges():
            roles[f"{when} {edge}"] = lambda name, edge=edge, when=when: actor_of(edge, point_of(edge), when, name)
        for point in BESIDE:
            roles[f"{when} {point.name}"] = lambda name, point=point, when=when: actor_of(ENDS_WELL, point, when, name)
    return roles


def company(roles: Roles, hits: Counter[str], number: int) -> list[Actor]:
    """Return the actors of one round: some for each kill that has not happened often enough."""
    return [
        make(f"r{number}-{index}-{copy}")
        for index, (kill, make) in enumerate(roles.items())
        for copy in range(min(AT_ONCE, TIMES - hits[kill]))
    ]


class Successors:
    """Starts operators one after the other, each with its code loaded while the one before it still ran."""

    def __init__(self, prepare: Callable[[], Program]) -> None:
        self._prepare = prepare
        self._next = prepare()

    def close(self) -> None:
        """End the one that is not needed any more."""
        self._next.kill()
        assert self._next.process.stdin is not None
        self._next.process.stdin.close()

    def __call__(self, **_: object) -> Program:
        program, self._next = self._next, self._prepare()
        program.release()
        return program


async def test_killed_at_every_write_it_resumes_exactly(
    cluster: ClusterHandle, director: Director, stage: Stage, kubeconfig: Path, say: Callable[[str], None]
) -> None:
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

    director.start = successors = Successors(prepare)
    roles, began = all_roles(), time.monotonic()
    async with director.crashing():
        for number in itertools.count(1):
            actors = company(roles, director.hits, number)
            if not actors:
                break
            lacking = {kill: director.hits[kill] for kill in roles if director.hits[kill] < TIMES}
            assert number <= MOST_ROUNDS, f"too rare: {lacking}"
            await director.cast(actors)
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


async def check_ledgers(stage: Stage, actors: list[Actor]) -> None:
    """Assert that each eviction was counted on its owner, once."""
    for actor in filter(lambda actor: actor.has_owner, actors):
        owner = await stage.owner(actor.name)
        assert counted(owner) == 1, f"{actor.name}: {owner['metadata']['annotations']}"


def counted(owner: Json) -> int:
    """Return the number of evictions in a Job's ledger."""
    slots = json.loads(owner["metadata"]["annotations"][keys.LEDGER])["slots"]
    return sum(slot["count"] for slot in slots.values())

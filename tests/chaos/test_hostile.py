"""Harmful workloads: each ends within its bound, and no other victim is held up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from reprieve_policy import keys
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing.chaos.chaos_namespace import ChaosNamespace, until
from reprieve_testing.chaos.chaos_runner import ChaosRunner
from reprieve_testing.chaos.edges import SAVED, SAVING, SHORT
from reprieve_testing.chaos.hostile_workloads import BEHAVIOURS, REDIRECTS, HostileWorkloads
from reprieve_testing.chaos.scripted_victims import ScriptedVictim
from reprieve_testing.cluster import Program

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

OF_EACH = 6
BYSTANDERS = 12
HARMFUL = {keys.MAX_DEFERRAL: "3s", "example.com/pad": "x" * 200_000}
"""200 KB of annotations: there is room for a state, and each watch event of the pod carries
them.
"""


HARM_SECONDS = 90
"""Slack for a machine that also produces the harmful answers, gibibytes for one."""
RESTLESS_SECONDS = 180
"""Slack for pods that change as quickly as the API server answers.

A change between the operator's read and its write refuses the write; the machine decides how often.
"""
MOST_MIB = 200
"""Of the operator's memory: a single answer, read to its end, would take five times as much."""


def bystanders() -> list[ScriptedVictim]:
    return [
        ScriptedVictim(f"bystander-{index}", scripted_answer=SAVED, seconds=SHORT)
        for index in range(BYSTANDERS)
    ]


def most_mib(program: Program) -> float:
    """Return the most memory that a program has ever held."""
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


async def test_answers_that_do_harm_keep_nobody_longer_than_anybody_else_and_fill_no_memory(
    director: ChaosRunner, say: Callable[[str], None]
) -> None:
    operator = await director.start_leader(poll_interval_seconds=2)
    async with HostileWorkloads() as villains:
        hostile = [
            ScriptedVictim(
                f"{behaviour}-{index}",
                seconds=SHORT,
                slack_seconds=HARM_SECONDS,
                hint=villains.hint(behaviour),
                annotations=HARMFUL,
            )
            for behaviour in (*BEHAVIOURS, REDIRECTS)
            for index in range(OF_EACH)
        ]
        await director.create_victims([*hostile, *bystanders()])
        await director.mark()
        await director.wait_over()
    assert villains.reached == 0, "a redirect was followed"
    held = most_mib(operator)
    say(f"the operator held {held:.0f} MiB at most")
    assert held < MOST_MIB
    await director.check()
    assert operator.process.poll() is None


async def test_a_pod_that_is_changed_all_the_time_and_marked_anew_each_time_still_goes(
    director: ChaosRunner, stage: ChaosNamespace
) -> None:
    await director.start_leader()
    restless = [
        ScriptedVictim(f"restless-{index}", seconds=SHORT, slack_seconds=RESTLESS_SECONDS)
        for index in range(3)
    ]
    await director.create_victims([*restless, *bystanders()])
    async with changing(stage, restless):
        await director.mark()
        await director.wait_over()
    await director.check()


async def test_a_pod_that_marks_itself_again_after_it_was_spared_is_given_notice_again(
    director: ChaosRunner, stage: ChaosNamespace
) -> None:
    await director.start_leader()
    actor = ScriptedVictim("again", scripted_answer=SAVING)
    await director.create_victims([actor])
    await director.mark()
    await until("it saves", lambda: is_in(actor, Phase.CHECKPOINTING), 30)
    await stage.unmark(actor.name)
    await until("it is spared", lambda: is_in(actor, Phase.CANCELLED), 30)
    actor.is_over = False
    await director.mark()
    await until("it saves again", lambda: is_in(actor, Phase.CHECKPOINTING), 30)
    await director.finish()
    hints = director.workloads.hints
    assert [hint.attempt for hint in hints] == [1, 1]
    assert len({hint.eviction_id for hint in hints}) == 2
    assert director.workloads.cancelled == [hints[0].eviction_id]


@contextlib.asynccontextmanager
async def changing(stage: ChaosNamespace, actors: list[ScriptedVictim]) -> AsyncIterator[None]:
    """Have pods changed, and marked, as quickly as the API server answers."""

    async def change(actor: ScriptedVictim) -> None:
        for count in range(1_000_000):
            metadata = {
                "labels": {keys.SOFT_EVICTION: "requested"},
                "annotations": {"example.com/tick": str(count)},
            }
            await stage.patch(actor.name, {"metadata": metadata})

    work = [asyncio.create_task(change(actor)) for actor in actors]
    try:
        yield
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def is_in(actor: ScriptedVictim, phase: Phase) -> bool:
    return actor.phase is phase

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
from reprieve_testing.cluster.handle import Program

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


async def test_hostile_answers_neither_delay_other_victims_nor_fill_memory(
    chaos_runner: ChaosRunner, say: Callable[[str], None]
) -> None:
    operator = await chaos_runner.start_leader(poll_interval_seconds=2)
    async with HostileWorkloads() as workloads:
        hostile = [
            ScriptedVictim(
                f"{behaviour}-{index}",
                seconds=SHORT,
                slack_seconds=HARM_SECONDS,
                hint=workloads.hint(behaviour),
                annotations=HARMFUL,
            )
            for behaviour in (*BEHAVIOURS, REDIRECTS)
            for index in range(OF_EACH)
        ]
        await chaos_runner.create_victims([*hostile, *bystanders()])
        await chaos_runner.mark()
        await chaos_runner.wait_over()
    assert workloads.reached == 0, "a redirect was followed"
    held = most_mib(operator)
    say(f"the operator held {held:.0f} MiB at most")
    assert held < MOST_MIB
    await chaos_runner.check()
    assert operator.process.poll() is None


async def test_a_pod_that_is_constantly_changed_and_marked_again_is_still_evicted(
    chaos_runner: ChaosRunner, namespace: ChaosNamespace
) -> None:
    await chaos_runner.start_leader()
    restless = [
        ScriptedVictim(f"restless-{index}", seconds=SHORT, slack_seconds=RESTLESS_SECONDS)
        for index in range(3)
    ]
    await chaos_runner.create_victims([*restless, *bystanders()])
    async with changing(namespace, restless):
        await chaos_runner.mark()
        await chaos_runner.wait_over()
    await chaos_runner.check()


async def test_a_pod_that_is_marked_again_after_a_cancellation_is_notified_again(
    chaos_runner: ChaosRunner, namespace: ChaosNamespace
) -> None:
    await chaos_runner.start_leader()
    victim = ScriptedVictim("again", scripted_answer=SAVING)
    await chaos_runner.create_victims([victim])
    await chaos_runner.mark()
    await until("it saves", lambda: is_in(victim, Phase.CHECKPOINTING), 180)
    await namespace.unmark(victim.name)
    await until("it is spared", lambda: is_in(victim, Phase.CANCELLED), 180)
    victim.is_over = False
    await chaos_runner.mark()
    await until("it saves again", lambda: is_in(victim, Phase.CHECKPOINTING), 180)
    await chaos_runner.finish()
    hints = chaos_runner.workloads.hints
    assert [hint.attempt for hint in hints] == [1, 1]
    assert len({hint.eviction_id for hint in hints}) == 2
    assert chaos_runner.workloads.cancelled == [hints[0].eviction_id]


@contextlib.asynccontextmanager
async def changing(namespace: ChaosNamespace, victims: list[ScriptedVictim]) -> AsyncIterator[None]:
    """Have pods changed, and marked, as quickly as the API server answers."""

    async def change(victim: ScriptedVictim) -> None:
        for count in range(1_000_000):
            metadata = {
                "labels": {keys.SOFT_EVICTION: "requested"},
                "annotations": {"example.com/tick": str(count)},
            }
            await namespace.patch(victim.name, {"metadata": metadata})

    work = [asyncio.create_task(change(victim)) for victim in victims]
    try:
        yield
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def is_in(victim: ScriptedVictim, phase: Phase) -> bool:
    return victim.phase is phase

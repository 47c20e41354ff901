"""The next operator goes on within 20 seconds, with the settings that the base has.

Two replicas run, and victims wait for their checkpoints when the leader ends: at once by SIGKILL,
or by SIGTERM as a node drain does it. What must hold of every victim is checked on the audit log.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from reprieve_operator.settings import OperatorSettings
from reprieve_testing.chaos.chaos_namespace import until
from reprieve_testing.chaos.chaos_runner import ChaosRunner
from reprieve_testing.chaos.edges import LONG, SAVING
from reprieve_testing.chaos.scripted_victims import ScriptedVictim, mixed_victims, utc_now
from reprieve_testing.cluster.handle import Program

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PROMISE = timedelta(seconds=20)
DEFAULTS = OperatorSettings()
ELECTION = {
    "lease_duration_seconds": DEFAULTS.lease_duration_seconds,
    "renew_deadline_seconds": DEFAULTS.renew_deadline_seconds,
    "retry_period_seconds": DEFAULTS.retry_period_seconds,
}
VICTIMS = 12


def killed(leader: Program) -> None:
    leader.kill(end_lease=False)


def terminated(leader: Program) -> None:
    assert leader.stop() == 0


@pytest.mark.parametrize("end", [killed, terminated])
async def test_the_next_operator_goes_on_within_20_seconds_and_no_victim_is_asked_twice(
    chaos_runner: ChaosRunner, end: Callable[[Program], None]
) -> None:
    first = await chaos_runner.start_leader(identity="first", **ELECTION)
    second = chaos_runner.start(identity="second", **ELECTION)
    await asyncio.to_thread(second.wait_ready)
    waiting = mixed_victims("waiting", VICTIMS)
    # They are marked while no operator leads, and so show when the next one goes on.
    late = [ScriptedVictim(f"late-{index}", scripted_answer=SAVING) for index in range(VICTIMS)]
    await chaos_runner.create_victims([*waiting, *late])
    await chaos_runner.mark(waiting)
    await until("all that wait were asked", asked(waiting), LONG)

    since = utc_now()
    await asyncio.to_thread(end, first)
    await chaos_runner.mark(late)
    await until("the next one asks", asked(late), LONG)
    chaos_runner.add_outage(since)

    assert chaos_runner.leader == "second"
    hints = chaos_runner.workloads.hints
    went_on_at = min(hint.at for hint in hints if hint.uid in {victim.uid for victim in late})
    assert went_on_at - since <= PROMISE, f"after {went_on_at - since}"
    await chaos_runner.finish()
    answered = {answer.uid for answer in chaos_runner.workloads.answers}
    counts = Counter(hint.uid for hint in hints if hint.uid in answered)
    assert set(counts.values()) == {1}, "a workload that answers was asked again"


def asked(victims: list[ScriptedVictim]) -> Callable[[], Awaitable[bool]]:
    async def are_asked() -> bool:
        return all(victim.heard_eviction_id for victim in victims if victim.has_hint)

    return are_asked

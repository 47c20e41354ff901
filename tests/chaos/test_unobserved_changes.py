"""Changes of victims that the operator does not see, and foreign data on them."""

from typing import Any

import pytest

from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing.chaos.chaos_namespace import ChaosNamespace, until
from reprieve_testing.chaos.chaos_runner import ChaosRunner
from reprieve_testing.chaos.edges import SAVED, SAVING, SHORT, PodAction, Trigger
from reprieve_testing.chaos.scripted_victims import ScriptedVictim, utc_now

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

Json = Any
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


async def is_in(victim: ScriptedVictim, phase: Phase) -> bool:
    return victim.phase is phase


async def mark_and_wait_until_saving(chaos_runner: ChaosRunner, *victims: ScriptedVictim) -> None:
    """Mark victims, and return once each is saving."""
    await chaos_runner.create_victims(victims)
    await chaos_runner.mark()
    for victim in victims:
        await until(
            f"{victim.name} saves", lambda victim=victim: is_in(victim, Phase.CHECKPOINTING), 30
        )


async def wait_until_spared(chaos_runner: ChaosRunner, victim: ScriptedVictim) -> None:
    """Return once a pod is no victim any more, and its workload is notified of that."""
    await until("it is spared", lambda: is_in(victim, Phase.CANCELLED), 180)
    await until("it is told so", lambda: chaos_runner.workloads.is_cancelled(victim), 180)


def disruption(pod: Json) -> list[str]:
    return [
        found["status"]
        for found in pod["status"]["conditions"]
        if found["type"] == "DisruptionTarget"
    ]


async def test_a_mark_that_is_removed_while_no_operator_runs_spares_the_pod(
    chaos_runner: ChaosRunner, namespace: ChaosNamespace
) -> None:
    first = await chaos_runner.start_leader(identity="same")
    victim = ScriptedVictim(
        "spared", scripted_answer=SAVING, trigger=Trigger(action=PodAction.UNMARK)
    )
    await mark_and_wait_until_saving(chaos_runner, victim)
    first.kill(end_lease=False)
    await namespace.unmark(victim.name)
    victim.ended_at = utc_now()
    async with chaos_runner.outage():
        chaos_runner.start(identity="same")
    await wait_until_spared(chaos_runner, victim)
    pod = (await namespace.pods())[victim.name]
    assert "deletionTimestamp" not in pod["metadata"]
    await chaos_runner.check()


async def test_the_disruption_condition_of_a_scheduler_is_reset_with_the_mark(
    chaos_runner: ChaosRunner, namespace: ChaosNamespace
) -> None:
    await chaos_runner.start_leader()
    victim = ScriptedVictim(
        "announced", scripted_answer=SAVING, trigger=Trigger(action=PodAction.UNMARK)
    )
    await mark_and_wait_until_saving(chaos_runner, victim)
    conditions = (await namespace.pods())[victim.name]["status"]["conditions"]
    await namespace.patch(
        victim.name, {"status": {"conditions": [*conditions, PREEMPTED]}}, "status"
    )
    victim.ended_at = utc_now()
    await namespace.unmark(victim.name)
    await wait_until_spared(chaos_runner, victim)
    assert disruption((await namespace.pods())[victim.name]) == ["False"]
    await chaos_runner.check()


async def test_the_disruption_condition_of_a_scheduler_does_not_shorten_the_notice(
    chaos_runner: ChaosRunner, namespace: ChaosNamespace
) -> None:
    await chaos_runner.start_leader()
    victim = ScriptedVictim("announced", seconds=SHORT)
    await chaos_runner.create_victims([victim])
    conditions = (await namespace.pods())[victim.name]["status"]["conditions"]
    await namespace.patch(
        victim.name, {"status": {"conditions": [*conditions, PREEMPTED]}}, "status"
    )
    await chaos_runner.mark()
    await chaos_runner.wait_over()
    await chaos_runner.check()


async def test_a_ledger_for_an_owner_that_is_gone_delays_no_victim(
    chaos_runner: ChaosRunner, namespace: ChaosNamespace
) -> None:
    await chaos_runner.start_leader()
    victim = ScriptedVictim("orphan", scripted_answer=SAVING, has_owner=True)
    await mark_and_wait_until_saving(chaos_runner, victim)
    await namespace.orphan(victim.name)
    await chaos_runner.finish()


async def test_a_pod_recreated_under_the_same_name_is_not_a_victim(
    chaos_runner: ChaosRunner, namespace: ChaosNamespace
) -> None:
    first = await chaos_runner.start_leader(identity="same")
    victim = ScriptedVictim(
        "twin",
        scripted_answer=SAVED,
        trigger=Trigger(action=PodAction.DELETE),
        trigger_phase=Phase.EXTENDED,
    )
    await chaos_runner.create_victims([victim])
    first.kill(end_lease=False)
    await chaos_runner.mark()
    await namespace.delete(victim.name)
    await namespace.release([victim.name], "example.com/held")

    async def is_gone() -> bool:
        return victim.name not in await namespace.pods()

    await until("the first is gone", is_gone, 180)
    made = await namespace.create_pods([namespace.pod(victim.name, {})])
    async with chaos_runner.outage():
        chaos_runner.start(identity="same")
    witness = ScriptedVictim("witness", has_hint=False)
    await chaos_runner.create_victims([witness])
    await chaos_runner.mark()
    await chaos_runner.wait_over()
    twin = (await namespace.pods())[victim.name]
    assert twin["metadata"]["uid"] == made[victim.name]["metadata"]["uid"]
    assert "deletionTimestamp" not in twin["metadata"]
    assert "reprieve.dev/soft-eviction" not in twin["metadata"].get("labels", {})

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


async def is_in(actor: ScriptedVictim, phase: Phase) -> bool:
    return actor.phase is phase


async def told(director: ChaosRunner, *actors: ScriptedVictim) -> None:
    """Mark actors, and return once each is saving."""
    await director.create_victims(actors)
    await director.mark()
    for actor in actors:
        await until(
            f"{actor.name} saves", lambda actor=actor: is_in(actor, Phase.CHECKPOINTING), 30
        )


async def spared(director: ChaosRunner, actor: ScriptedVictim) -> None:
    """Return once an actor is no victim any more, and its workload is notified of that."""
    await until("it is spared", lambda: is_in(actor, Phase.CANCELLED), 30)
    await until("it is told so", lambda: director.workloads.is_cancelled(actor), 30)


def disruption(pod: Json) -> list[str]:
    return [
        found["status"]
        for found in pod["status"]["conditions"]
        if found["type"] == "DisruptionTarget"
    ]


async def test_a_mark_taken_back_while_no_operator_runs_spares_the_pod(
    director: ChaosRunner, stage: ChaosNamespace
) -> None:
    first = await director.start_leader(identity="same")
    actor = ScriptedVictim(
        "spared", scripted_answer=SAVING, trigger=Trigger(action=PodAction.UNMARK)
    )
    await told(director, actor)
    first.kill(end_lease=False)
    await stage.unmark(actor.name)
    actor.ended_at = utc_now()
    async with director.outage():
        director.start(identity="same")
    await spared(director, actor)
    pod = (await stage.pods())[actor.name]
    assert "deletionTimestamp" not in pod["metadata"]
    await director.check()


async def test_a_disruption_that_a_scheduler_announced_is_taken_back_with_the_mark(
    director: ChaosRunner, stage: ChaosNamespace
) -> None:
    await director.start_leader()
    actor = ScriptedVictim(
        "announced", scripted_answer=SAVING, trigger=Trigger(action=PodAction.UNMARK)
    )
    await told(director, actor)
    conditions = (await stage.pods())[actor.name]["status"]["conditions"]
    await stage.patch(actor.name, {"status": {"conditions": [*conditions, PREEMPTED]}}, "status")
    actor.ended_at = utc_now()
    await stage.unmark(actor.name)
    await spared(director, actor)
    assert disruption((await stage.pods())[actor.name]) == ["False"]
    await director.check()


async def test_a_disruption_that_a_scheduler_announced_hastens_nothing(
    director: ChaosRunner, stage: ChaosNamespace
) -> None:
    await director.start_leader()
    actor = ScriptedVictim("announced", seconds=SHORT)
    await director.create_victims([actor])
    conditions = (await stage.pods())[actor.name]["status"]["conditions"]
    await stage.patch(actor.name, {"status": {"conditions": [*conditions, PREEMPTED]}}, "status")
    await director.mark()
    await director.wait_over()
    await director.check()


async def test_a_ledger_for_an_owner_that_is_gone_holds_nobody_up(
    director: ChaosRunner, stage: ChaosNamespace
) -> None:
    await director.start_leader()
    actor = ScriptedVictim("orphan", scripted_answer=SAVING, has_owner=True)
    await told(director, actor)
    await stage.orphan(actor.name)
    await director.finish()


async def test_a_pod_made_anew_under_the_same_name_is_nobodys_victim(
    director: ChaosRunner, stage: ChaosNamespace
) -> None:
    first = await director.start_leader(identity="same")
    actor = ScriptedVictim(
        "twin",
        scripted_answer=SAVED,
        trigger=Trigger(action=PodAction.DELETE),
        trigger_phase=Phase.EXTENDED,
    )
    await director.create_victims([actor])
    first.kill(end_lease=False)
    await director.mark()
    await stage.delete(actor.name)
    await stage.release([actor.name], "example.com/held")

    async def is_gone() -> bool:
        return actor.name not in await stage.pods()

    await until("the first is gone", is_gone, 30)
    made = await stage.create_pods([stage.pod(actor.name, {})])
    async with director.outage():
        director.start(identity="same")
    witness = ScriptedVictim("witness", has_hint=False)
    await director.create_victims([witness])
    await director.mark()
    await director.wait_over()
    twin = (await stage.pods())[actor.name]
    assert twin["metadata"]["uid"] == made[actor.name]["metadata"]["uid"]
    assert "deletionTimestamp" not in twin["metadata"]
    assert "reprieve.dev/soft-eviction" not in twin["metadata"].get("labels", {})

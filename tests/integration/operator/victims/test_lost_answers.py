"""A write that is carried out, and whose answer is lost, changes nothing for a gang.

Each scenario runs as it is, and with one or more lost answers: pods, deletions and Events are the
same.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from reprieve_operator.cluster import pod_state
from reprieve_policy import keys
from reprieve_policy.lifecycle import mark
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Phase
from reprieve_testing.played_cluster import SAVES, PlayedCluster
from reprieve_testing.servers.stub_api import until

PODS = ("a", "b", "c")
GANG = {keys.POD_GROUP: "train"}


@dataclass(frozen=True)
class GangOutcome:
    """What users see of a gang's eviction."""

    outcomes: dict[str, tuple[Phase, CheckpointOutcome | None] | None]
    deleted: dict[str, int | None]
    events: list[tuple[str, str]]


Scenario = Callable[[PlayedCluster], Awaitable[None]]


async def notify(cluster: PlayedCluster) -> None:
    cluster.show("a", labels={keys.SOFT_EVICTION: mark.REQUESTED})
    await until(lambda: all(cluster.phase(name) is Phase.HINTED for name in PODS))


async def save_and_go(cluster: PlayedCluster) -> None:
    await notify(cluster)
    for name in PODS:
        cluster.answer(name)
    await until(lambda: len(cluster.deleted) == len(PODS))


async def cancel(cluster: PlayedCluster) -> None:
    await notify(cluster)
    cluster.show("b", labels={keys.SOFT_EVICTION: ""})
    await until(lambda: all(cluster.phase(name) is Phase.CANCELLED for name in PODS))


async def fail_after_the_save(cluster: PlayedCluster) -> None:
    await notify(cluster)
    cluster.answer("b")
    await until(lambda: cluster.phase("b") is Phase.SAVED)
    pod = cluster.pods["b"]
    cluster.pods["b"] = replace(pod, status=replace(pod.status, phase="Failed"))
    cluster.show("b")
    await until(lambda: cluster.phase("b") is Phase.FINISHED)
    for name in ("a", "c"):
        cluster.answer(name)
    await until(lambda: len(cluster.deleted) == 2)


async def be_deleted_by_a_user(cluster: PlayedCluster) -> None:
    await notify(cluster)
    cluster.delete("b", seconds=3600)
    await until(lambda: cluster.phase("b") is Phase.TERMINATING)
    for name in ("a", "c"):
        cluster.answer(name)
    await until(lambda: len(cluster.deleted) == 2)


async def be_refused(cluster: PlayedCluster) -> None:
    for name in PODS:
        cluster.change(name, labels={keys.PREEMPTIBLE: "false"})
    asked = mark.render(mark.Mark(initiator=mark.GUARD_INITIATOR, reason="preemption"))
    cluster.show(
        "a",
        labels={keys.SOFT_EVICTION: mark.MARKED},
        annotations={keys.KOORDINATOR_SOFT_EVICTION: asked, keys.PREEMPTOR: "uid-of-high"},
    )
    await until(lambda: cluster.phase("a") is Phase.SPARED)


async def play(scenario: Scenario, *lost: tuple[str, Phase]) -> PlayedCluster:
    """Play a scenario in which the answers to these writes are lost."""
    cluster = PlayedCluster(lost_answers=set(lost))
    cluster.sets.on_listed()
    for name in PODS:
        cluster.create(name, labels=GANG, annotations=SAVES)
    await scenario(cluster)
    return cluster


def outcome_of(cluster: PlayedCluster) -> GangOutcome:
    states = {name: pod_state.state_of(cluster.pods[name].metadata) for name in PODS}
    return GangOutcome(
        {
            name: None if state is None else (state.phase, state.outcome)
            for name, state in states.items()
        },
        cluster.deleted,
        sorted((name, reason) for name, reason in cluster.events if name in PODS),
    )


CASES: list[tuple[Scenario, list[tuple[str, Phase]]]] = [
    (save_and_go, [("a", Phase.HINTED)]),
    (save_and_go, [("b", Phase.HINTED)]),
    (save_and_go, [("b", Phase.SAVED), ("c", Phase.SAVED)]),
    (save_and_go, [(name, Phase.TERMINATING) for name in PODS]),
    (cancel, [("a", Phase.CANCELLED)]),
    (cancel, [("b", Phase.CANCELLED)]),
    (fail_after_the_save, [("b", Phase.SAVED), ("b", Phase.FINISHED)]),
    (be_deleted_by_a_user, [("b", Phase.TERMINATING)]),
    (be_refused, [("a", Phase.SPARED)]),
]


@pytest.mark.parametrize(
    ("scenario", "lost"),
    CASES,
    ids=[
        f"{scenario.__name__}-{'-'.join(name + '-' + phase.value for name, phase in lost)}"
        for scenario, lost in CASES
    ],
)
async def test_a_lost_answer_changes_nothing_for_a_gang(
    scenario: Scenario, lost: list[tuple[str, Phase]]
) -> None:
    cluster = await play(scenario)
    assert await cluster.is_held("none"), "a pod that is marked later is deleted: all is done"
    expected = outcome_of(cluster)
    await cluster.registry.close()
    cluster = await play(scenario, *lost)
    # Events come last: the operator has read the pod again, and decided.
    await until(lambda: outcome_of(cluster).events == expected.events)
    assert await cluster.is_held("none")
    assert outcome_of(cluster) == expected
    assert not cluster.lost_answers
    await cluster.registry.close()

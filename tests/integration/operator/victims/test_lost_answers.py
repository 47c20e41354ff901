"""A write that is carried out, and whose answer is lost, changes nothing for a gang.

Each scenario runs as it is, and with one or more lost answers: pods, deletions and Events are the
same.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.victims.assessment import Assessment, VictimAssessor
from reprieve_operator.victims.checkpoint_session import CheckpointSession
from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import (
    CheckpointOutcome,
    Eviction,
    Phase,
    Protection,
    ProtectionReason,
)
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import an_eviction
from reprieve_testing.played_cluster import SAVES, PlayedCluster
from reprieve_testing.servers.stub_api import until

PODS = ("a", "b", "c")
GANG = {keys.POD_GROUP: "train"}
BY_GUARD = {
    keys.KOORDINATOR_SOFT_EVICTION: mark.render(
        mark.Mark(initiator=mark.GUARD_INITIATOR, reason="preemption")
    ),
    keys.PREEMPTOR: "uid-of-high",
}


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
    cluster.show("a", labels={keys.SOFT_EVICTION: mark.MARKED}, annotations=BY_GUARD)
    await until(lambda: cluster.phase("a") is Phase.SPARED)


def a_gang(cluster: PlayedCluster) -> PlayedCluster:
    cluster.sets.on_listed()
    for name in PODS:
        cluster.create(name, labels=GANG, annotations=SAVES)
    return cluster


async def play(
    scenario: Scenario, lost: Collection[tuple[str, Phase]] = (), deletions: Collection[str] = ()
) -> PlayedCluster:
    """Play a scenario in which the answers to these writes and deletions are lost."""
    cluster = PlayedCluster(lost_answers=set(lost), lost_deletions=set(deletions))
    await scenario(a_gang(cluster))
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
    await check_same(scenario, lost)


async def test_a_lost_answer_to_a_deletion_changes_nothing() -> None:
    """Without this, the losses of an API server under stress would be in no Event and no metric."""
    await check_same(save_and_go, deletions=PODS)


async def test_a_deletion_that_is_given_up_and_arrives_late_is_reported() -> None:
    conflict = ApiError(409, "Conflict", "the pod has changed")
    late = PlayedCluster(late_deletions={"a"}, lost_deletion=conflict)
    for cluster in (PlayedCluster(), late):
        await save_and_go(a_gang(cluster))
        await until(
            lambda cluster=cluster: cluster.events.count(("a", "SoftEvictionDeleting")) == 1
        )
        await cluster.registry.close()
    assert not late.late_deletions
    assert not late.lost_deletions


class RefusingEvictions(PlayedCluster):
    """A budget allows no eviction."""

    async def evict_pod(self, *_: object) -> None:
        raise ApiError(429, "TooManyRequests", "", causes=[("DisruptionBudget", "needs 3 pods")])


@pytest.mark.parametrize("whose", ["a person's", "a younger pod's preemptor"])
async def test_no_request_deletes_a_gang_that_a_budget_holds_also_with_a_new_operator(
    whose: str,
) -> None:
    """`d` is younger than the request to evict the gang, and no part of that."""
    cluster = RefusingEvictions(ceiling_seconds=2, resync_seconds=0.2)
    a_gang(cluster)
    cluster.show("a", labels={keys.SOFT_EVICTION: mark.EVICT})
    await until(lambda: all(cluster.phase(name) is Phase.HINTED for name in PODS))
    cluster.create("d", labels=GANG, annotations=SAVES)
    younger = replace(
        cluster.pods["d"].metadata,
        creationTimestamp=timestamp.render(Clock().now() + timedelta(seconds=1)),
    )
    cluster.pods["d"] = replace(cluster.pods["d"], metadata=younger)
    if whose == "a younger pod's preemptor":
        cluster.show("d", labels={keys.SOFT_EVICTION: mark.MARKED}, annotations=BY_GUARD)
        await until(lambda: cluster.phase("d") is Phase.HINTED)
    else:
        cluster.show("b", labels={keys.SOFT_EVICTION: mark.REQUESTED})
    await cluster.registry.close()
    follower = RefusingEvictions(ceiling_seconds=2, resync_seconds=0.2)
    follower.pods, follower._version = cluster.pods, cluster._version
    follower.sets.on_listed()
    for name in PODS:
        follower.answer(name)
    await until(
        lambda: (
            {outcome for _, outcome in outcome_of(follower).outcomes.values()}  # type: ignore[misc]  # all have one
            == {CheckpointOutcome.HELD_BY_BUDGET}
        )
    )
    assert not follower.deleted.keys() & set(PODS)
    await follower.registry.close()


async def check_same(
    scenario: Scenario, lost: Collection[tuple[str, Phase]] = (), deletions: Collection[str] = ()
) -> None:
    cluster = await play(scenario)
    assert await cluster.is_held("none"), "a pod that is marked later is deleted: all is done"
    expected = outcome_of(cluster)
    await cluster.registry.close()
    cluster = await play(scenario, lost, deletions)
    # Events come last: the operator has read the pod again, and decided.
    await until(lambda: outcome_of(cluster).events == expected.events)
    assert await cluster.is_held("none")
    assert outcome_of(cluster) == expected
    assert not cluster.lost_answers
    assert not cluster.lost_deletions
    await cluster.registry.close()


async def test_a_mark_that_is_set_while_a_workload_is_told_that_its_pod_stays_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, may_answer = asyncio.Event(), asyncio.Event()

    async def cancel(*_: object) -> None:
        told.set()
        await may_answer.wait()

    monkeypatch.setattr(CheckpointSession, "cancel", cancel)
    cluster = PlayedCluster(lost_answers={("a", Phase.CANCELLED)})
    cluster.sets.on_listed()
    cluster.create("a", annotations=SAVES)
    cluster.show("a", labels={keys.SOFT_EVICTION: mark.REQUESTED})
    await until(lambda: cluster.phase("a") is Phase.HINTED)
    cluster.show("a", labels={keys.SOFT_EVICTION: ""})
    await told.wait()
    cluster.show("a", labels={keys.SOFT_EVICTION: mark.REQUESTED})
    may_answer.set()
    await until(lambda: cluster.phase("a") is Phase.HINTED)
    await cluster.registry.close()


async def test_a_mark_that_is_set_as_the_reconciler_ends_counts(cluster: PlayedCluster) -> None:
    cluster.create("a", annotations=SAVES)
    cluster.show("a", labels={keys.SOFT_EVICTION: mark.REQUESTED})
    await until(lambda: cluster.phase("a") is Phase.HINTED)
    task = cluster.registry._tasks["uid-of-a"]
    cluster.show("a", labels={keys.SOFT_EVICTION: ""})
    while not task.done():  # noqa: ASYNC110 - the very turn of the loop in which it ends
        await asyncio.sleep(0)
    cluster.show("a", labels={keys.SOFT_EVICTION: mark.REQUESTED})
    await until(lambda: cluster.phase("a") is Phase.HINTED)


class RefusingSlowly(PlayedCluster):
    """Writes that a pod stays once it may."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.is_refusing, self.may_refuse = asyncio.Event(), asyncio.Event()

    async def write_cancelled(self, pod: VictimPod, state: Eviction) -> VictimPod:
        self.is_refusing.set()
        await self.may_refuse.wait()
        return await super().write_cancelled(pod, state)


@pytest.mark.parametrize("begins_first", [False, True])
async def test_a_pod_that_was_refused_to_a_scheduler_goes_with_its_gang_all_the_same(
    *, begins_first: bool
) -> None:
    cluster = RefusingSlowly()
    a_gang(cluster)
    refusing = asyncio.create_task(be_refused(cluster))
    await cluster.is_refusing.wait()
    cluster.show("b", labels={keys.SOFT_EVICTION: mark.REQUESTED})
    if begins_first:
        await until(lambda: cluster.phase("b") is Phase.HINTED)
    cluster.may_refuse.set()
    await until(lambda: all(cluster.phase(name) is Phase.HINTED for name in PODS))
    refusing.cancel()
    await cluster.registry.close()


async def test_a_cancellation_with_a_lost_answer_holds_for_a_gang_of_two_decisions(
    cluster: PlayedCluster,
) -> None:
    """An operator that follows finds them: both pods were marked at the same time."""
    for name in PODS:
        hinted = an_eviction().in_phase(Phase.HINTED).build()
        state = replace(
            hinted,
            eviction_id=f"eviction-of-{name}",
            decision_id=f"eviction-of-{name}",
            gang="train",
            requested_at=Clock().now(),
            deadline=Clock().now() + timedelta(hours=1),
        )
        cluster.create(name, labels=GANG, annotations=SAVES)
        cluster.change(
            name,
            labels={keys.SOFT_EVICTION: "hinted"},
            annotations={keys.EVICTION: eviction.render(state)},
        )
    for name in PODS:
        cluster.show(name)
    await until(lambda: len(cluster.registry.victims()) == len(PODS))
    assert await cluster.is_held("none")
    cluster.lost_answers.add(("b", Phase.CANCELLED))
    cluster.show("b", labels={keys.SOFT_EVICTION: ""})
    await until(lambda: all(cluster.phase(name) is Phase.CANCELLED for name in PODS))


async def test_a_refusal_for_a_time_with_a_lost_answer_is_reported(
    cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def assess(_: object, __: VictimPod, state: Eviction) -> Assessment:
        until_then = Clock().now() + timedelta(hours=1)
        return Assessment(state, Protection(ProtectionReason.NEAR_COMPLETION, until_then))

    monkeypatch.setattr(VictimAssessor, "assess", assess)
    cluster.lost_answers.add(("a", Phase.REPRIEVED))
    cluster.mark("a", SAVES)
    await until(lambda: cluster.events == [("a", "PreemptionRefused")])


async def test_a_gang_is_cancelled_before_a_slow_workload_is_told(
    cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, the last of the others could save meanwhile, and all but one would go."""
    is_told = asyncio.Event()

    async def tell(*_: object) -> None:
        await is_told.wait()

    monkeypatch.setattr(CheckpointSession, "cancel", tell)
    await cancel(a_gang(cluster))
    is_told.set()

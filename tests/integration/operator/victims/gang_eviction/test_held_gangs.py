"""A gang of which a budget holds one pod: what that means for its other pods.

An owner could hold a pod beyond what a preemptor waits for, by a small pod of the same gang.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.victims.gang_eviction import registry
from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import mark
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_runtime.client.api import ApiError
from reprieve_testing.played_cluster import SAVES, PlayedCluster
from reprieve_testing.servers.stub_api import until

EVICT = {keys.SOFT_EVICTION: mark.EVICT}
BY_GUARD = {
    keys.KOORDINATOR_SOFT_EVICTION: mark.render(
        mark.Mark(initiator=mark.GUARD_INITIATOR, reason="preemption")
    ),
    keys.PREEMPTOR: "uid-of-high",
}


class HoldsPods(PlayedCluster):
    """Two budgets hold every pod."""

    async def evict_pod(self, *_: object) -> None:
        raise ApiError(500, "InternalError", "This pod has more than one PodDisruptionBudget")


def gang(name: str) -> dict[str, str]:
    return {keys.POD_GROUP: name}


def state_of(cluster: PlayedCluster, name: str) -> Eviction:
    found = pod_state.state_of(cluster.pods[name].metadata)
    assert found is not None
    return found


async def test_the_hold_of_one_pod_is_that_of_each_that_may_only_be_evicted() -> None:
    cluster = HoldsPods(ceiling_seconds=1, resync_seconds=0.2)
    cluster.sets.on_listed()
    cluster.create("large", annotations=SAVES)
    held_since = []
    for number in range(2):
        small = f"small-{number}"
        cluster.create(small, labels=gang(small), annotations=SAVES)
        cluster.show(small, labels=EVICT)
        await until(lambda small=small: cluster.phase(small) is Phase.HINTED)
        # The small pod reaches its ceiling while the large one still saves.
        await asyncio.sleep(0.3)
        cluster.change("large", labels=gang(small))
        cluster.show("large", labels=EVICT)
        await until(lambda: cluster.phase("large") is Phase.HINTED)
        await until(lambda: cluster.phase("large") is Phase.CANCELLED)
        last = state_of(cluster, "large")
        assert last.outcome is CheckpointOutcome.HELD_BY_BUDGET
        held_since.append(last.held_since)
    await cluster.registry.close()
    assert held_since[0] is None
    assert held_since[1] is not None, "the time that a preemptor waits does not begin anew"


async def hold_small_while_large_saves_for_a_preemptor(cluster: HoldsPods) -> None:
    """Leave two pods of a gang: a budget holds one, and the other, a younger one, is a victim."""
    cluster.sets.on_listed()
    cluster.create("small", labels=gang("g"), annotations=SAVES)
    cluster.show("small", labels=EVICT)
    await until(lambda: cluster.phase("small") is Phase.HINTED)
    await asyncio.sleep(0.3)
    cluster.create("large", labels=gang("g"), annotations=SAVES)
    younger = replace(
        cluster.pods["large"].metadata,
        creationTimestamp=timestamp.render(Clock().now() + timedelta(seconds=1)),
    )
    cluster.pods["large"] = replace(cluster.pods["large"], metadata=younger)
    preempt(cluster, "large")


def preempt(cluster: HoldsPods, name: str) -> None:
    cluster.show(name, labels={keys.SOFT_EVICTION: mark.MARKED}, annotations=BY_GUARD)


async def preempt_one_more(cluster: HoldsPods, name: str) -> None:
    """Add a pod to the gang, have it preempted, and wait until it saves."""
    cluster.create(name, labels=gang("g"), annotations=SAVES)
    preempt(cluster, name)
    await until(lambda: cluster.phase(name) is Phase.HINTED)


async def test_the_hold_of_one_pod_keeps_none_from_a_preemptor() -> None:
    cluster = HoldsPods(ceiling_seconds=1, resync_seconds=0.2)
    await hold_small_while_large_saves_for_a_preemptor(cluster)
    await until(lambda: "large" in cluster.deleted)
    await until(lambda: cluster.phase("small") is Phase.CANCELLED)
    await cluster.registry.close()
    assert state_of(cluster, "small").outcome is CheckpointOutcome.HELD_BY_BUDGET
    assert state_of(cluster, "large").phase is Phase.TERMINATING


@pytest.fixture
def _no_cancel_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large pod may save for longer than a mark waits for the end of a cancelled gang."""
    monkeypatch.setattr(registry, "_CANCEL_WAIT_SECONDS", 0.01)


@pytest.mark.usefixtures("_no_cancel_wait")
async def test_what_a_budget_holds_is_held_at_its_next_eviction_too() -> None:
    cluster = HoldsPods(ceiling_seconds=1, resync_seconds=0.2)
    await hold_small_while_large_saves_for_a_preemptor(cluster)
    await until(lambda: cluster.phase("small") is Phase.CANCELLED)
    assert cluster.phase("large") is Phase.HINTED
    first = state_of(cluster, "small")
    cluster.show("small", labels=EVICT)
    await until(lambda: state_of(cluster, "small").eviction_id != first.eviction_id)
    await until(lambda: cluster.phase("small") is Phase.CANCELLED)
    assert state_of(cluster, "small").outcome is CheckpointOutcome.HELD_BY_BUDGET
    await until(lambda: "large" in cluster.deleted)
    await cluster.registry.close()
    assert "small" not in cluster.deleted


@pytest.mark.usefixtures("_no_cancel_wait")
async def test_a_pod_does_not_wait_for_one_of_a_held_gang_that_is_gone() -> None:
    cluster = HoldsPods(ceiling_seconds=1, resync_seconds=0.2)
    await hold_small_while_large_saves_for_a_preemptor(cluster)
    await until(lambda: cluster.phase("small") is Phase.CANCELLED)
    cluster.policy.current = PolicySettings(ceiling_seconds=10**6)
    await preempt_one_more(cluster, "third")
    cluster.answer("third")
    await until(lambda: "large" in cluster.deleted)
    cluster.end("large")
    await until(lambda: "third" in cluster.deleted)
    await cluster.registry.close()


@pytest.mark.usefixtures("_no_cancel_wait")
async def test_who_cancels_one_pod_of_a_held_gang_cancels_the_others() -> None:
    cluster = HoldsPods(ceiling_seconds=1, resync_seconds=0.2)
    await hold_small_while_large_saves_for_a_preemptor(cluster)
    await until(lambda: cluster.phase("small") is Phase.CANCELLED)
    cluster.policy.current = PolicySettings(ceiling_seconds=10**6)
    await preempt_one_more(cluster, "third")
    await preempt_one_more(cluster, "fourth")
    cluster.show("third", labels={keys.SOFT_EVICTION: ""}, annotations=dict.fromkeys(BY_GUARD, ""))
    await until(lambda: cluster.phase("fourth") is Phase.CANCELLED)
    await cluster.registry.close()
    assert state_of(cluster, "fourth").outcome is CheckpointOutcome.CANCELLED

"""A gang of which a budget holds one pod: what that means for its other pods.

An owner could hold a pod beyond what a preemptor waits for, by a small pod of the same gang.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_policy import keys
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


async def test_the_hold_of_one_pod_keeps_none_from_a_preemptor() -> None:
    cluster = HoldsPods(ceiling_seconds=1, resync_seconds=0.2)
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
    cluster.show("large", labels={keys.SOFT_EVICTION: mark.MARKED}, annotations=BY_GUARD)
    await until(lambda: "large" in cluster.deleted)
    await until(lambda: cluster.phase("small") is Phase.CANCELLED)
    await cluster.registry.close()
    assert state_of(cluster, "small").outcome is CheckpointOutcome.HELD_BY_BUDGET
    assert state_of(cluster, "large").phase is Phase.TERMINATING

"""Many victims that are ready at once, as after a failover: the Lease is renewed between them."""

import asyncio
from typing import Any, cast

import pytest

from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.gang_eviction.eviction import GangEviction
from reprieve_operator.victims.reconciler import VictimReconciler
from reprieve_operator.victims.registry import ReconcilerRegistry
from reprieve_policy.gangs import disruption
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_testing.objects.builders import an_eviction
from reprieve_testing.operator_parts import a_registry

VICTIMS = 500
BEGUN = an_eviction().build()


def an_idle_registry() -> ReconcilerRegistry:
    return a_registry(
        policy=cast("Any", None),
        namespaces=cast("Any", None),
        recorder=cast("EventRecorder", None),
        writes=None,
        settings=OperatorSettings(identity="a"),
    )


async def test_of_many_victims_that_a_new_leader_finds_a_few_begin_in_each_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = 0

    async def begin(reconciler: VictimReconciler) -> float:
        nonlocal begun
        begun, reconciler.is_done = begun + 1, True
        return 0.0

    monkeypatch.setattr(VictimReconciler, "_reconcile", begin)
    registry = an_idle_registry()
    for number in range(VICTIMS):
        registry.enqueue(VersionedMeta(namespace="team", name=f"p-{number}", uid=f"u-{number}"))
    most_in_a_pass = before = 0
    while begun < VICTIMS:
        await asyncio.sleep(0)
        most_in_a_pass, before = max(most_in_a_pass, begun - before), begun
    assert most_in_a_pass <= 20
    await registry.close()


async def test_a_term_that_ends_starts_no_more_pods_of_a_gang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wait_for_the_end(_: VictimReconciler) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(VictimReconciler, "run", wait_for_the_end)
    names = [f"p-{number}" for number in range(VICTIMS)]
    pods = {name: VictimPod(metadata=VersionedMeta(name=name, uid=name)) for name in names}
    gang = disruption.decide_gang("train", BEGUN, map(pod_state.member_of, pods.values()))
    registry = an_idle_registry()
    registry._gangs.start(GangEviction("train", gang, pods))
    await asyncio.sleep(0)
    assert 0 < len(registry.victims()) <= 20
    await registry.close()
    await asyncio.sleep(0)
    assert registry.victims() == []

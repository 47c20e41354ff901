"""Many victims that are ready at once, as after a failover: the Lease is renewed between them."""

import asyncio
from typing import Any, cast

import pytest

from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.reconciler import VictimReconciler
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_testing.operator_parts import a_registry

VICTIMS = 500


async def test_of_many_victims_that_a_new_leader_finds_a_few_begin_in_each_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = 0

    async def begin(reconciler: VictimReconciler) -> float:
        nonlocal begun
        begun, reconciler.is_done = begun + 1, True
        return 0.0

    monkeypatch.setattr(VictimReconciler, "_reconcile", begin)
    registry = a_registry(
        policy=cast("Any", None),
        namespaces=cast("Any", None),
        recorder=cast("EventRecorder", None),
        writes=None,
        settings=OperatorSettings(identity="a"),
    )
    for number in range(VICTIMS):
        registry.enqueue(VersionedMeta(namespace="team", name=f"p-{number}", uid=f"u-{number}"))
    most_in_a_pass = before = 0
    while begun < VICTIMS:
        await asyncio.sleep(0)
        most_in_a_pass, before = max(most_in_a_pass, begun - before), begun
    assert most_in_a_pass <= 20
    await registry.close()

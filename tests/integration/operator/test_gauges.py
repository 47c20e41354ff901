"""The gauges of victims, from the registry: how many in each phase, the queue age, the stuck."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallPriority
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import NamespacePolicies
from reprieve_operator.leader import Leader, Term
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.ui.document import state_of
from reprieve_operator.victims.preemptors import Preemptors
from reprieve_operator.victims.registry import ReconcilerRegistry
from reprieve_operator.victims.victim_sets import VictimSets
from reprieve_operator.victims.watch import VictimWatch
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.kube.values.timestamp import render
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction
from reprieve_runtime.client.api import Api
from reprieve_testing.objects.builders import NOW, after, an_eviction
from reprieve_testing.operator_parts import a_registry
from reprieve_testing.servers.stub_api import until

SETTINGS = OperatorSettings(identity="a")
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "train",
    "uid": "uid-job",
    "controller": True,
}
LEAVING = replace(an_eviction().ended(CheckpointOutcome.SAVED).build(), grace_seconds=30)


@dataclass
class OperatorReplica:
    """A clock that the test sets, and an API server that holds writes until the test says so."""

    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    may_write: asyncio.Event = field(default_factory=asyncio.Event)
    seconds: float = 0.0
    writing: int = 0
    gone: list[str] = field(default_factory=list)
    registry: ReconcilerRegistry = field(init=False)

    def is_busy(self, _: str) -> bool:
        return False

    def __post_init__(self) -> None:
        clock = Clock(now=self.now, monotonic=lambda: self.seconds)
        recorder: Any = SimpleNamespace(event=lambda *_, **__: None)
        namespaces: Any = SimpleNamespace(
            get=lambda _: NamespacePolicy(), is_terminating=lambda _: False
        )
        policy: Any = SimpleNamespace(current=PolicySettings())
        bare_pods: Any = SimpleNamespace(on_victim_gone=lambda uid, **_: self.gone.append(uid))
        self.registry = a_registry(
            writes=self,
            policy=policy,
            namespaces=namespaces,
            bare_pods=bare_pods,
            recorder=recorder,
            metrics=self.metrics,
            settings=SETTINGS,
            clock=clock,
        )
        self.leader = Leader(cast("Api", None), cast("Api", None), SETTINGS, clock, self.metrics)

    def lead(self) -> None:
        """Begin a term, in which no watch runs."""
        clock = Clock(now=self.now, monotonic=lambda: self.seconds)
        sets = VictimSets(clock)
        gate_controller: Any = SimpleNamespace(count_gated=lambda: 0, statuses=list)
        divergence: Any = SimpleNamespace(count_diverging=lambda: 0, diverging=list)
        bare_pods: Any = SimpleNamespace(pending=list)
        resumer: Any = SimpleNamespace(suspended=())
        api = cast("Api", None)
        watch = VictimWatch(api, self.registry.on_pod_update, self.registry.on_pod_delete)
        self.leader._term = Term(
            self.registry,
            gate_controller,
            divergence,
            watch,
            NamespacePolicies(api),
            sets,
            Preemptors(api, sets, clock),
            bare_pods,
            resumer,
        )

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    async def write_state(
        self, pod: VictimPod, state: Eviction, _: object, **__: bool
    ) -> VictimPod:
        self.writing += 1
        await self.may_write.wait()
        return with_state(pod, state)

    async def read_pod(self, namespace: str, name: str, uid: str, _: CallPriority) -> None:
        assert (namespace, uid) == ("team", f"uid-{name}")

    def shown(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    @property
    def victims(self) -> dict[str, float]:
        (found,) = (
            one
            for one in self.metrics.registry.collect()
            if one.name == "reprieve_preemption_victims"
        )
        return {sample.labels["phase"]: sample.value for sample in found.samples}

    @property
    def queue_age(self) -> float | None:
        return self.shown("reprieve_victim_queue_age_seconds")

    @property
    def stuck(self) -> float | None:
        return self.shown("reprieve_stuck_victims")


def a_victim(name: str, **metadata: Any) -> VictimPod:
    labels = {keys.SOFT_EVICTION: mark.REQUESTED}
    annotations = {keys.CHECKPOINT: "auto", keys.CHECKPOINT_HINT: "annotation:"}
    named = {"namespace": "team", "name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    whole = {"labels": labels, "annotations": annotations, **named, **metadata}
    return msgspec.convert({"metadata": whole, "status": {"phase": "Running"}}, VictimPod)


def with_state(pod: VictimPod, state: Eviction) -> VictimPod:
    labels = {keys.SOFT_EVICTION: state.phase.value}
    annotations = {**annotations_of(pod.metadata), keys.EVICTION: eviction.render(state)}
    return replace(
        pod,
        metadata=replace(pod.metadata, resourceVersion="2", labels=labels, annotations=annotations),
    )


def one_on_its_way_out(name: str, **metadata: Any) -> VictimPod:
    return with_state(a_victim(name, deletionTimestamp=render(after(30)), **metadata), LEAVING)


@pytest.fixture
async def replica() -> AsyncIterator[OperatorReplica]:
    found = OperatorReplica()
    yield found
    await found.registry.close()


async def test_a_replica_without_victims_shows_none(replica: OperatorReplica) -> None:
    assert (replica.victims, replica.queue_age, replica.stuck) == ({}, 0, 0)


async def test_the_queue_age_is_that_of_the_oldest_victim_until_its_first_write(
    replica: OperatorReplica,
) -> None:
    replica.lead()
    replica.registry.on_pod_update(a_victim("first"))
    replica.seconds = 7.0
    replica.registry.on_pod_update(a_victim("second"))
    await until(lambda: replica.writing == 2)
    replica.seconds = 9.0
    assert (replica.victims, replica.queue_age) == ({"requested": 2}, 9)

    replica.may_write.set()
    await until(lambda: "requested" not in replica.victims)
    replica.registry.on_pod_update(one_on_its_way_out("third"))
    await until(lambda: "requested" not in replica.victims)
    replica.seconds = 20.0
    assert (replica.victims, replica.queue_age, replica.stuck) == (
        {"hinted": 2, "terminating": 1},
        0,
        0,
    )


async def test_a_victim_is_stuck_from_a_minute_after_its_grace_period_until_it_is_gone(
    replica: OperatorReplica,
) -> None:
    replica.lead()
    replica.registry.on_pod_update(one_on_its_way_out("owned", ownerReferences=[JOB]))
    replica.registry.on_pod_update(one_on_its_way_out("bare"))
    await until(lambda: replica.victims == {"terminating": 2})
    replica.seconds = 90.0
    assert replica.stuck == 0
    replica.seconds = 91.0
    assert replica.stuck == 2

    replica.registry.on_pod_delete("uid-owned")
    replica.registry.on_pod_delete("uid-bare")
    await until(lambda: replica.victims == {})
    assert (replica.stuck, sorted(replica.gone)) == (0, ["uid-bare", "uid-owned"])
    assert (
        replica.shown("reprieve_preemption_victim_requeue_total", namespace="team", by="owner") == 1
    )


async def test_the_page_has_the_victims_of_the_term(replica: OperatorReplica) -> None:
    assert replica.leader.term is None
    replica.lead()
    replica.registry.on_pod_update(a_victim("first"))
    await until(lambda: replica.writing == 1)
    assert replica.leader.term is not None
    (victim,) = state_of(replica.leader.term).victims
    assert (victim.ref.name, victim.phase) == ("first", "requested")
    replica.may_write.set()
    await until(lambda: "requested" not in replica.victims)
    (victim,) = state_of(replica.leader.term).victims
    assert victim.state is not None
    assert (victim.phase, victim.state.phase) == ("hinted", "hinted")

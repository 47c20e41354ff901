"""Victims of one preemptor on one node are deleted together, with reconcilers of real pods.

The API server is played: it accepts every write, and shows it at once.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import ContainerStatus, VictimPod
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.registry import ReconcilerRegistry
from reprieve_operator.victims.victim_sets import VictimSets
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import NOW, an_eviction
from reprieve_testing.operator_parts import a_registry
from reprieve_testing.servers.stub_api import until

SAVES = {keys.CHECKPOINT_HINT: "annotation:"}
ON_SIGTERM = {keys.CHECKPOINT_HINT: "sigterm:", keys.ESTIMATED_CHECKPOINT_TIME: "2m"}
SAVED = {"state": "saved"}
MARK = mark.Mark(initiator=mark.GUARD_INITIATOR, reason="preemption")
WITNESS = "witness"
SHORT_SECONDS = 0.05
LONG_SECONDS = 1000.0


@dataclass
class Cluster:
    """Accepts every write; a deleted pod stays until the test ends it."""

    ceiling_seconds: int = 10**6
    resync_seconds: float = 30.0
    pods: dict[str, VictimPod] = field(default_factory=dict)
    deleted: dict[str, int | None] = field(default_factory=dict)
    """The grace period of each pod that was deleted, in order."""
    deleted_witnesses: set[str] = field(default_factory=set)
    is_left: set[str] = field(default_factory=set)
    """The uids of victims whose preemptor left their node."""
    events: list[tuple[str, str]] = field(default_factory=list)
    growing_seconds: float = 0.0
    sets: VictimSets = field(init=False)
    registry: ReconcilerRegistry = field(init=False)
    _version: int = 0

    def __post_init__(self) -> None:
        self.sets = VictimSets(Clock(), growing_seconds=self.growing_seconds)
        recorder: Any = SimpleNamespace(
            event=lambda about, reason, *_, **__: self.events.append((about.name, reason))
        )
        namespaces: Any = SimpleNamespace(
            get=lambda _: NamespacePolicy(), is_terminating=lambda _: False
        )
        policy: Any = SimpleNamespace(current=PolicySettings(ceiling_seconds=self.ceiling_seconds))

        async def nothing(*_: object, **__: object) -> None: ...

        bare: Any = SimpleNamespace(store_replacement=nothing, on_victim_gone=lambda *_, **__: None)
        preemptors: Any = SimpleNamespace(
            has_left=self.is_left.__contains__, is_node_wanted=lambda _: False
        )
        ledger: Any = SimpleNamespace(record=nothing, retract=nothing, publish_checkpoint=nothing)
        self.registry = a_registry(
            writes=self,
            policy=policy,
            namespaces=namespaces,
            ledger=ledger,
            bare_pods=bare,
            recorder=recorder,
            victim_sets=self.sets,
            preemptors=preemptors,
            settings=OperatorSettings(identity="a", resync_interval_seconds=self.resync_seconds),
        )

    is_busy = False

    async def read_pod(self, _: str, name: str, *__: object) -> VictimPod | None:
        return self.pods.get(name)

    async def write_state(
        self, pod: VictimPod, state: Eviction, *_: object, **__: bool
    ) -> VictimPod:
        labels, annotations = (
            {keys.SOFT_EVICTION: state.phase.value},
            {keys.EVICTION: eviction.render(state)},
        )
        return self.change(pod.metadata.name or "", labels=labels, annotations=annotations)

    async def write_disruption_target(
        self, pod: VictimPod, state: Eviction, **_: bool
    ) -> VictimPod:
        return await self.write_state(pod, state)

    async def write_cancelled(self, pod: VictimPod, state: Eviction) -> VictimPod:
        name = pod.metadata.name or ""
        await self.write_state(pod, state)
        gone = {keys.KOORDINATOR_SOFT_EVICTION: "", keys.PREEMPTOR: ""}
        return self.change(name, labels={keys.SOFT_EVICTION: ""}, annotations=gone)

    async def delete_pod(self, pod: VictimPod, state: Eviction) -> bool:
        name = pod.metadata.name or ""
        if name.startswith(WITNESS):
            self.deleted_witnesses.add(name)
        else:
            self.deleted[name] = state.grace_seconds
        return True

    def mark(
        self,
        name: str,
        annotations: dict[str, str] | None = None,
        *,
        preemptor: str = "uid-of-high",
        node: str = "node",
        state: Eviction | None = None,
        victims: int | None = None,
    ) -> None:
        """Create a pod that is marked for this preemptor, and show it to the operator."""
        text = mark.render(replace(MARK, victims=victims))
        marks = {keys.KOORDINATOR_SOFT_EVICTION: text, keys.PREEMPTOR: preemptor}
        metadata = {"namespace": "team", "name": name, "uid": f"uid-of-{name}"}
        document = {
            "metadata": metadata,
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
        }
        self.pods[name] = msgspec.convert(document, VictimPod)
        written = {} if state is None else {keys.EVICTION: eviction.render(state)}
        phase = mark.MARKED if state is None else state.phase.value
        self.show(
            name,
            labels={keys.SOFT_EVICTION: phase},
            annotations=marks | (annotations or {}) | written,
        )

    def show(self, name: str, **changes: dict[str, str]) -> None:
        """Change a pod, and show it to the operator."""
        self.registry.on_pod_update(self.change(name, **changes))

    def answer(self, name: str, answer: dict[str, str] = SAVED) -> None:
        self.show(name, annotations={keys.CHECKPOINT_ANSWER: json.dumps(answer)})

    def delete(self, name: str, *, seconds: int) -> None:
        """Show that a pod is being deleted, with this grace period."""
        ends_at = timestamp.render(Clock().now() + timedelta(seconds=seconds))
        pod = self.pods[name]
        metadata = replace(pod.metadata, deletionTimestamp=ends_at)
        self.pods[name] = replace(pod, metadata=metadata)
        self.show(name)

    def end(self, name: str) -> None:
        """Let a pod be gone."""
        del self.pods[name]
        self.registry.on_pod_delete(f"uid-of-{name}")

    def change(self, name: str, **changes: dict[str, str]) -> VictimPod:
        self._version += 1
        pod = self.pods[name]
        merged = {
            kind: {
                key: text
                for key, text in ((getattr(pod.metadata, kind) or {}) | added).items()
                if text
            }
            for kind, added in changes.items()
        }
        metadata = replace(pod.metadata, resourceVersion=str(self._version), **merged)
        self.pods[name] = replace(pod, metadata=metadata)
        return self.pods[name]

    def phase(self, name: str) -> Phase | None:
        text = annotations_of(self.pods[name].metadata).get(keys.EVICTION)
        state = None if text is None else eviction.parse(text)
        return None if state is None else state.phase

    async def is_held(self, *names: str) -> bool:
        """Return whether none of these pods is deleted, while a pod in no set was."""
        self._version += 1
        witness = f"{WITNESS}-{self._version}"
        self.mark(witness, preemptor="")
        await until(lambda: witness in self.deleted_witnesses)
        return not self.deleted.keys() & set(names)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    cluster.sets.on_listed()
    yield cluster
    await cluster.registry.close()


async def test_a_victim_without_notice_goes_when_the_slowest_of_its_set_has_saved(
    cluster: Cluster,
) -> None:
    cluster.mark("plain")
    cluster.mark("fast", SAVES)
    cluster.mark("slow", SAVES)
    await until(lambda: cluster.phase("plain") is Phase.SETTLED)
    await until(lambda: cluster.phase("slow") is Phase.HINTED)
    cluster.answer("fast")
    await until(lambda: cluster.phase("fast") is Phase.SAVED)
    assert await cluster.is_held("plain", "fast", "slow")
    cluster.answer("slow")
    await until(lambda: len(cluster.deleted) == 3)


async def test_a_victim_alone_waits_for_none(cluster: Cluster) -> None:
    cluster.mark("slow", SAVES)
    cluster.mark("other-preemptor", preemptor="uid-of-other")
    cluster.mark("other-node", node="other")
    cluster.mark("no-preemptor", preemptor="")
    await until(lambda: len(cluster.deleted) == 3)
    assert await cluster.is_held("slow")


async def test_a_victim_without_notice_that_is_marked_first_waits_for_the_others() -> None:
    cluster, key = Cluster(growing_seconds=LONG_SECONDS), VictimSetKey("uid-of-high", "node")
    cluster.sets.on_listed()
    cluster.mark("first")
    await until(lambda: cluster.phase("first") is Phase.SETTLED)
    assert await cluster.is_held("first")
    cluster.mark("second")
    assert await cluster.is_held("first", "second")
    cluster.sets._sets[key].grows_until = 0.0
    cluster.sets.wake(key)
    await until(lambda: len(cluster.deleted) == 2)
    await cluster.registry.close()


async def test_a_victim_waits_for_no_more_others_than_its_mark_says() -> None:
    cluster = Cluster(growing_seconds=LONG_SECONDS)
    cluster.sets.on_listed()
    cluster.mark("alone", preemptor="uid-of-one", victims=1)
    await until(lambda: "alone" in cluster.deleted)
    cluster.mark("first", victims=2)
    await until(lambda: cluster.phase("first") is Phase.SETTLED)
    assert await cluster.is_held("first")
    cluster.mark("second", victims=2)
    await until(lambda: len(cluster.deleted) == 3)
    await cluster.registry.close()


async def test_a_victim_of_an_earlier_attempt_is_none_of_those_that_are_waited_for() -> None:
    """Without this, one without notice would be gone before the next one is marked."""
    cluster = Cluster(growing_seconds=LONG_SECONDS)
    cluster.sets.on_listed()
    deadline = Clock().now() + timedelta(seconds=LONG_SECONDS)
    reprieved = an_eviction().in_phase(Phase.REPRIEVED, deadline=deadline).build()
    cluster.mark("reprieved", state=reprieved, victims=1)
    cluster.mark("first", victims=2)
    await until(lambda: cluster.phase("first") is Phase.SETTLED)
    assert await cluster.is_held("first")
    cluster.mark("second", SAVES, victims=2)
    await until(lambda: cluster.phase("second") is Phase.HINTED)
    assert await cluster.is_held("first", "second")
    cluster.answer("second")
    await until(lambda: len(cluster.deleted) == 2)
    await cluster.registry.close()


async def test_a_set_is_woken_when_it_no_longer_grows() -> None:
    cluster = Cluster(growing_seconds=SHORT_SECONDS)
    cluster.sets.on_listed()
    cluster.mark("first")
    await until(lambda: "first" in cluster.deleted)
    await cluster.registry.close()


@pytest.mark.parametrize("how", ["finishes", "is-gone", "is-deleted", "is-cancelled", "refuses"])
async def test_a_victim_that_no_longer_saves_is_not_waited_for(cluster: Cluster, how: str) -> None:
    cluster.mark("plain")
    cluster.mark("slow", SAVES)
    await until(lambda: cluster.phase("slow") is Phase.HINTED)
    assert await cluster.is_held("plain")
    pod = cluster.pods["slow"]
    if how == "finishes":
        cluster.pods["slow"] = replace(pod, status=replace(pod.status, phase="Succeeded"))
        cluster.show("slow")
    elif how == "is-gone":
        cluster.end("slow")
    elif how == "is-deleted":
        cluster.delete("slow", seconds=30)
    elif how == "is-cancelled":
        cluster.show("slow", annotations={keys.KOORDINATOR_SOFT_EVICTION: ""})
    else:
        cluster.answer("slow", {"state": "cannot"})
    await until(lambda: "plain" in cluster.deleted)


async def test_a_victim_that_is_marked_later_is_waited_for(cluster: Cluster) -> None:
    cluster.mark("first", SAVES)
    await until(lambda: cluster.phase("first") is Phase.HINTED)
    cluster.mark("second", SAVES)
    cluster.answer("first")
    await until(lambda: cluster.phase("first") is Phase.SAVED)
    assert await cluster.is_held("first")
    cluster.answer("second")
    await until(lambda: len(cluster.deleted) == 2)


async def test_a_victim_that_saves_on_sigterm_is_deleted_at_once_and_waited_for(
    cluster: Cluster,
) -> None:
    cluster.mark("plain")
    cluster.mark("slow", SAVES)
    cluster.mark("saver", ON_SIGTERM)
    await until(lambda: cluster.deleted == {"saver": 120})
    cluster.delete("saver", seconds=120)
    cluster.answer("slow")
    await until(lambda: cluster.phase("slow") is Phase.SAVED)
    assert await cluster.is_held("plain", "slow")
    cluster.end("saver")
    await until(lambda: cluster.deleted == {"saver": 120, "plain": 30, "slow": 30})


async def test_a_victim_that_saves_on_sigterm_is_waited_for_until_its_containers_end(
    cluster: Cluster,
) -> None:
    cluster.mark("plain")
    cluster.mark("saver", ON_SIGTERM)
    await until(lambda: "saver" in cluster.deleted)
    cluster.delete("saver", seconds=120)
    assert await cluster.is_held("plain")
    pod = cluster.pods["saver"]
    over = msgspec.convert([{"state": {"terminated": {"exitCode": 143}}}], list[ContainerStatus])
    cluster.pods["saver"] = replace(pod, status=replace(pod.status, containerStatuses=over))
    cluster.show("saver")
    await until(lambda: "plain" in cluster.deleted)


async def test_a_victim_that_saves_on_sigterm_is_not_waited_for_after_its_grace_period() -> None:
    """Its kubelet is silent: its object stays."""
    cluster = Cluster(resync_seconds=SHORT_SECONDS)
    cluster.sets.on_listed()
    cluster.mark("plain")
    cluster.mark("saver", ON_SIGTERM)
    await until(lambda: "saver" in cluster.deleted)
    cluster.delete("saver", seconds=1)
    await until(lambda: "plain" in cluster.deleted)
    await cluster.registry.close()


async def test_a_victim_that_waits_for_its_gang_is_waited_for() -> None:
    sets, woken = VictimSets(Clock(), growing_seconds=0.0), set[str]()
    sets.on_listed()
    for name in ("member", "other"):
        metadata = {
            "name": name,
            "uid": name,
            "labels": {keys.SOFT_EVICTION: Phase.SAVED.value},
            "annotations": {
                keys.PREEMPTOR: "uid-of-high",
                keys.EVICTION: eviction.render(
                    an_eviction().in_phase(Phase.SAVED, deadline=NOW).build()
                ),
            },
        }
        pod = msgspec.convert({"metadata": metadata, "spec": {"nodeName": "node"}}, VictimPod)
        sets.on_pod_update(pod, lambda name=name: woken.add(name))
    sets.on_gang_observed("member", waits_for_gang=True)
    assert (sets.is_ready("member"), sets.is_ready("other")) == (True, False)
    assert woken == set()
    sets.on_gang_observed("member", waits_for_gang=False)
    assert sets.is_ready("other")
    assert woken == {"member", "other"}
    sets.on_gang_observed("member", waits_for_gang=True)
    woken.clear()
    sets.remove("member")
    assert woken == {"other"}
    sets.on_gang_observed("no-victim", waits_for_gang=True)
    assert sets.is_ready("no-victim")
    assert not sets.may_grow("no-victim")


async def test_a_victim_whose_preemptor_left_stays_and_its_workload_is_told(
    cluster: Cluster,
) -> None:
    for name in ("a", "b"):
        cluster.mark(name, SAVES)
        await until(lambda name=name: cluster.phase(name) is Phase.HINTED)
    cluster.answer("a")
    await until(lambda: cluster.phase("a") is Phase.SAVED)
    cluster.is_left.update({"uid-of-a", "uid-of-b"})
    cluster.sets.wake(VictimSetKey("uid-of-high", "node"))
    await until(lambda: cluster.phase("a") is cluster.phase("b") is Phase.CANCELLED)
    assert await cluster.is_held("a", "b")
    assert {name for name, reason in cluster.events if reason == "SoftEvictionCancelled"} == {
        "a",
        "b",
    }
    await until(lambda: not cluster.sets.has_any)


async def test_no_victim_waits_beyond_its_own_ceiling() -> None:
    cluster = Cluster(ceiling_seconds=1)
    cluster.sets.on_listed()
    cluster.mark("plain")
    cluster.mark("slow", SAVES)
    await until(lambda: cluster.phase("plain") is Phase.SETTLED)
    await until(lambda: "plain" in cluster.deleted)
    await cluster.registry.close()


async def test_a_new_operator_waits_until_it_has_seen_all_victims() -> None:
    cluster = Cluster()
    cluster.mark("plain")
    cluster.mark("alone", preemptor="")
    await until(lambda: "alone" in cluster.deleted)
    await until(lambda: cluster.phase("plain") is Phase.SETTLED)
    assert await cluster.is_held("plain")
    cluster.mark("slow", SAVES)
    cluster.sets.on_listed()
    assert await cluster.is_held("plain")
    cluster.answer("slow")
    await until(lambda: len(cluster.deleted) == 3)
    await cluster.registry.close()


async def test_a_set_that_is_over_leaves_nothing_behind(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.mark(name)
    await until(lambda: len(cluster.deleted) == 2)
    for name in ("a", "b"):
        cluster.end(name)
    await until(lambda: not cluster.sets._members and not cluster.sets._sets)


async def test_a_victim_that_a_person_asks_for_goes_though_its_preemptor_leaves(
    cluster: Cluster,
) -> None:
    cluster.mark("asked", SAVES)
    cluster.mark("other", SAVES)
    for name in ("asked", "other"):
        await until(lambda name=name: cluster.phase(name) is Phase.HINTED)
    cluster.show("asked", labels={keys.SOFT_EVICTION: mark.REQUESTED})
    cluster.answer("asked", {"state": "accepted"})
    await until(lambda: cluster.phase("asked") is Phase.CHECKPOINTING)
    cluster.is_left |= {"uid-of-asked", "uid-of-other"}
    cluster.show("asked")
    cluster.show("other")
    await until(lambda: cluster.phase("other") is Phase.CANCELLED)
    cluster.answer("asked")
    await until(lambda: "asked" in cluster.deleted)
    assert cluster.events.count(("asked", "CheckpointRequested")) == 1


async def test_a_drain_s_victim_that_a_person_asks_for_is_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise ApiError(429, "TooManyRequests", "", causes=[("DisruptionBudget", "needs 2 pods")])

    monkeypatch.setattr(cluster, "evict_pod", refuse, raising=False)
    ended = an_eviction().ended(CheckpointOutcome.SAVED).build()
    drained = replace(ended, must_evict=True, requested_at=Clock().now(), grace_seconds=30)
    cluster.mark("held", state=drained)
    await until(lambda: ("held", "WaitingForBudget") in cluster.events)
    assert await cluster.is_held("held")
    cluster.show("held", labels={keys.SOFT_EVICTION: mark.REQUESTED})
    await until(lambda: "held" in cluster.deleted)
    assert cluster.pods["held"].metadata.labels == {keys.SOFT_EVICTION: "terminating"}

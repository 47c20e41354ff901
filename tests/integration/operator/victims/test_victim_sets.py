"""Victims of one preemptor on one node are deleted together, with reconcilers of real pods.

The API server is played: it accepts every write, and shows it at once.
"""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import ContainerStatus, VictimPod
from reprieve_operator.victims.victim_sets import VictimSets
from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Phase
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import NOW, an_eviction
from reprieve_testing.played_cluster import SAVES, PlayedCluster
from reprieve_testing.servers.stub_api import until

ON_SIGTERM = {keys.CHECKPOINT_HINT: "sigterm:", keys.ESTIMATED_CHECKPOINT_TIME: "2m"}
SHORT_SECONDS = 0.05
LONG_SECONDS = 1000.0


async def test_a_victim_without_notice_goes_when_the_slowest_of_its_set_has_saved(
    cluster: PlayedCluster,
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


async def test_a_victim_alone_waits_for_none(cluster: PlayedCluster) -> None:
    cluster.mark("slow", SAVES)
    cluster.mark("other-preemptor", preemptor="uid-of-other")
    cluster.mark("other-node", node="other")
    cluster.mark("no-preemptor", preemptor="")
    await until(lambda: len(cluster.deleted) == 3)
    assert await cluster.is_held("slow")


async def test_a_victim_without_notice_that_is_marked_first_waits_for_the_others() -> None:
    cluster, key = PlayedCluster(growing_seconds=LONG_SECONDS), VictimSetKey("uid-of-high", "node")
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
    cluster = PlayedCluster(growing_seconds=LONG_SECONDS)
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
    cluster = PlayedCluster(growing_seconds=LONG_SECONDS)
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
    cluster = PlayedCluster(growing_seconds=SHORT_SECONDS)
    cluster.sets.on_listed()
    cluster.mark("first")
    await until(lambda: "first" in cluster.deleted)
    await cluster.registry.close()


@pytest.mark.parametrize("how", ["finishes", "is-gone", "is-deleted", "is-cancelled", "refuses"])
async def test_a_victim_that_no_longer_saves_is_not_waited_for(
    cluster: PlayedCluster, how: str
) -> None:
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


async def test_a_victim_that_is_marked_later_is_waited_for(cluster: PlayedCluster) -> None:
    cluster.mark("first", SAVES)
    await until(lambda: cluster.phase("first") is Phase.HINTED)
    cluster.mark("second", SAVES)
    cluster.answer("first")
    await until(lambda: cluster.phase("first") is Phase.SAVED)
    assert await cluster.is_held("first")
    cluster.answer("second")
    await until(lambda: len(cluster.deleted) == 2)


async def test_a_victim_that_saves_on_sigterm_is_deleted_at_once_and_waited_for(
    cluster: PlayedCluster,
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
    cluster: PlayedCluster,
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
    cluster = PlayedCluster(resync_seconds=SHORT_SECONDS)
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
    cluster: PlayedCluster,
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
    cluster = PlayedCluster(ceiling_seconds=1)
    cluster.sets.on_listed()
    cluster.mark("plain")
    cluster.mark("slow", SAVES)
    await until(lambda: cluster.phase("plain") is Phase.SETTLED)
    await until(lambda: "plain" in cluster.deleted)
    await cluster.registry.close()


async def test_a_new_operator_waits_until_it_has_seen_all_victims() -> None:
    cluster = PlayedCluster()
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


async def test_a_set_that_is_over_leaves_nothing_behind(cluster: PlayedCluster) -> None:
    for name in ("a", "b"):
        cluster.mark(name)
    await until(lambda: len(cluster.deleted) == 2)
    for name in ("a", "b"):
        cluster.end(name)
    await until(lambda: not cluster.sets._members and not cluster.sets._sets)


async def test_a_victim_that_a_person_asks_for_goes_though_its_preemptor_leaves(
    cluster: PlayedCluster,
) -> None:
    cluster.mark("asked", SAVES)
    cluster.mark("other", SAVES)
    for name in ("asked", "other"):
        await until(lambda name=name: cluster.phase(name) is Phase.HINTED)
    cluster.show("asked", labels={keys.SOFT_EVICTION: mark.REQUESTED})
    await until(lambda: cluster.pods["asked"].metadata.labels == {keys.SOFT_EVICTION: "hinted"})
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
    cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch
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

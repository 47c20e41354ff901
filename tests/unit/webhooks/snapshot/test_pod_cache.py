"""The scene is what the watches have seen, whatever the order, and a change costs what it concerns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

import msgspec
import pytest

from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.quota import Quotas
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.api_objects import Node, Pod
from reprieve_policy.preemption.selection.snapshot import DisruptionBudget, ScheduledPod, Snapshot
from reprieve_testing.builders import NOW, a_priority_class, a_quota
from reprieve_testing.scenes import a_budget
from reprieve_webhooks.snapshot import snapshot_cache
from reprieve_webhooks.snapshot.pod_cache import PodCache
from reprieve_webhooks.snapshot.snapshot_cache import SnapshotCache

GROUP = "pod-group.scheduling.sigs.k8s.io/name"
GANG = {GROUP: "g", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-1", "controller": True}
WALLTIME = Walltime(NOW, 60)


class Cluster:
    """A roster and its seating, and what is known for reviews."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.facts = Facts()
        self.policies: dict[str, NamespacePolicy] = {}
        self.seating = SnapshotCache()
        self.roster = PodCache(self.seating, self.facts_of, lambda: NOW, lambda: self.seconds)

    def facts_of(self, namespace: str) -> Facts:
        return replace(self.facts, namespace=self.policies.get(namespace, NamespacePolicy()))

    def put_node(self, name: str, **fields: Any) -> None:
        document = {
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": "8", "pods": "110"}},
            **fields,
        }
        self.seating.put_node(snapshot_builder.node_info_of(msgspec.convert(document, Node)))

    def put(self, name: str, node: str = "one", **fields: Any) -> None:
        self.roster.put(a_pod(name, node, **fields))

    def settle(self) -> None:
        while not self.roster.is_up_to_date:
            self.roster.reevaluate(1)

    def scene(self) -> Snapshot:
        return self.seating.snapshot(NOW, PolicySettings())

    def tenant(self, name: str) -> ScheduledPod:
        (found,) = (
            one for room in self.scene().nodes.values() for one in room.pods if one.name == name
        )
        return found

    def names_on(self, node: str) -> set[str]:
        return {tenant.name for tenant in self.scene().nodes[node].pods}


def a_pod(
    name: str,
    node: str,
    *,
    status: Mapping[str, Any] = {},
    spec: Mapping[str, Any] = {},
    **metadata: Any,
) -> Pod:
    document = {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "main"}], **spec},
        "status": {"phase": "Running" if node else "Pending", **status},
    }
    return msgspec.convert(document, Pod)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.put_node("one")
    made.put_node("two")
    return made


def test_pods_are_where_they_run_and_those_that_wait_are_preemptors(cluster: Cluster) -> None:
    cluster.put("a")
    cluster.put("b", "two")
    cluster.put("c", "")
    assert (cluster.names_on("one"), cluster.names_on("two")) == ({"a"}, {"b"})
    found = cluster.seating.preemptor("uid-c")
    assert found is not None
    assert found.name == "c"
    assert cluster.seating.preemptor("uid-a") is None


def test_a_pod_that_is_placed_waits_no_more(cluster: Cluster) -> None:
    cluster.put("a", "", status={"nominatedNodeName": "two"})
    assert [guest.uid for guest in cluster.scene().nodes["two"].nominated_pods] == ["uid-a"]
    cluster.put("a", "two")
    assert cluster.seating.preemptor("uid-a") is None
    assert cluster.scene().nodes["two"].nominated_pods == ()
    assert cluster.names_on("two") == {"a"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_has_no_room_and_wants_none(cluster: Cluster, phase: str) -> None:
    cluster.put("a")
    cluster.put("a", status={"phase": phase})
    cluster.put("b", "", status={"phase": phase})
    assert cluster.names_on("one") == set()
    assert cluster.seating.preemptor("uid-b") is None


def test_a_pod_that_is_gone_leaves_nothing_behind(cluster: Cluster) -> None:
    cluster.put("a", labels=GANG, ownerReferences=[JOB])
    cluster.put("b", "", labels=GANG, status={"nominatedNodeName": "one"})
    for name in ("a", "b", "never-was"):
        cluster.roster.remove(("team", name))
    assert cluster.names_on("one") == set()
    assert cluster.scene().gangs == {}
    assert cluster.roster._dependents == cluster.roster._pods == {}
    assert (
        cluster.seating._pending_by_gang._values
        == cluster.seating._nominated_by_node._values
        == cluster.seating._pods_by_node._values
        == {}
    )


def test_a_pod_made_anew_under_its_name_is_another_one(cluster: Cluster) -> None:
    cluster.put("a")
    cluster.put("a", "two", uid="another")
    assert cluster.names_on("one") == set()
    assert cluster.tenant("a").uid == "another"


def test_a_node_may_come_after_its_pods_and_go_before_them(cluster: Cluster) -> None:
    cluster.put("a", "late")
    assert "late" not in cluster.scene().nodes
    assert not cluster.seating.has_seen("late", ["uid-a"])
    cluster.put_node("late")
    assert cluster.names_on("late") == {"a"}
    cluster.put_node("late", spec={"unschedulable": True})
    assert cluster.scene().nodes["late"].is_unschedulable
    assert cluster.names_on("late") == {"a"}
    cluster.seating.remove_node("late")
    assert "late" not in cluster.scene().nodes


def test_it_is_known_who_was_seen_on_a_node(cluster: Cluster) -> None:
    cluster.put("a")
    assert cluster.seating.has_seen("one", ["uid-a"])
    assert cluster.seating.has_seen("one", [])
    assert not cluster.seating.has_seen("one", ["uid-a", "uid-b"])
    assert not cluster.seating.has_seen("two", ["uid-a"])


def test_who_has_left_a_node_is_known_as_well(cluster: Cluster) -> None:
    """A scheduler that still names it is the one that is behind."""
    cluster.put("a")
    cluster.put("b")
    cluster.put("a", status={"phase": "Failed"})
    cluster.roster.remove(("team", "b"))
    assert cluster.seating.has_seen("one", ["uid-a", "uid-b"])
    assert not cluster.seating.has_seen("nowhere", ["uid-a"])
    assert cluster.names_on("one") == set()


def test_who_is_in_a_gang_with_one_on_the_node_is_known_there_wherever_he_runs(
    cluster: Cluster,
) -> None:
    """A native gang that goes whole is proposed with all of its pods."""
    cluster.put_node("two")
    cluster.put("a", labels=GANG)
    cluster.put("b", "two", labels=GANG)
    cluster.put("c", "two")
    assert cluster.seating.has_seen("one", ["uid-a", "uid-b"])
    assert not cluster.seating.has_seen("one", ["uid-a", "uid-c"])
    assert not cluster.seating.has_seen("nowhere", ["uid-a", "uid-b"])


def test_so_is_one_of_each_of_several_gangs_and_of_no_gang_that_has_nobody_there(
    cluster: Cluster,
) -> None:
    for name, gang in {"a": "g", "b": "h"}.items():
        cluster.put(name, labels=GANG | {GROUP: gang})
        cluster.put(f"{name}-away", "two", labels=GANG | {GROUP: gang})
    cluster.put("c", "two", labels=GANG | {GROUP: "i"})
    assert cluster.seating.has_seen("one", ["uid-b-away", "uid-a", "uid-a-away"])
    assert not cluster.seating.has_seen("one", ["uid-b-away", "uid-a", "uid-c"])


def test_of_those_who_have_left_the_latest_are_known(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_cache, "_MAX_REMOVED_UIDS", 2)
    for name in ("a", "b", "c"):
        cluster.put(name)
        cluster.roster.remove(("team", name))
    assert not cluster.seating.has_seen("one", ["uid-a"])
    assert cluster.seating.has_seen("one", ["uid-b", "uid-c"])


def test_a_scene_is_not_changed_by_what_comes_after_it(cluster: Cluster) -> None:
    cluster.put("a", labels=GANG)
    before = cluster.scene()
    cluster.put("b", labels=GANG)
    cluster.seating.put_budget("x", a_budget("x"))
    cluster.seating.remove_node("two")
    cluster.scene()
    assert {tenant.name for tenant in before.nodes["one"].pods} == {"a"}
    assert set(before.nodes) == {"one", "two"}
    assert [len(group.members) for group in before.gangs.values()] == [1]
    assert before.budgets == {}


def test_what_did_not_change_is_not_made_again(cluster: Cluster) -> None:
    cluster.put("a")
    cluster.put("b", "two")
    before = cluster.scene()
    cluster.put("b", "two")
    cluster.put(
        "b", "two", annotations={"kubectl.kubernetes.io/last-applied-configuration": "x" * 5000}
    )
    assert cluster.scene().nodes["two"] is before.nodes["two"]
    cluster.put("b", "two", labels={"app": "x"})
    assert cluster.scene().nodes["one"] is before.nodes["one"]
    assert cluster.tenant("b").labels == {"app": "x"}


def test_a_gang_has_its_members_wherever_they_are_and_its_mates_who_wait(cluster: Cluster) -> None:
    cluster.put("a", labels=GANG)
    cluster.put("b", "two", labels=GANG)
    for name in ("c", "d"):
        cluster.put(name, "", labels=GANG)
    (group,) = cluster.scene().gangs.values()
    assert ({member.name for member in group.members}, group.disruption_mode) == (
        {"a", "b"},
        DisruptionMode.ALL,
    )
    found = cluster.seating.preemptor("uid-c")
    assert found is not None
    # Three are needed, two have room: nobody else has to be placed with this one.
    assert (found.gang_minimum, found.pending_members) == (3, ())
    cluster.roster.remove(("team", "a"))
    found = cluster.seating.preemptor("uid-c")
    assert found is not None
    assert [guest.uid for guest in found.pending_members] == ["uid-d"]


def test_budgets_come_change_and_go(cluster: Cluster) -> None:
    cluster.seating.put_budget("x", a_budget("x"))
    cluster.seating.put_budget("y", a_budget("y"))
    cluster.seating.put_budget("x", a_budget("x", allowed=2))
    assert {budget.disruptions_allowed for budget in cluster.scene().budgets["team"]} == {0, 2}
    cluster.seating.remove_budget(("team", "x"))
    cluster.seating.remove_budget(("team", "y"))
    assert cluster.scene().budgets == {}


def test_a_changed_namespace_is_seen_in_its_pods_and_no_others(cluster: Cluster) -> None:
    cluster.put("a", namespace="team")
    cluster.put("b", namespace="other")
    assert cluster.roster.is_up_to_date
    other = cluster.tenant("b")
    cluster.policies["team"] = NamespacePolicy(workload_type="service")
    assert not cluster.roster.is_up_to_date
    cluster.settle()
    assert cluster.tenant("a").is_service
    assert cluster.tenant("b") is other


def test_a_changed_priority_class_is_seen_in_its_pods(cluster: Cluster) -> None:
    cluster.put("a", spec={"priorityClassName": "training"})
    assert cluster.tenant("a").lacks_priority_class
    cluster.facts = replace(
        cluster.facts, priority_classes={"training": a_priority_class("training").build()}
    )
    cluster.settle()
    assert not cluster.tenant("a").lacks_priority_class


def test_a_changed_policy_is_seen_in_all_pods(cluster: Cluster) -> None:
    cluster.put("a")
    cluster.facts = replace(cluster.facts, settings=PolicySettings(default_class=3))
    cluster.settle()
    assert cluster.tenant("a").preemption_class == 3


def test_a_quota_is_seen_in_the_pods_that_use_it(cluster: Cluster) -> None:
    cluster.facts = replace(cluster.facts, quotas=Quotas())
    cluster.put("a")
    assert cluster.tenant("a").quota is None
    cluster.facts.quotas.put(a_quota("shared", "admin", "team"))
    cluster.settle()
    assert cluster.tenant("a").quota == ("admin", "shared")


def test_that_a_scheduler_does_as_it_was_told_is_taken_for_granted_for_a_while(
    cluster: Cluster,
) -> None:
    cluster.put("victim", "two")
    cluster.put("p", "", labels=GANG)
    cluster.put("mate", "", labels=GANG)
    preemptor = cluster.seating.preemptor("uid-p")
    assert preemptor is not None
    cluster.roster.assume(
        preemptor, "two", [cluster.tenant("victim"), replace(cluster.tenant("victim"), name="gone")]
    )
    assert cluster.tenant("victim").is_leaving
    release = cluster.tenant("victim").release
    assert release is not None
    assert release.preemptor_uid == "uid-p"
    assert [guest.uid for guest in cluster.scene().nodes["two"].nominated_pods] == ["uid-p"]
    mate = cluster.seating.preemptor("uid-mate")
    assert mate is not None
    assert mate.pending_members == ()
    cluster.seconds += 4.9
    assert cluster.roster.is_up_to_date
    cluster.seconds += 0.1
    cluster.settle()
    assert not cluster.tenant("victim").is_leaving
    assert cluster.scene().nodes["two"].nominated_pods == ()


def test_what_is_expected_of_a_gang_is_told_from_what_was_seen_of_it(cluster: Cluster) -> None:
    def going() -> set[str]:
        groups = cluster.roster.without_assumed(cluster.scene().gangs)
        return {
            member.name
            for group in groups.values()
            for member in group.members
            if member.is_leaving
        }

    for name, node in (("a", "one"), ("b", "two"), ("c", "two")):
        cluster.put(name, node, labels=GANG)
    cluster.put("p", "")
    preemptor = cluster.seating.preemptor("uid-p")
    assert preemptor is not None
    # Twice: the second time nobody is as it was seen any more.
    for _ in range(2):
        cluster.roster.assume(preemptor, "one", [cluster.tenant(name) for name in "abc"])
        assert all(cluster.tenant(name).is_leaving for name in "abc")
        assert going() == set()
    cluster.put("b", "two", labels=GANG | {keys.SOFT_EVICTION: "requested"})
    assert going() == {"b"}
    cluster.seconds += 5
    assert not cluster.roster.is_up_to_date
    assert going() == {"b"}
    cluster.settle()
    assert {name for name in "abc" if cluster.tenant(name).is_leaving} == going() == {"b"}


def test_what_is_seen_counts_at_once_whatever_was_expected(cluster: Cluster) -> None:
    cluster.put("victim", "two")
    cluster.put("p", "")
    preemptor = cluster.seating.preemptor("uid-p")
    assert preemptor is not None
    cluster.roster.assume(preemptor, "two", [cluster.tenant("victim")])
    cluster.put("victim", "two", labels={"app": "x"})
    cluster.put("p", "one")
    assert not cluster.tenant("victim").is_leaving
    assert cluster.scene().nodes["two"].nominated_pods == ()
    cluster.roster.assume(preemptor, "two", [])
    cluster.roster.remove(("team", "victim"))
    assert cluster.names_on("one") == {"p"}


def test_one_whose_mark_nobody_takes_up_goes_no_longer_than_anybody_waits(cluster: Cluster) -> None:
    """Its annotations are full, say: no operator can write to it. Without this, whoever marks his own pod would protect it for ever."""
    marked = {keys.SOFT_EVICTION: "requested"}
    ceiling = cluster.facts.settings.ceiling_seconds
    cluster.put("a", labels=marked)
    cluster.seconds += ceiling - 1
    cluster.put("a", labels=marked | {"app": "x"})
    assert cluster.tenant("a").is_leaving
    cluster.seconds += 1
    cluster.settle()
    assert not cluster.tenant("a").is_leaving
    assert cluster.roster.is_up_to_date
    cluster.put("a")
    cluster.put("a", labels=marked)
    assert cluster.tenant("a").is_leaving


def test_another_of_its_name_is_waited_for_as_long(cluster: Cluster) -> None:
    """The watch was away as the first went."""
    marked = {keys.SOFT_EVICTION: "requested"}
    cluster.put("a", labels=marked)
    cluster.seconds += cluster.facts.settings.ceiling_seconds
    cluster.put("a", labels=marked, uid="uid-of-another")
    assert cluster.tenant("a").is_leaving


def test_one_that_is_told_meanwhile_goes(cluster: Cluster) -> None:
    marked = {keys.SOFT_EVICTION: "requested"}
    cluster.put("a", labels=marked)
    cluster.put("a", labels=marked, deletionTimestamp="2026-11-21T12:00:30Z")
    cluster.seconds += cluster.facts.settings.ceiling_seconds
    assert cluster.roster.is_up_to_date
    assert cluster.tenant("a").is_leaving


def test_a_pod_that_is_gone_is_not_judged_again(cluster: Cluster) -> None:
    cluster.put("a")
    cluster.policies["team"] = NamespacePolicy(workload_type="service")
    assert not cluster.roster.is_up_to_date
    cluster.roster.remove(("team", "a"))
    assert cluster.roster.is_up_to_date


def test_how_long_a_job_may_run_bounds_its_pods_before_and_after_it_is_known(
    cluster: Cluster,
) -> None:
    cluster.put("a", ownerReferences=[JOB])
    cluster.roster.put_job("job-1", WALLTIME)
    cluster.put("b", ownerReferences=[JOB])
    cluster.put("c", ownerReferences=[JOB | {"uid": "job-2"}])
    cluster.settle()
    assert [cluster.tenant(name).progress.walltime for name in "abc"] == [WALLTIME, WALLTIME, None]
    cluster.roster.put_job("job-1", None)
    cluster.roster.put_job("never-was", None)
    cluster.settle()
    assert cluster.tenant("a").progress.walltime is None


def test_what_a_native_group_says_holds_for_its_pods(cluster: Cluster) -> None:
    cluster.put("a", spec={"schedulingGroup": {"podGroupName": "g"}})
    said = PodGroupInfo(priority=9, disruption_mode=DisruptionMode.ALL, min_count=2)
    cluster.roster.put_group(("team", "g"), said)
    cluster.settle()
    assert (cluster.tenant("a").priority, cluster.tenant("a").disruption_mode) == (
        9,
        DisruptionMode.ALL,
    )
    cluster.roster.put_group(("team", "g"), None)
    cluster.settle()
    assert cluster.tenant("a").disruption_mode is DisruptionMode.SINGLE


def test_of_what_a_pod_says_only_what_decides_is_kept(cluster: Cluster) -> None:
    loud = {
        "name": "main",
        "command": ["x" * 9000],
        "args": ["y" * 9000],
        "env": [{"name": "z" * 9000}],
    }
    ports = [{"containerPort": 80}, {"containerPort": 90, "hostPort": 90}]
    spec = {
        "containers": [loud | {"ports": ports}],
        "initContainers": None,
        "volumes": [{"name": "v" * 9000}],
    }
    notes = {"a/b": "n" * 9000, keys.CHECKPOINT: "auto", keys.CHECKPOINT_HINT: "http://:80/save"}
    cluster.put("a", spec=spec, annotations=notes)
    (known,) = cluster.roster._pods.values()
    assert len(known.encoded) < 1000
    assert [port.number for port in cluster.tenant("a").ports] == [90]
    assert cluster.tenant("a").cost_inputs.checkpoints_on_eviction


def test_what_becomes_of_one_budget_changes_no_other_namespaces_list(cluster: Cluster) -> None:
    """Without this, each of thousands of budgets that are listed would have all of them listed anew."""
    for number in range(3):
        cluster.seating.put_budget(f"b{number}", DisruptionBudget(namespace=f"team-{number % 2}"))
    before = cluster.scene().budgets
    cluster.seating.put_budget("b1", DisruptionBudget(namespace="team-1", disruptions_allowed=1))
    after = cluster.scene().budgets

    assert {namespace: len(found) for namespace, found in before.items()} == {
        "team-0": 2,
        "team-1": 1,
    }
    assert after["team-0"] is before["team-0"]
    assert [found.disruptions_allowed for found in (*before["team-1"], *after["team-1"])] == [0, 1]
    cluster.seating.remove_budget(("team-1", "b1"))
    assert list(cluster.scene().budgets) == ["team-0"]


def test_of_a_node_no_more_is_asked_after_the_first_pod_that_nobody_has_seen(
    cluster: Cluster,
) -> None:
    """Whoever reaches the port may name a million of them. Every Job is a gang, and each is one more look at each of them."""
    cluster.put("a", labels={"batch.kubernetes.io/job-name": "train"})
    looks: list[str] = []

    def named() -> Iterator[str]:
        for uid in ("uid-a", "made-up", "uid-a"):
            looks.append(uid)
            yield uid

    assert not cluster.seating.has_seen("one", named())
    assert looks == ["uid-a", "made-up"]
    assert not cluster.seating.has_seen("gone", named())
    assert len(looks) == 2


class Looked(str):
    """A uid that counts how often it is looked for."""

    __slots__ = ("looks",)

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.looks = 0
        return made

    def __hash__(self) -> int:
        self.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


def test_a_pod_is_looked_for_as_often_on_a_node_with_one_gang_as_with_a_hundred(
    cluster: Cluster,
) -> None:
    looks = set()
    for gangs in (1, 100):
        for number in range(gangs):
            cluster.put(f"a{number}", labels=GANG | {GROUP: f"g{number}"})
        cluster.put("away", "two", labels=GANG | {GROUP: "g0"})
        named = [Looked("uid-away"), Looked("made-up")]
        assert cluster.seating.has_seen("one", named[:1])
        assert not cluster.seating.has_seen("one", named[1:])
        looks.add(tuple(uid.looks for uid in named))
    assert len(looks) == 1


def test_a_gang_is_known_nowhere_once_it_has_left(cluster: Cluster) -> None:
    cluster.put("a", labels=GANG)
    cluster.put("b", "two", labels=GANG)
    cluster.put("b", "two")
    assert not cluster.seating.has_seen("one", ["uid-b"])
    cluster.roster.remove(("team", "a"))
    cluster.roster.remove(("team", "b"))
    assert cluster.seating._gang_by_pod_uid == {}


def test_of_a_namespace_whose_last_pod_is_gone_nothing_is_kept(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.put(name)
        cluster.put(name, status={"phase": "Pending"})
    cluster.roster.remove(("team", "a"))
    cluster.roster.remove(("team", "a"))
    assert set(cluster.roster._facts) == {"team"}
    cluster.roster.remove(("team", "b"))
    assert (cluster.roster._facts, cluster.roster._pods_per_namespace) == ({}, {})
    cluster.policies["team"] = NamespacePolicy(workload_type="service")
    cluster.put("a")
    assert cluster.tenant("a").is_service

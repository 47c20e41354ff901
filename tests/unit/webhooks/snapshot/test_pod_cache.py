"""The snapshot is what the watches observed, in any order, and a change costs little work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
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
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.quota import Quota, QuotaKey, Quotas
from reprieve_policy.kube.nodes import Node
from reprieve_policy.kube.pods import Pod
from reprieve_policy.kube.values.quantity import NANOS
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import DisruptionBudget, ScheduledPod, Snapshot
from reprieve_testing.objects.builders import NOW, a_priority_class, a_quota
from reprieve_testing.objects.snapshots import a_budget
from reprieve_webhooks.snapshot.pod_cache import PodCache
from reprieve_webhooks.snapshot.snapshot_cache import SnapshotCache

GROUP = "pod-group.scheduling.sigs.k8s.io/name"
GANG = {GROUP: "g", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-1", "controller": True}
WALLTIME = Walltime(NOW, 60)


class Cluster:
    """A pod cache, its snapshot cache, and the facts that reviews know."""

    def __init__(self, **limits: int) -> None:
        self.seconds = 0.0
        self.classified = 0
        """How often a pod on a node was classified."""
        self.facts_read = 0
        """How often the facts of a Namespace, or of the cluster, were asked for."""
        self.facts = Facts()
        self.policies: dict[str, NamespacePolicy] = {}
        self.snapshot_cache = SnapshotCache(**limits)
        self.pod_cache = PodCache(
            self.snapshot_cache,
            self.facts_of,
            self.policy_version,
            self.now,
            lambda: self.seconds,
        )

    def now(self) -> datetime:
        self.classified += 1
        return NOW

    def policy_version(self) -> object:
        return self.facts, tuple(self.policies.items())

    def facts_of(self, namespace: str) -> Facts:
        self.facts_read += 1
        return replace(self.facts, namespace=self.policies.get(namespace, NamespacePolicy()))

    def put_node(self, name: str, **fields: Any) -> None:
        document = {
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": "8", "pods": "110"}},
            **fields,
        }
        self.snapshot_cache.put_node(snapshot_builder.node_info_of(msgspec.convert(document, Node)))

    def put(self, name: str, node: str = "one", **fields: Any) -> None:
        self.pod_cache.put(a_pod(name, node, **fields))

    def settle(self) -> None:
        while not self.pod_cache.is_up_to_date:
            self.pod_cache.reclassify(1)
        self.pod_cache.queue_changes_of_tenants()
        while self.pod_cache.reclassify_waiting(1):
            pass

    def snapshot(self) -> Snapshot:
        return self.snapshot_cache.snapshot(NOW, PolicySettings(), self.facts.quotas.current())

    def scheduled_pod(self, name: str) -> ScheduledPod:
        (found,) = (
            pod for node in self.snapshot().nodes.values() for pod in node.pods if pod.name == name
        )
        return found

    def names_on(self, node: str) -> set[str]:
        return {pod.name for pod in self.snapshot().nodes[node].pods}


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


def has_seen(cluster: Cluster, node: str, uids: Iterable[str]) -> bool:
    return cluster.snapshot_cache.find_unseen(node, uids) is None


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.put_node("one")
    made.put_node("two")
    return made


def test_scheduled_pods_are_on_their_nodes_and_pending_pods_are_preemptors(
    cluster: Cluster,
) -> None:
    cluster.put("a")
    cluster.put("b", "two")
    cluster.put("c", "")
    assert (cluster.names_on("one"), cluster.names_on("two")) == ({"a"}, {"b"})
    found = cluster.snapshot_cache.preemptor("uid-c")
    assert found is not None
    assert found.name == "c"
    assert cluster.snapshot_cache.preemptor("uid-a") is None


def test_a_pending_pod_is_found_without_its_gang_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        cluster.put(name, "", labels=GANG)
    with_its_gang = cluster.snapshot_cache.preemptor("uid-a")
    assert with_its_gang is not None
    assert [demand.uid for demand in with_its_gang.pending_members] == ["uid-b"]
    monkeypatch.setattr(snapshot_builder, "with_gang", None)
    found = cluster.snapshot_cache.pending_pod("uid-a")
    assert found is not None
    assert found.pending_members == ()
    assert cluster.snapshot_cache.pending_pod("uid-c") is None


def test_a_scheduled_pod_is_no_longer_pending(cluster: Cluster) -> None:
    cluster.put("a", "", status={"nominatedNodeName": "two"})
    assert [demand.uid for demand in cluster.snapshot().nodes["two"].nominated_pods] == ["uid-a"]
    cluster.put("a", "two")
    assert cluster.snapshot_cache.preemptor("uid-a") is None
    assert cluster.snapshot().nodes["two"].nominated_pods == ()
    assert cluster.names_on("two") == {"a"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_is_neither_scheduled_nor_pending(cluster: Cluster, phase: str) -> None:
    cluster.put("a")
    cluster.put("a", status={"phase": phase})
    cluster.put("b", "", status={"phase": phase})
    assert cluster.names_on("one") == set()
    assert cluster.snapshot_cache.preemptor("uid-b") is None


def test_a_deleted_pod_leaves_nothing_behind(cluster: Cluster) -> None:
    cluster.put("a", labels=GANG, ownerReferences=[JOB])
    cluster.put("b", "", labels=GANG, status={"nominatedNodeName": "one"})
    for name in ("a", "b", "never-was"):
        cluster.pod_cache.remove(("team", name))
    assert cluster.names_on("one") == set()
    assert cluster.snapshot().gangs == {}
    assert cluster.pod_cache._dependencies._dependents == cluster.pod_cache._pods == {}
    assert (
        cluster.snapshot_cache._gangs._pending._values
        == cluster.snapshot_cache._nodes._nominated._values
        == cluster.snapshot_cache._nodes._pods._values
        == {}
    )


def test_a_pod_created_again_under_its_name_is_another_one(cluster: Cluster) -> None:
    cluster.put("a")
    cluster.put("a", "two", uid="another")
    assert cluster.names_on("one") == set()
    assert cluster.scheduled_pod("a").uid == "another"


def test_a_node_may_come_after_its_pods_and_go_before_them(cluster: Cluster) -> None:
    cluster.put("a", "late")
    assert "late" not in cluster.snapshot().nodes
    assert not has_seen(cluster, "late", ["uid-a"])
    cluster.put_node("late")
    assert cluster.names_on("late") == {"a"}
    cluster.put_node("late", spec={"unschedulable": True})
    assert cluster.snapshot().nodes["late"].is_unschedulable
    assert cluster.names_on("late") == {"a"}
    cluster.snapshot_cache.remove_node("late")
    assert "late" not in cluster.snapshot().nodes


def test_pods_observed_on_a_node_are_known(cluster: Cluster) -> None:
    cluster.put("a")
    assert has_seen(cluster, "one", ["uid-a"])
    assert has_seen(cluster, "one", [])
    assert not has_seen(cluster, "one", ["uid-a", "uid-b"])
    assert not has_seen(cluster, "two", ["uid-a"])


def test_pods_that_left_a_node_are_known_as_well(cluster: Cluster) -> None:
    """A scheduler that still names it is the one that is behind."""
    cluster.put("a")
    cluster.put("b")
    cluster.put("a", status={"phase": "Failed"})
    cluster.pod_cache.remove(("team", "b"))
    assert has_seen(cluster, "one", ["uid-a", "uid-b"])
    assert not has_seen(cluster, "nowhere", ["uid-a"])
    assert cluster.names_on("one") == set()


def test_members_of_a_gang_on_the_node_are_known_there_wherever_they_run(
    cluster: Cluster,
) -> None:
    """A native gang that is evicted as a unit is proposed with all of its pods."""
    cluster.put_node("two")
    cluster.put("a", labels=GANG)
    cluster.put("b", "two", labels=GANG)
    cluster.put("c", "two")
    assert has_seen(cluster, "one", ["uid-a", "uid-b"])
    assert not has_seen(cluster, "one", ["uid-a", "uid-c"])
    assert not has_seen(cluster, "nowhere", ["uid-a", "uid-b"])


def test_members_of_several_gangs_on_the_node_are_known_but_not_of_a_gang_without_a_pod_there(
    cluster: Cluster,
) -> None:
    for name, gang in {"a": "g", "b": "h"}.items():
        cluster.put(name, labels=GANG | {GROUP: gang})
        cluster.put(f"{name}-away", "two", labels=GANG | {GROUP: gang})
    cluster.put("c", "two", labels=GANG | {GROUP: "i"})
    assert has_seen(cluster, "one", ["uid-b-away", "uid-a", "uid-a-away"])
    assert not has_seen(cluster, "one", ["uid-b-away", "uid-a", "uid-c"])


def test_the_pod_that_is_not_known_is_returned(cluster: Cluster) -> None:
    cluster.put("a")
    cluster.put("b", "two", labels=GANG)
    find = cluster.snapshot_cache.find_unseen
    assert find("one", ["uid-a"]) is None
    assert find("one", ["uid-a", "uid-c", "uid-d"]) == "uid-c"
    assert find("one", ["uid-b", "uid-a"]) == "uid-b"
    assert find("nowhere", ["uid-a"]) == ""


def test_of_the_pods_that_left_only_the_latest_are_remembered() -> None:
    cluster = Cluster(max_removed_uids=2)
    cluster.put_node("one")
    for name in ("a", "b", "c"):
        cluster.put(name)
        cluster.pod_cache.remove(("team", name))
    assert not has_seen(cluster, "one", ["uid-a"])
    assert has_seen(cluster, "one", ["uid-b", "uid-c"])


def test_a_snapshot_does_not_change_with_later_events(cluster: Cluster) -> None:
    cluster.put("a", labels=GANG)
    before = cluster.snapshot()
    cluster.put("b", labels=GANG)
    cluster.snapshot_cache.put_budget("x", a_budget("x"))
    cluster.snapshot_cache.remove_node("two")
    cluster.snapshot()
    assert {pod.name for pod in before.nodes["one"].pods} == {"a"}
    assert set(before.nodes) == {"one", "two"}
    assert [len(group.members) for group in before.gangs.values()] == [1]
    assert before.budgets == {}


def test_unchanged_nodes_and_gangs_are_not_rebuilt(cluster: Cluster) -> None:
    cluster.put("a")
    cluster.put("b", "two")
    before = cluster.snapshot()
    cluster.put("b", "two")
    cluster.put(
        "b", "two", annotations={"kubectl.kubernetes.io/last-applied-configuration": "x" * 5000}
    )
    assert cluster.snapshot().nodes["two"] is before.nodes["two"]
    cluster.put("b", "two", labels={"app": "x"})
    assert cluster.snapshot().nodes["one"] is before.nodes["one"]
    assert cluster.scheduled_pod("b").labels == {"app": "x"}


def test_nodes_are_made_ready_by_and_by(cluster: Cluster) -> None:
    """Without this, the first call of a scheduler would make all of them ready."""
    cluster.put_node("three")

    assert cluster.snapshot_cache.refresh(2)
    assert not cluster.snapshot_cache.refresh(2)
    assert all(node_info.alike_pods for node_info in cluster.snapshot().nodes.values())


def test_a_gang_has_its_members_on_all_nodes_and_its_pending_members(cluster: Cluster) -> None:
    cluster.put("a", labels=GANG)
    cluster.put("b", "two", labels=GANG)
    for name in ("c", "d"):
        cluster.put(name, "", labels=GANG)
    (group,) = cluster.snapshot().gangs.values()
    assert ({member.name for member in group.members}, group.disruption_mode) == (
        {"a", "b"},
        DisruptionMode.ALL,
    )
    found = cluster.snapshot_cache.preemptor("uid-c")
    assert found is not None
    # Three are needed, two are placed: no other pod has to be placed with this one.
    assert (found.gang_minimum, found.pending_members) == (3, ())
    cluster.pod_cache.remove(("team", "a"))
    found = cluster.snapshot_cache.preemptor("uid-c")
    assert found is not None
    assert [demand.uid for demand in found.pending_members] == ["uid-d"]


def test_budgets_come_change_and_go(cluster: Cluster) -> None:
    cluster.snapshot_cache.put_budget("x", a_budget("x"))
    cluster.snapshot_cache.put_budget("y", a_budget("y"))
    cluster.snapshot_cache.put_budget("x", a_budget("x", allowed=2))
    assert {budget.disruptions_allowed for budget in cluster.snapshot().budgets["team"]} == {0, 2}
    cluster.snapshot_cache.remove_budget(("team", "x"))
    cluster.snapshot_cache.remove_budget(("team", "y"))
    assert cluster.snapshot().budgets == {}


def test_a_budget_that_is_larger_than_any_usual_one_is_not_kept(cluster: Cluster) -> None:
    """Without this, a user's budgets would fill the memory of the webhooks."""
    cluster.snapshot_cache.put_budget("x", a_budget("x"))
    assert cluster.snapshot().budgets
    cluster.snapshot_cache.put_budget("x", a_budget("x" * 20_000))
    assert cluster.snapshot().budgets == {}


@pytest.mark.parametrize(("name_length", "is_kept"), [(60, True), (253, False)])
def test_a_budget_protects_while_a_drain_evicts_many_pods(
    cluster: Cluster, name_length: int, *, is_kept: bool
) -> None:
    """The API server lists up to 2,000 names; without them a budget allows less, never more."""
    names = frozenset(f"pod-{number}".ljust(name_length, "x") for number in range(2000))
    cluster.snapshot_cache.put_budget("x", replace(a_budget("x"), disrupted_pods=names))
    (found,) = cluster.snapshot().budgets["team"]
    assert found.disrupted_pods == (names if is_kept else frozenset())


def test_a_changed_namespace_shows_in_its_pods_and_no_others(cluster: Cluster) -> None:
    cluster.put("a", namespace="team")
    cluster.put("b", namespace="other")
    assert cluster.pod_cache.is_up_to_date
    other = cluster.scheduled_pod("b")
    cluster.policies["team"] = NamespacePolicy(workload_type="service")
    assert not cluster.pod_cache.is_up_to_date
    cluster.settle()
    assert cluster.scheduled_pod("a").is_service
    assert cluster.scheduled_pod("b") is other


def test_without_a_change_of_a_policy_no_facts_are_compared(cluster: Cluster) -> None:
    """Without this, a call of a scheduler would take as long as there are Namespaces."""
    for number in range(20):
        cluster.put(f"pod-{number}", namespace=f"team-{number}")
    cluster.settle()
    cluster.facts_read = 0
    assert cluster.pod_cache.is_up_to_date
    assert cluster.facts_read <= 2
    cluster.policies["team-7"] = NamespacePolicy(workload_type="service")
    assert not cluster.pod_cache.is_up_to_date
    assert cluster.facts_read > 20


def test_a_changed_priority_class_shows_in_its_pods(cluster: Cluster) -> None:
    cluster.put("a", spec={"priorityClassName": "training"})
    assert cluster.scheduled_pod("a").lacks_priority_class
    cluster.facts = replace(
        cluster.facts, priority_classes={"training": a_priority_class("training").build()}
    )
    cluster.settle()
    assert not cluster.scheduled_pod("a").lacks_priority_class


def test_a_changed_policy_shows_in_all_pods(cluster: Cluster) -> None:
    cluster.put("a")
    cluster.facts = replace(cluster.facts, settings=PolicySettings(default_class=3))
    cluster.settle()
    assert cluster.scheduled_pod("a").preemption_class == 3


def test_what_a_quota_uses_is_summed_as_its_pods_come_and_go(cluster: Cluster) -> None:
    of_quota = replace(a_quota("shared", "admin", "team"), max_amounts={"cpu": NANOS})
    cluster.facts = replace(cluster.facts, quotas=Quotas([of_quota]))

    def cpus() -> tuple[int, ...]:
        info = cluster.snapshot().quota_infos[of_quota.key]
        usage = info.usage
        amounts = (usage.used, usage.non_preemptible_used, usage.non_preemptible_request)
        return tuple(amount.get("cpu", 0) // NANOS for amount in amounts)

    kept: Any = {"labels": {keys.PREEMPTIBLE: "false"}}
    cluster.put("a", spec=asking("1"))
    cluster.put("b", "two", spec=asking("2"), **kept)
    cluster.put("c", "", spec=asking("4"), **kept)
    assert cpus() == (3, 2, 6)
    assert cluster.snapshot().quotas == {of_quota.key: of_quota}
    cluster.put("c", "", spec=asking("4"), status={"nominatedNodeName": "one"}, **kept)
    (nominated,) = cluster.snapshot().quota_infos[of_quota.key].nominated
    assert (nominated.name, cpus()) == ("c", (3, 2, 6))
    cluster.put("c", "one", spec=asking("4"), **kept)
    assert cpus() == (7, 6, 6)
    cluster.put("a", spec=asking("1"), labels={keys.SOFT_EVICTION: "requested"})
    info = cluster.snapshot().quota_infos[of_quota.key]
    assert ([pod.name for pod in info.leaving], info.nominated) == (["a"], ())
    for name in ("a", "b", "c"):
        cluster.pod_cache.remove(("team", name))
    assert cluster.snapshot().quota_infos == {}
    assert cluster.snapshot_cache._quotas._tallies == {}


def test_a_snapshot_has_what_the_quota_bounds_by_then(cluster: Cluster) -> None:
    unbounded = a_quota("shared", "admin", "team")
    bounded = replace(unbounded, max_amounts={"cpu": NANOS})
    cluster.facts = replace(cluster.facts, quotas=Quotas())

    def used(*quotas: Quota) -> list[Mapping[str, int]]:
        current = {quota.key: quota for quota in quotas}
        found = cluster.snapshot_cache.snapshot(NOW, PolicySettings(), current)
        return [info.usage.used for info in found.quota_infos.values()]

    cluster.facts.quotas.put(unbounded)
    cluster.put("a", spec=asking("1"))
    assert used(unbounded) == [{}]
    assert used(bounded) == [{"cpu": NANOS}]
    assert used() == []
    assert used(bounded) == [{"cpu": NANOS}]
    assert used(unbounded) == [{}]


def asking(cpu: str) -> Any:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


def test_a_quota_shows_in_the_pods_that_use_it(cluster: Cluster) -> None:
    cluster.facts = replace(cluster.facts, quotas=Quotas())
    cluster.put("a")
    assert cluster.scheduled_pod("a").quota is None
    cluster.facts.quotas.put(a_quota("shared", "admin", "team"))
    cluster.settle()
    assert cluster.scheduled_pod("a").quota == ("admin", "shared")


def test_a_changed_quota_shows_in_the_pods_that_it_concerns_and_concerns_no_others(
    cluster: Cluster,
) -> None:
    def quotas_of() -> list[QuotaKey | None]:
        cluster.settle()
        return [cluster.scheduled_pod(name).quota for name in ("listed", "named", "other", "own")]

    def change(changed: Quota) -> int:
        cluster.settle()
        before = cluster.classified
        cluster.facts.quotas.put(changed)
        cluster.settle()
        return cluster.classified - before

    cluster.facts = replace(cluster.facts, quotas=Quotas())
    cluster.put("listed", namespace="team")
    cluster.put("named", namespace="others", labels={keys.QUOTA_NAME: "shared"})
    cluster.put("other", namespace="others")
    cluster.put("own", namespace="shared")
    for number in range(20):
        cluster.put(f"another-{number}", "two", namespace=f"team-{number}")
    admins = ("admin", "shared")
    assert quotas_of() == [None, None, None, None]
    assert change(a_quota("shared", "admin", "team")) == 2
    assert quotas_of() == [admins, admins, None, None]
    assert change(replace(a_quota("shared", "admin", "team"), used={"cpu": 1})) == 0
    assert change(a_quota("shared", "admin", "others")) == 2
    assert quotas_of() == [None, admins, admins, None]
    assert change(a_quota("shared", "shared")) == 1
    assert quotas_of() == [None, admins, admins, ("shared", "shared")]
    cluster.facts.quotas.remove(admins)
    assert quotas_of() == [None, ("shared", "shared"), None, ("shared", "shared")]
    assert change(a_quota(quota.DEFAULT, "admin")) == 22
    default = ("admin", quota.DEFAULT)
    assert quotas_of() == [default, ("shared", "shared"), default, ("shared", "shared")]


def test_a_pod_that_was_classified_while_a_quota_was_away_is_classified_again(
    cluster: Cluster,
) -> None:
    cluster.facts = replace(cluster.facts, quotas=Quotas([a_quota("shared", "admin", "team")]))
    cluster.put("a")
    cluster.settle()
    cluster.facts.quotas.remove(("admin", "shared"))
    cluster.put("b")
    cluster.facts.quotas.put(a_quota("shared", "admin", "team"))
    assert not cluster.pod_cache.is_up_to_date
    cluster.settle()
    assert cluster.scheduled_pod("b").quota == ("admin", "shared")
    for name in "ab":
        cluster.pod_cache.remove(("team", name))
    assert cluster.pod_cache._quota_uses._pods_per_use == {}


def test_a_returned_choice_is_assumed_for_a_while(
    cluster: Cluster,
) -> None:
    cluster.put("victim", "two")
    cluster.put("p", "", labels=GANG)
    cluster.put("mate", "", labels=GANG)
    preemptor = cluster.snapshot_cache.preemptor("uid-p")
    assert preemptor is not None
    cluster.pod_cache.assume(
        preemptor,
        "two",
        [cluster.scheduled_pod("victim"), replace(cluster.scheduled_pod("victim"), name="gone")],
    )
    assert cluster.scheduled_pod("victim").is_leaving
    release = cluster.scheduled_pod("victim").release
    assert release is not None
    assert release.preemptor_uid == "uid-p"
    assert [demand.uid for demand in cluster.snapshot().nodes["two"].nominated_pods] == ["uid-p"]
    mate = cluster.snapshot_cache.preemptor("uid-mate")
    assert mate is not None
    assert mate.pending_members == ()
    cluster.seconds += 4.9
    assert cluster.pod_cache.is_up_to_date
    cluster.seconds += 0.1
    cluster.settle()
    assert not cluster.scheduled_pod("victim").is_leaving
    assert cluster.snapshot().nodes["two"].nominated_pods == ()


def test_the_assumptions_about_a_gang_can_be_left_out(cluster: Cluster) -> None:
    def going() -> set[str]:
        groups = cluster.pod_cache.without_assumed(cluster.snapshot().gangs)
        return {
            member.name
            for group in groups.values()
            for member in group.members
            if member.is_leaving
        }

    for name, node in (("a", "one"), ("b", "two"), ("c", "two")):
        cluster.put(name, node, labels=GANG)
    cluster.put("p", "")
    preemptor = cluster.snapshot_cache.preemptor("uid-p")
    assert preemptor is not None
    # Twice: the second time, no pod has the version that was seen any more.
    for _ in range(2):
        cluster.pod_cache.assume(preemptor, "one", [cluster.scheduled_pod(name) for name in "abc"])
        assert all(cluster.scheduled_pod(name).is_leaving for name in "abc")
        assert going() == set()
    cluster.put("b", "two", labels=GANG | {keys.SOFT_EVICTION: "requested"})
    assert going() == {"b"}
    cluster.seconds += 5
    assert not cluster.pod_cache.is_up_to_date
    assert going() == {"b"}
    cluster.settle()
    assert {name for name in "abc" if cluster.scheduled_pod(name).is_leaving} == going() == {"b"}


def test_an_observation_replaces_an_assumption_at_once(cluster: Cluster) -> None:
    cluster.put("victim", "two")
    cluster.put("p", "")
    preemptor = cluster.snapshot_cache.preemptor("uid-p")
    assert preemptor is not None
    cluster.pod_cache.assume(preemptor, "two", [cluster.scheduled_pod("victim")])
    cluster.put("victim", "two", labels={"app": "x"})
    cluster.put("p", "one")
    assert not cluster.scheduled_pod("victim").is_leaving
    assert cluster.snapshot().nodes["two"].nominated_pods == ()
    cluster.pod_cache.assume(preemptor, "two", [])
    cluster.pod_cache.remove(("team", "victim"))
    assert cluster.names_on("one") == {"p"}


def test_a_preemptor_created_again_during_its_search_is_not_nominated(cluster: Cluster) -> None:
    cluster.put("p", "")
    before = cluster.snapshot_cache.preemptor("uid-p")
    assert before is not None
    cluster.pod_cache.remove(("team", "p"))
    cluster.put("p", "", uid="new")
    cluster.pod_cache.assume(before, "two", [])
    assert cluster.snapshot().nodes["two"].nominated_pods == ()
    created_again = cluster.snapshot_cache.preemptor("new")
    assert created_again is not None
    cluster.pod_cache.assume(created_again, "two", [])
    assert [demand.uid for demand in cluster.snapshot().nodes["two"].nominated_pods] == ["new"]


def test_a_marked_pod_that_no_operator_notifies_within_the_ceiling_counts_as_staying(
    cluster: Cluster,
) -> None:
    """For example, its annotations are full, and no operator can write to it.

    Without this, a user who marks their own pod would protect it for ever.
    """
    marked = {keys.SOFT_EVICTION: "requested"}
    ceiling = cluster.facts.settings.ceiling_seconds
    cluster.put("a", labels=marked)
    cluster.seconds += ceiling - 1
    cluster.put("a", labels=marked | {"app": "x"})
    assert cluster.scheduled_pod("a").is_leaving
    cluster.seconds += 1
    cluster.settle()
    assert not cluster.scheduled_pod("a").is_leaving
    assert cluster.pod_cache.is_up_to_date
    cluster.put("a")
    cluster.put("a", labels=marked)
    assert cluster.scheduled_pod("a").is_leaving


def test_a_new_marked_pod_of_the_same_name_is_waited_for_as_long(cluster: Cluster) -> None:
    """The watch was away as the first went."""
    marked = {keys.SOFT_EVICTION: "requested"}
    cluster.put("a", labels=marked)
    cluster.seconds += cluster.facts.settings.ceiling_seconds
    cluster.put("a", labels=marked, uid="uid-of-another")
    assert cluster.scheduled_pod("a").is_leaving


def test_a_marked_pod_that_is_notified_meanwhile_counts_as_leaving(cluster: Cluster) -> None:
    marked = {keys.SOFT_EVICTION: "requested"}
    cluster.put("a", labels=marked)
    cluster.put("a", labels=marked, deletionTimestamp="2026-11-21T12:00:30Z")
    cluster.seconds += cluster.facts.settings.ceiling_seconds
    assert cluster.pod_cache.is_up_to_date
    assert cluster.scheduled_pod("a").is_leaving


def test_a_deleted_pod_is_not_classified_again(cluster: Cluster) -> None:
    cluster.put("a")
    cluster.policies["team"] = NamespacePolicy(workload_type="service")
    assert not cluster.pod_cache.is_up_to_date
    cluster.pod_cache.remove(("team", "a"))
    assert cluster.pod_cache.is_up_to_date


def test_the_walltime_of_a_job_bounds_its_pods_before_and_after_it_is_known(
    cluster: Cluster,
) -> None:
    cluster.put("a", ownerReferences=[JOB])
    cluster.pod_cache.put_job("team", "job-1", WALLTIME)
    cluster.put("b", ownerReferences=[JOB])
    cluster.put("c", ownerReferences=[JOB | {"uid": "job-2"}])
    cluster.settle()
    assert [cluster.scheduled_pod(name).progress.walltime for name in "abc"] == [
        WALLTIME,
        WALLTIME,
        None,
    ]
    cluster.pod_cache.put_job("team", "job-1", None)
    cluster.pod_cache.put_job("team", "never-was", None)
    cluster.settle()
    assert cluster.scheduled_pod("a").progress.walltime is None


def test_the_walltime_of_a_job_concerns_no_pod_that_waits(cluster: Cluster) -> None:
    """Without this, a tenant's patch of one field would have thousands of pods classified."""
    cluster.put("a", "", ownerReferences=[JOB])
    before = cluster.snapshot_cache.preemptor("uid-a")
    cluster.pod_cache.put_job("team", "job-1", WALLTIME)
    cluster.settle()
    assert cluster.snapshot_cache.preemptor("uid-a") is before
    cluster.put("a", ownerReferences=[JOB])
    assert cluster.scheduled_pod("a").progress.walltime == WALLTIME


def test_what_a_tenant_changes_leaves_the_cache_up_to_date_and_shows_later(
    cluster: Cluster,
) -> None:
    cluster.put("a", ownerReferences=[JOB], spec={"schedulingGroup": {"podGroupName": "g"}})
    cluster.pod_cache.put_job("team", "job-1", WALLTIME)
    cluster.pod_cache.put_group(("team", "g"), PodGroupInfo(priority=9))
    assert cluster.pod_cache.is_up_to_date
    assert cluster.scheduled_pod("a").progress.walltime is None
    cluster.settle()
    assert cluster.scheduled_pod("a").progress.walltime == WALLTIME
    assert cluster.scheduled_pod("a").priority == 9


def test_a_label_of_a_namespace_leaves_the_cache_up_to_date_and_shows_later_in_pods_that_wait(
    cluster: Cluster,
) -> None:
    cluster.put("runs")
    cluster.put("waits", "")
    cluster.put("of-others", "", namespace="others")
    cluster.settle()
    runs = cluster.scheduled_pod("runs")
    of_others = cluster.snapshot_cache.preemptor("uid-of-others")
    cluster.policies["team"] = NamespacePolicy(labels={"team": "blue"})
    assert cluster.pod_cache.is_up_to_date
    cluster.settle()
    waits = cluster.snapshot_cache.preemptor("uid-waits")
    assert waits is not None
    assert waits.namespace_labels == {"team": "blue"}
    assert cluster.scheduled_pod("runs") is runs
    assert cluster.snapshot_cache.preemptor("uid-of-others") is of_others
    assert cluster.pod_cache._facts._relabelled == set()


def test_a_policy_that_changes_after_the_labels_of_its_namespace_shows_in_its_pods(
    cluster: Cluster,
) -> None:
    cluster.put("a")
    cluster.settle()
    cluster.policies["team"] = NamespacePolicy(labels={"team": "blue"})
    assert cluster.pod_cache.is_up_to_date
    cluster.policies["team"] = NamespacePolicy(labels={"team": "blue"}, workload_type="service")
    assert not cluster.pod_cache.is_up_to_date
    cluster.settle()
    assert cluster.scheduled_pod("a").is_service


def test_the_labels_of_a_namespace_whose_last_pod_is_gone_are_forgotten(
    cluster: Cluster,
) -> None:
    cluster.put("a")
    cluster.settle()
    cluster.policies["team"] = NamespacePolicy(labels={"team": "blue"})
    assert cluster.pod_cache.is_up_to_date
    cluster.pod_cache.remove(("team", "a"))
    assert cluster.pod_cache._facts._relabelled == set()


def test_however_often_a_job_and_a_group_change_their_pods_are_classified_once(
    cluster: Cluster,
) -> None:
    for name in "abc":
        cluster.put(name, ownerReferences=[JOB], spec={"schedulingGroup": {"podGroupName": "g"}})
    cluster.settle()
    cluster.classified = 0
    for seconds in range(60, 30, -1):
        cluster.pod_cache.put_job("team", "job-1", Walltime(NOW, seconds))
        cluster.pod_cache.put_group(("team", "g"), PodGroupInfo(priority=seconds))
    assert cluster.classified == 0
    cluster.settle()
    assert cluster.classified == 3
    for name in "abc":
        assert cluster.scheduled_pod(name).progress.walltime == Walltime(NOW, 31)
        assert cluster.scheduled_pod(name).priority == 31


def test_the_changes_of_a_tenant_with_many_pods_do_not_hold_up_those_of_others(
    cluster: Cluster,
) -> None:
    for number in range(50):
        cluster.put(f"many-{number}", "two", namespace="others", ownerReferences=[JOB])
    cluster.put("a", ownerReferences=[JOB])
    cluster.pod_cache.put_job("others", "job-1", WALLTIME)
    cluster.pod_cache.queue_changes_of_tenants()
    assert cluster.pod_cache.reclassify_waiting(10)
    cluster.pod_cache.put_job("team", "job-1", WALLTIME)
    cluster.pod_cache.queue_changes_of_tenants()
    assert cluster.pod_cache.reclassify_waiting(2)
    assert cluster.scheduled_pod("a").progress.walltime == WALLTIME


def test_a_pod_that_changes_or_goes_waits_no_longer(cluster: Cluster) -> None:
    for name in "ab":
        cluster.put(name, ownerReferences=[JOB])
    cluster.pod_cache.put_job("team", "job-1", WALLTIME)
    cluster.pod_cache.queue_changes_of_tenants()
    cluster.put("a", ownerReferences=[JOB], labels={"app": "x"})
    cluster.pod_cache.remove(("team", "b"))
    cluster.classified = 0
    assert not cluster.pod_cache.reclassify_waiting(10)
    assert cluster.classified == 0


def test_a_pod_that_names_the_uid_of_another_namespaces_job_has_not_its_walltime(
    cluster: Cluster,
) -> None:
    cluster.put("a", ownerReferences=[JOB])
    cluster.pod_cache.put_job("others", "job-1", WALLTIME)
    cluster.settle()
    assert cluster.scheduled_pod("a").progress.walltime is None


def test_the_fields_of_a_native_group_hold_for_its_pods(cluster: Cluster) -> None:
    cluster.put("a", spec={"schedulingGroup": {"podGroupName": "g"}})
    said = PodGroupInfo(priority=9, disruption_mode=DisruptionMode.ALL, min_count=2)
    cluster.pod_cache.put_group(("team", "g"), said)
    cluster.settle()
    assert (cluster.scheduled_pod("a").priority, cluster.scheduled_pod("a").disruption_mode) == (
        9,
        DisruptionMode.ALL,
    )
    cluster.pod_cache.put_group(("team", "g"), None)
    cluster.settle()
    assert cluster.scheduled_pod("a").disruption_mode is DisruptionMode.SINGLE


def test_only_the_fields_of_a_pod_that_decisions_read_are_kept(cluster: Cluster) -> None:
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
    (known,) = cluster.pod_cache._pods.values()
    assert known.encoded.size < 1100
    assert [port.number for port in cluster.scheduled_pod("a").ports] == [90]
    assert cluster.scheduled_pod("a").cost_inputs.checkpoints_on_eviction


def test_a_change_of_a_budget_rebuilds_no_other_namespaces_list(cluster: Cluster) -> None:
    """Without this, each of thousands of listed budgets would rebuild all lists."""
    for number in range(3):
        cluster.snapshot_cache.put_budget(
            f"b{number}", DisruptionBudget(namespace=f"team-{number % 2}")
        )
    before = cluster.snapshot().budgets
    cluster.snapshot_cache.put_budget(
        "b1", DisruptionBudget(namespace="team-1", disruptions_allowed=1)
    )
    after = cluster.snapshot().budgets

    assert {namespace: len(found) for namespace, found in before.items()} == {
        "team-0": 2,
        "team-1": 1,
    }
    assert after["team-0"] is before["team-0"]
    assert [found.disruptions_allowed for found in (*before["team-1"], *after["team-1"])] == [0, 1]
    cluster.snapshot_cache.remove_budget(("team-1", "b1"))
    assert list(cluster.snapshot().budgets) == ["team-0"]


def test_the_check_of_a_node_ends_at_the_first_unknown_pod(
    cluster: Cluster,
) -> None:
    """Any client that reaches the port may name a million pods.

    Every Job is a gang, and each gang would cost one more lookup of each of them.
    """
    cluster.put("a", labels={"batch.kubernetes.io/job-name": "train"})
    looks: list[str] = []

    def named() -> Iterator[str]:
        for uid in ("uid-a", "made-up", "uid-a"):
            looks.append(uid)
            yield uid

    assert not has_seen(cluster, "one", named())
    assert looks == ["uid-a", "made-up"]
    assert not has_seen(cluster, "gone", named())
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


def test_a_pod_is_looked_up_as_often_on_a_node_with_one_gang_as_with_a_hundred(
    cluster: Cluster,
) -> None:
    looks = set()
    for gangs in (1, 100):
        for number in range(gangs):
            cluster.put(f"a{number}", labels=GANG | {GROUP: f"g{number}"})
        cluster.put("away", "two", labels=GANG | {GROUP: "g0"})
        named = [Looked("uid-away"), Looked("made-up")]
        assert has_seen(cluster, "one", named[:1])
        assert not has_seen(cluster, "one", named[1:])
        looks.add(tuple(uid.looks for uid in named))
    assert len(looks) == 1


def test_a_gang_that_has_left_is_known_on_no_node(cluster: Cluster) -> None:
    cluster.put("a", labels=GANG)
    cluster.put("b", "two", labels=GANG)
    cluster.put("b", "two")
    assert not has_seen(cluster, "one", ["uid-b"])
    cluster.pod_cache.remove(("team", "a"))
    cluster.pod_cache.remove(("team", "b"))
    assert cluster.snapshot_cache._gangs._gang_by_pod_uid == {}


def test_nothing_is_kept_of_a_namespace_without_pods(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.put(name)
        cluster.put(name, status={"phase": "Pending"})
    cluster.pod_cache.remove(("team", "a"))
    cluster.pod_cache.remove(("team", "a"))
    assert set(cluster.pod_cache._facts._facts) == {"team"}
    cluster.pod_cache.remove(("team", "b"))
    facts = cluster.pod_cache._facts
    assert (facts._facts, facts._pods_per_namespace) == ({}, {})
    cluster.policies["team"] = NamespacePolicy(workload_type="service")
    cluster.put("a")
    assert cluster.scheduled_pod("a").is_service


def test_of_what_is_gone_nothing_is_kept_where_nothing_asks_for_a_snapshot(
    cluster: Cluster,
) -> None:
    """A process that no scheduler asks would keep the keys of all gangs that ever ran."""
    names = [f"past-{number}" for number in range(10)]
    quotas = Quotas(a_quota(name, "admin") for name in names)
    cluster.facts = replace(cluster.facts, quotas=quotas)
    cluster.put("stays", labels=GANG)
    cluster.settle()
    before = cluster.snapshot()
    parts = cluster.snapshot_cache
    built = (parts._nodes._infos, parts._gangs._infos, parts._quotas._infos, parts._budgets._lists)
    for name in names:
        labels = {**GANG, GROUP: name, keys.QUOTA_NAME: name}
        budget = replace(a_budget(name), namespace=name)
        cluster.snapshot_cache.put_budget(name, budget)
        cluster.snapshot_cache.remove_budget((name, name))
        for node in (name, ""):
            cluster.put(name, node, labels=labels)
            cluster.pod_cache.remove(("team", name))
    assert [values.changed for values in built] == [set()] * 4
    assert cluster.snapshot() == before


def test_a_gang_that_ends_and_comes_back_has_only_its_new_pods(cluster: Cluster) -> None:
    def members() -> list[str]:
        return [pod.name for gang in cluster.snapshot().gangs.values() for pod in gang.members]

    cluster.put("before", labels=GANG)
    assert members() == ["before"]
    cluster.pod_cache.remove(("team", "before"))
    assert members() == []
    cluster.put("again", labels=GANG)
    assert members() == ["again"]
    cluster.pod_cache.remove(("team", "again"))
    cluster.put("last", labels=GANG)
    assert members() == ["last"]

"""The pods of a gang must agree: webhooks refuse what they see, the operator reports the rest.

The refusals also hold after a restart of the webhooks. The tests need a cluster of their own,
because the native types have to be switched on. Both programs run with the rights of their
ServiceAccounts.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from realcluster.client.kubectl import Done
from realcluster.programs import WEBHOOKS, Programs
from reprieve_policy import keys
from reprieve_testing.cluster.hack_cluster import NAMESPACE, OwnCluster, own_cluster
from reprieve_testing.cluster.handle import Program, wait_for
from reprieve_testing.cluster.impersonated_users import until_answered
from reprieve_testing.cluster.kubernetes_version import (
    NATIVE_GROUPS,
    needs_native_groups,
)

pytestmark = pytest.mark.cluster

CLASS = f"metadata.labels[{keys.PREEMPTION_CLASS}]"
WARNED = "gangs-warned"


@dataclass
class Ours:
    """A cluster, and the webhooks of it."""

    cluster: OwnCluster
    programs: Programs

    def create(self, document: Any, namespace: str = NAMESPACE) -> Done:
        return self.cluster.kubectl.run(
            "create", "-n", namespace, "-f", "-", stdin=json.dumps(document)
        )

    def delete(self, name: str, namespace: str = NAMESPACE) -> None:
        self.cluster.kubectl.read(
            "delete", "pod", name, "-n", namespace, "--grace-period=0", "--force"
        )

    def restart_webhooks(self) -> None:
        self.programs.stop(WEBHOOKS)
        self.programs.start(WEBHOOKS)
        self.programs.wait_until_ready(WEBHOOKS)


@pytest.fixture(scope="module")
def ours() -> Iterator[Ours]:
    with own_cluster("test-gangs", "--kwok-nodes", 0, *NATIVE_GROUPS) as cluster:
        programs = cluster.install_webhooks()
        cluster.kubectl.apply(
            a_namespace(WARNED, "warn"), a_priority_class("low", 100), a_priority_class("high", 900)
        )
        cluster.kubectl.run("create", "serviceaccount", "default", "-n", WARNED)
        made = Ours(cluster, programs)
        programs.start(WEBHOOKS)
        try:
            programs.wait_until_ready(WEBHOOKS)
            until_answered(
                "denied", lambda: made.create(a_pod("probe", "none", preemption_class="x"))
            )
            yield made
        finally:
            programs.stop(WEBHOOKS)
            cluster.stop_programs()


@pytest.fixture
def operator(ours: Ours) -> Iterator[Program]:
    program = ours.cluster.start_operator()
    program.wait_leading()
    yield program
    assert program.stop() == 0


def an_object(api_version: str, kind: str, name: str, **fields: Any) -> Any:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def a_namespace(name: str, enforcement: str) -> Any:
    made = an_object("v1", "Namespace", name)
    made["metadata"]["annotations"] = {keys.ENFORCEMENT: enforcement}
    return made


def a_priority_class(name: str, value: int) -> Any:
    return an_object("scheduling.k8s.io/v1", "PriorityClass", name, value=value)


def a_pod(
    name: str, gang: str, *, preemption_class: str = "4", key: str = keys.POD_GROUP, **spec: Any
) -> Any:
    containers = [{"name": "main", "image": "none"}]
    made = an_object(
        "v1", "Pod", name, spec={"schedulerName": "nobody", "containers": containers, **spec}
    )
    made["metadata"]["labels"] = {keys.PREEMPTION_CLASS: preemption_class}
    if gang:
        part = "annotations" if key == keys.KOORDINATOR_GANG else "labels"
        made["metadata"].setdefault(part, {})[key] = gang
    return made


def refused(done: Done, value: str, theirs: str, gang: str) -> bool:
    message = (
        f'{CLASS}: Invalid value: "{value}": must be "{theirs}", as in the rest of gang "{gang}"'
    )
    return done.status != 0 and message in done.stderr


def test_the_second_pod_of_a_gang_must_agree_with_the_first_even_after_a_restart(
    ours: Ours,
) -> None:
    assert ours.create(a_pod("first", "train")).status == 0
    assert refused(ours.create(a_pod("other", "train", preemption_class="5")), "5", "4", "train")
    ours.restart_webhooks()
    until_answered(
        "created", lambda: ours.create(a_pod("another-gangs", "infer", preemption_class="5"))
    )
    assert refused(ours.create(a_pod("other", "train", preemption_class="5")), "5", "4", "train")
    assert ours.create(a_pod("second", "train")).status == 0


def test_a_gang_named_by_an_annotation_only_is_known_from_its_admitted_pods(
    ours: Ours,
) -> None:
    key = keys.KOORDINATOR_GANG
    assert ours.create(a_pod("k-first", "k", key=key)).status == 0
    assert refused(ours.create(a_pod("k-other", "k", key=key, preemption_class="5")), "5", "4", "k")
    ours.delete("k-first")
    anew = a_pod("k-other", "k", key=key, preemption_class="5")
    wait_for("the gang made anew", lambda: ours.create(anew).status == 0)
    assert refused(ours.create(a_pod("k-first", "k", key=key)), "4", "5", "k")


def test_priorities_of_a_gang_are_compared(ours: Ours) -> None:
    assert ours.create(a_pod("p-first", "p", priorityClassName="low")).status == 0
    done = ours.create(a_pod("p-other", "p", priorityClassName="high"))
    assert (
        'spec.priority: Invalid value: "900": must be "100", as in the rest of gang "p"'
        in done.stderr
    )


def test_many_concurrent_pods_of_a_gang_cost_one_call(ours: Ours) -> None:
    pods = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [a_pod(f"many-{number}", "many") for number in range(30)],
    }
    before = lookups(ours)
    assert ours.create(pods).status == 0
    assert lookups(ours) - before == 1


def lookups(ours: Ours) -> float:
    lines = ours.programs.read(WEBHOOKS, "/metrics").splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("reprieve_gang_lookups_total{")
    )


def test_if_divergence_is_only_a_warning_the_operator_reports_it(
    ours: Ours, operator: Program
) -> None:
    assert ours.create(a_pod("first", "w"), WARNED).status == 0
    done = ours.create(a_pod("other", "w", preemption_class="5"), WARNED)
    assert done.status == 0
    assert 'must be "4", as in the rest of gang "w"' in done.stderr
    event = wait_for("the Event", lambda: find_event(ours, "GangDiverges"))
    assert event["regarding"]["name"] in ("first", "other")
    assert event["note"].startswith('differs from other pods of gang "w" in class')
    wait_for("the metric", lambda: operator.metric("reprieve_diverging_gangs") == 1)
    ours.delete("other", WARNED)
    wait_for("agreement", lambda: operator.metric("reprieve_diverging_gangs") == 0)


def find_event(ours: Ours, reason: str) -> Any:
    events = ours.cluster.kubectl.get("events.v1.events.k8s.io", "-n", WARNED)["items"]
    return next((event for event in events if event["reason"] == reason), None)


@needs_native_groups
def test_the_condition_of_a_native_group_shows_whether_its_pods_have_its_priority(
    ours: Ours, operator: Program
) -> None:
    spec = {"schedulingPolicy": {"basic": {}}, "priorityClassName": "low"}
    assert (
        ours.create(an_object("scheduling.k8s.io/v1beta1", "PodGroup", "native", spec=spec)).status
        == 0
    )
    group = {"schedulingGroup": {"podGroupName": "native"}}
    assert ours.create(a_pod("n-first", "", priorityClassName="high", **group)).status == 0
    condition = wait_for("the condition", lambda: the_condition(ours, "True"))
    assert condition["reason"] == "PodsOfAnotherPriority"
    assert condition["message"] == "pods with another priority than the group's 100: 1"
    ours.delete("n-first")
    assert wait_for("agreement", lambda: the_condition(ours, "False"))["reason"] == "PodsMatch"
    wait_for("leadership", lambda: operator.metric("reprieve_leader") == 1)


MODES = {"all": {"all": {}}, "single": {"single": {}}, "unsaid": None}


@needs_native_groups
@pytest.mark.parametrize("mode", MODES)
def test_a_native_group_is_evicted_as_its_disruption_mode_demands(
    ours: Ours, operator: Program, mode: str
) -> None:
    spec = {"schedulingPolicy": {"basic": {}}} | (
        {"disruptionMode": MODES[mode]} if MODES[mode] else {}
    )
    assert (
        ours.create(an_object("scheduling.k8s.io/v1beta1", "PodGroup", mode, spec=spec)).status == 0
    )
    group = {"schedulingGroup": {"podGroupName": mode}}
    for name in (f"{mode}-0", f"{mode}-1"):
        assert ours.create(a_pod(name, "", **group)).status == 0
    ours.cluster.kubectl.read(
        "label", "pod", f"{mode}-0", "-n", NAMESPACE, f"{keys.SOFT_EVICTION}=requested"
    )
    wait_for(
        "the first is gone",
        lambda: ours.cluster.kubectl.find("pod", f"{mode}-0", "-n", NAMESPACE) is None,
    )
    if mode == "all":
        wait_for(
            "the second is gone",
            lambda: ours.cluster.kubectl.find("pod", f"{mode}-1", "-n", NAMESPACE) is None,
        )
    else:
        second = ours.cluster.kubectl.get("pod", f"{mode}-1", "-n", NAMESPACE)
        assert keys.SOFT_EVICTION not in second["metadata"]["labels"]
        ours.delete(f"{mode}-1")
    wait_for("leadership", lambda: operator.metric("reprieve_leader") == 1)


def the_condition(ours: Ours, status: str) -> Any:
    group = ours.cluster.kubectl.get(
        "podgroups.v1beta1.scheduling.k8s.io", "native", "-n", NAMESPACE
    )
    conditions = group.get("status", {}).get("conditions", [])
    return next(
        (c for c in conditions if (c["type"], c["status"]) == ("PodsNotMatchingPriority", status)),
        None,
    )


@needs_native_groups
def test_explain_shows_the_fields_of_a_pods_native_group(ours: Ours) -> None:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "priorityClassName": "high",
        "disruptionMode": {"all": {}},
    }
    assert (
        ours.create(
            an_object("scheduling.k8s.io/v1beta1", "PodGroup", "explained", spec=spec)
        ).status
        == 0
    )
    group = {"schedulingGroup": {"podGroupName": "explained"}, "priorityClassName": "low"}
    assert ours.create(a_pod("explained", "", **group)).status == 0
    done = ours.cluster.reprieve("explain", "explained", "-n", NAMESPACE)
    assert "preemption priority 900" in done.stdout
    assert 'its gang "explained" is evicted as a unit' in done.stdout
    assert 'its PodGroup "explained" places 2 pods together, or none' in done.stdout

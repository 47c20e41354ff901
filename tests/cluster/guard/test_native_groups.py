"""An unmodified kube-scheduler that schedules native groups (`GenericWorkload`), against the guard.

The tests count its calls. It deletes a group that is disrupted as a whole on every node, for a
preemptor on one of them. For a group that preempts, it deletes victims on several nodes at once.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.cluster.kubernetes_version import needs_native_groups
from reprieve_testing.guard.guarded_cluster import (
    HINT,
    GuardedCluster,
    a_pod,
    a_priority_class,
    guarded_cluster,
)
from reprieve_testing.guard.scenarios import (
    WATCHED_SECONDS,
    bystander_is_placed,
    observe_calls,
    rate,
)

pytestmark = [pytest.mark.cluster, needs_native_groups]

HIGH, LOW = "native-high", "native-low"
NODES = ("kwok-0", "kwok-1")
LONG = {**HINT, "reprieve.dev/checkpoint-timeout": "25s"}


@pytest.fixture(scope="module")
def ours() -> Iterator[GuardedCluster]:
    served = {
        "feature_gates": "GenericWorkload=true",
        "runtime_config": "scheduling.k8s.io/v1beta1=true",
    }
    with guarded_cluster("test-guard-native", **served) as cluster:
        cluster.set_policy(ceiling="40s", checkpointTimeout="25s")
        for node in NODES:
            cluster.set_capacity(node, 2)
        cluster.create("default", a_priority_class(HIGH, 1000), a_priority_class(LOW, 10))
        yield cluster


def test_a_pod_group_gets_what_its_workload_states(ours: GuardedCluster) -> None:
    stated = {"reprieve.dev/preemption-priority-class": LOW, "reprieve.dev/disruption-mode": "gang"}
    policy = {"schedulingPolicy": {"basic": {}}}
    workload = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "train", "annotations": stated},
        "spec": {"podGroupTemplates": [{"name": "workers", "priorityClassName": LOW, **policy}]},
    }
    reference = {"workloadName": "train", "templateName": "workers"}
    with ours.namespace("workload") as team:
        ours.create(team, workload, a_group("train-0", LOW, workloadRef=reference, **policy))
        found = ours.kubectl.get("podgroup", "train-0", "-n", team)
        assert found["metadata"]["annotations"] == stated


def test_the_deletion_of_a_group_evicted_as_a_unit_is_retried_rarely_on_all_its_nodes(
    ours: GuardedCluster,
) -> None:
    with ours.namespace("whole") as team:
        ours.create(team, a_group("train", LOW, disruptionMode={"all": {}}))
        ours.create(team, *(of_group("train", name, LOW, annotations=LONG) for name in NODES))
        ours.running(team, *NODES)
        ours.create(team, a_pod("preemptor", slots=2, priority_class=HIGH, node="kwok-0"))
        for name in NODES:
            ours.wait_phase(team, name, "hinted")
        bystander_is_placed(ours, team)
        assert rate(observe_calls(ours, team)) <= 1
        # Both of them, and that they are gone, which the scheduler then waits to see.
        assert {(call.name, call.code) for call in ours.calls(team)} == {
            (name, 404) for name in NODES
        }
        for name in NODES:
            ours.acknowledge_checkpoint(team, name)
        for name in NODES:
            ours.wait_gone(team, name)
        ours.running(team, "preemptor")
        assert len(ours.calls(team)) <= WATCHED_SECONDS


@pytest.mark.slow
def test_the_deletion_of_a_protected_group_is_retried_rarely_and_the_group_stays(
    ours: GuardedCluster,
) -> None:
    with ours.namespace("kept") as team:
        kept = {
            "labels": {"quota.scheduling.koordinator.sh/preemptible": "false"},
            "annotations": HINT,
        }
        ours.create(team, a_group("train", LOW, disruptionMode={"all": {}}))
        ours.create(team, *(of_group("train", name, LOW, **kept) for name in NODES))
        ours.running(team, *NODES)
        ours.create(team, a_pod("preemptor", slots=2, priority_class=HIGH, node="kwok-0"))
        wait_for("the scheduler is refused", lambda: ours.calls(team))
        bystander_is_placed(ours, team)
        assert rate(observe_calls(ours, team)) <= 1
        assert {call.code for call in ours.calls(team)} == {429}
        ours.running(team, *NODES)


@pytest.mark.slow
def test_a_group_that_preempts_on_several_nodes_retries_rarely_and_is_placed_completely(
    ours: GuardedCluster,
) -> None:
    with ours.namespace("group") as team:
        victims = {node: f"victim-{node}" for node in NODES}
        for node, name in victims.items():
            ours.create(team, a_pod(name, slots=2, priority_class=LOW, node=node, annotations=LONG))
        ours.running(team, *victims.values())
        ours.create(team, a_group("urgent", HIGH, schedulingPolicy={"gang": {"minCount": 2}}))
        ours.create(team, *(of_group("urgent", name, HIGH) for name in NODES))
        wait_for("a victim is asked for", lambda: ours.calls(team))
        assert rate(observe_calls(ours, team)) <= 1
        for _ in victims:
            ours.acknowledge_checkpoint(team, victim := notified_pod(ours, team))
            ours.wait_gone(team, victim)
        ours.running(team, *NODES)
        assert {call.name for call in ours.calls(team)} == set(victims.values())


def a_group(name: str, priority_class: str, **spec: Any) -> Any:
    group_spec = {"schedulingPolicy": {"basic": {}}, "priorityClassName": priority_class} | spec
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": group_spec,
    }


def of_group(group: str, node: str, priority_class: str, **metadata: Any) -> Any:
    """Return a pod of a group, which takes all of a node and is called as it is."""
    pod = a_pod(node, slots=2, priority_class=priority_class, node=node, **metadata)
    pod["spec"] |= {"schedulingGroup": {"podGroupName": group}}
    return pod


def notified_pod(ours: GuardedCluster, team: str) -> str:
    """Return a pod once it carries a checkpoint request."""

    def find() -> str | None:
        pods: list[Any] = ours.kubectl.get(
            "pods", "-n", team, "-l", "reprieve.dev/soft-eviction=hinted"
        )["items"]
        return str(pods[0]["metadata"]["name"]) if pods else None

    return wait_for("a victim is notified", find)

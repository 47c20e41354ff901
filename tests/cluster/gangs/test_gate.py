"""The gang gate on a real cluster: a stock scheduler gets a gang's pods together; no wait is
endless.

A quota keeps a Job's last pod from being created for as long as a test needs an incomplete gang.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from realcluster.programs import OPERATOR
from reprieve_policy.keys import GANG_GATE_LABEL, KOORDINATOR_GANG, KOORDINATOR_MIN_AVAILABLE
from reprieve_policy.keys import OLD_MIN_AVAILABLE as MIN_AVAILABLE
from reprieve_policy.keys import OLD_POD_GROUP as POD_GROUP
from reprieve_testing.cluster.gang_gate import (
    LABELS,
    OURS,
    SECONDS,
    Gated,
    a_job,
    a_pod,
    gate_on,
    holds_new_pods,
    installed_in,
    is_gated,
    is_held,
    runs,
    stop,
)
from reprieve_testing.cluster.handle import cluster_for_tests, wait_for

pytestmark = pytest.mark.cluster

FOREIGN = {"name": "example.com/hold"}


@pytest.fixture(scope="module")
def installed() -> Iterator[Gated]:
    with cluster_for_tests("reprieve-gang-gate") as handle:
        yield from installed_in(handle)


@pytest.fixture
def gated(installed: Gated) -> Iterator[Gated]:
    with gate_on(installed) as made:
        yield made


def a_stateful_set(policy: str) -> Any:
    template = {
        "metadata": {"labels": {"app": "set", POD_GROUP: "set", MIN_AVAILABLE: "3"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    spec = {
        "replicas": 3,
        "podManagementPolicy": policy,
        "serviceName": "set",
        "template": template,
    }
    spec["selector"] = {"matchLabels": {"app": "set"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "set"},
        "spec": spec,
    }


def a_replica_set() -> Any:
    made = a_stateful_set("Parallel")
    spec = {key: made["spec"][key] for key in ("replicas", "selector", "template")}
    return {**made, "kind": "ReplicaSet", "spec": spec}


@contextmanager
def pod_cannot_be_changed(gated: Gated, pod: str) -> Iterator[None]:
    """Add a foreign policy that refuses every change of a pod, for the block."""
    constraints = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["pods"],
    }
    refused = {"expression": f"object.metadata.name != {pod!r}", "message": "not now"}
    name, group = {"name": f"{gated.namespace}-frozen"}, "admissionregistration.k8s.io/v1"
    only_here = {"matchLabels": {"kubernetes.io/metadata.name": gated.namespace}}
    policy = {"matchConstraints": {"resourceRules": [constraints]}, "validations": [refused]}
    binding = {
        "policyName": name["name"],
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": only_here},
    }
    kubectl = gated.cluster.kubectl
    kubectl.apply(
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": name,
            "spec": policy,
        },
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": name,
            "spec": binding,
        },
    )
    change = ("label", "pod", pod, "-n", gated.namespace, "--dry-run=server", "some=label")
    wait_for("the policy is in force", lambda: "not now" in kubectl.run(*change).output, SECONDS)
    try:
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            kubectl.read("delete", kind, name["name"])


def scheduled_at(pod: Any) -> str:
    (found,) = [found for found in pod["status"]["conditions"] if found["type"] == "PodScheduled"]
    return str(found["lastTransitionTime"])


def test_a_gang_of_four_waits_at_three_and_is_scheduled_together_at_four(gated: Gated) -> None:
    gated.allow_pods(3)
    gated.create(a_job())
    gated.wait_pods("held", 3, is_held)
    wait_for("an Event says what they wait for", lambda: "GangWaiting" in gated.events(), SECONDS)

    gated.allow_pods(4)

    pods = gated.wait_pods("running", 4, runs)
    last = max(pod["metadata"]["creationTimestamp"] for pod in pods)
    assert min(scheduled_at(pod) for pod in pods) >= last
    wait_for("Event", lambda: "GangReleased" in gated.events(), SECONDS)


def test_a_gang_that_is_declared_by_annotations_is_counted_without_a_label(gated: Gated) -> None:
    annotations = {KOORDINATOR_GANG: "train", KOORDINATOR_MIN_AVAILABLE: "4"}
    gated.allow_pods(3)
    gated.create(a_job(annotations=annotations, app="train"))
    gated.wait_pods("held", 3, is_held)
    gated.allow_pods(4)
    gated.wait_pods("running", 4, runs)


@pytest.mark.slow
def test_gangs_of_one_name_in_two_namespaces_do_not_count_for_each_other(gated: Gated) -> None:
    with gated.cluster.namespace("other") as namespace:
        other = replace(gated, namespace=namespace)
        for half in (gated, other):
            half.allow_pods(2)
            half.create(a_job())
        for half in (gated, other):
            half.wait_pods("held", 2, is_held)
        gated.allow_pods(4)
        gated.wait_pods("running", 4, runs)
        other.wait_pods("held", 2, is_held)


def test_a_member_that_is_recreated_later_does_not_wait_for_four_more(gated: Gated) -> None:
    gated.create(a_job())
    first = gated.wait_pods("running", 4, runs)[0]["metadata"]["name"]
    gated.cluster.kubectl.read("delete", "pod", first, "-n", gated.namespace, "--grace-period=1")
    pods = gated.wait_pods("running", 4, runs)
    assert first not in {pod["metadata"]["name"] for pod in pods}


def test_an_incomplete_gang_waits_on_at_its_timeout(gated: Gated) -> None:
    gated.cluster.set_policy(gangGate="true", gangGateTimeout="3s")
    gated.allow_pods(3)
    gated.create(a_job())
    gated.wait_pods("held", 3, is_held)
    wait_for("Event", lambda: "GangIncomplete" in gated.events(), SECONDS)
    metrics = gated.installation.programs.read(OPERATOR, "/metrics")
    assert 'reprieve_gang_gate_failures_total{reason="incomplete"}' in metrics
    assert "\nreprieve_gang_gated_pods 3.0\n" in metrics
    gated.wait_pods("held", 3, is_held)
    gated.allow_pods(4)
    gated.wait_pods("running", 4, runs)


def test_a_gate_that_is_switched_off_holds_no_pod(gated: Gated) -> None:
    gated.allow_pods(3)
    gated.create(a_job())
    gated.wait_pods("held", 3, is_held)
    gated.cluster.set_policy()
    gated.wait_pods("running", 3, runs)


def test_without_an_operator_no_new_pod_waits_and_the_next_operator_releases_waiting_ones(
    gated: Gated,
) -> None:
    gated.allow_pods(3)
    gated.create(a_job())
    gated.wait_pods("held", 3, is_held)

    gated.installation.programs.stop(OPERATOR, kill=True)
    # Without this, new pods would wait until another one had had time to take over.
    gated.cluster.kubectl.read("delete", "lease", OPERATOR, "-n", "reprieve-system")
    wait_for("the webhooks know that no operator leads", lambda: not holds_new_pods(gated), SECONDS)
    gated.allow_pods(8)
    gated.create(a_job("later", **LABELS | {POD_GROUP: "later"}))
    gated.wait_pods("running", 4, runs, f"{POD_GROUP}=later")
    waiting = gated.wait_pods("there", 4, lambda _: True, f"{POD_GROUP}=train")
    assert sum(is_gated(pod) for pod in waiting) == 3, (
        "those that were held wait for the operator's return"
    )

    gated.installation.start(OPERATOR)
    gated.wait_pods("running", 4, runs, f"{POD_GROUP}=train")


def test_after_a_kill_the_next_operator_releases_the_rest(gated: Gated) -> None:
    gated.allow_pods(3)
    gated.create(a_job())
    gated.wait_pods("held", 3, is_held)
    gated.installation.programs.stop(OPERATOR, kill=True)
    gated.installation.start(OPERATOR)
    gated.wait_pods("held", 3, is_held)
    gated.allow_pods(4)
    gated.wait_pods("running", 4, runs)


def test_pods_of_an_ordered_stateful_set_do_not_wait(gated: Gated) -> None:
    gated.create(a_stateful_set("OrderedReady"))
    gated.wait_pods("running", 3, runs)
    assert "GangReleased" not in gated.events()


def test_pods_of_a_parallel_stateful_set_wait_for_all(gated: Gated) -> None:
    gated.allow_pods(2)
    gated.create(a_stateful_set("Parallel"))
    gated.wait_pods("held", 2, is_held)
    gated.allow_pods(3)
    gated.wait_pods("running", 3, runs)


@pytest.mark.slow
def test_a_rollout_that_changes_the_gang_of_the_pods_continues_one_by_one(gated: Gated) -> None:
    gated.create(a_stateful_set("Parallel"))
    gated.wait_pods("running", 3, runs)
    renamed = {"spec": {"template": {"metadata": {"labels": {POD_GROUP: "renamed"}}}}}
    gated.cluster.kubectl.read(
        "patch",
        "statefulset",
        "set",
        "-n",
        gated.namespace,
        "--type=merge",
        "-p",
        json.dumps(renamed),
    )
    gated.wait_pods("running", 3, runs, f"{POD_GROUP}=renamed")


def test_a_pod_that_cannot_be_changed_delays_no_other_and_is_retried(
    gated: Gated,
) -> None:
    gated.allow_pods(2)
    gated.create(a_stateful_set("Parallel"))
    gated.wait_pods("held", 2, is_held)
    with pod_cannot_be_changed(gated, "set-0"):
        gated.allow_pods(3)
        gated.wait_pods(
            "running, but for the one",
            3,
            lambda pod: pod["status"]["phase"] == "Running" or pod["metadata"]["name"] == "set-0",
        )
        wait_for("Event", lambda: "GangReleased" in gated.events(), SECONDS)
        assert is_gated(gated.cluster.pod(gated.namespace, "set-0"))
    gated.wait_pods("running", 3, runs)


def test_the_pods_of_a_replica_set_wait_for_their_gang(gated: Gated) -> None:
    gated.allow_pods(2)
    gated.create(a_replica_set())
    gated.wait_pods("held", 2, is_held)
    gated.allow_pods(3)
    gated.wait_pods("running", 3, runs)


def test_a_gang_waits_until_the_gates_of_others_are_gone(gated: Gated) -> None:
    gated.create(a_job(gates=[FOREIGN]))
    pods = gated.wait_pods(
        "held by both gates", 4, lambda pod: pod["spec"]["schedulingGates"] == [FOREIGN, OURS]
    )
    for pod in pods:
        without = json.dumps({"spec": {"schedulingGates": [OURS]}})
        name = pod["metadata"]["name"]
        gated.cluster.kubectl.read(
            "patch", "pod", name, "-n", gated.namespace, "--type=merge", "-p", without
        )
    gated.wait_pods("running", 4, runs)


def test_the_gate_of_a_pod_without_a_gang_is_removed(gated: Gated) -> None:
    gated.create(a_pod("alone", gates=[OURS], app="alone"))
    gated.wait_pods("running", 1, runs)


def test_no_pod_has_the_gate_without_the_label_that_the_operator_selects(gated: Gated) -> None:
    gated.allow_pods(3)
    gated.create(a_job())
    name = gated.wait_pods("held", 3, is_held)[0]["metadata"]["name"]
    refused = gated.cluster.kubectl.run(
        "label", "pod", name, "-n", gated.namespace, f"{GANG_GATE_LABEL}-"
    )
    assert refused.status != 0
    assert "nothing would ever release the pod" in refused.output
    stop(gated.installation)
    without = gated.cluster.kubectl.run(
        "create",
        "-n",
        gated.namespace,
        "--dry-run=server",
        "-f",
        "-",
        stdin=json.dumps(a_pod("alone", gates=[OURS])),
    )
    assert "nothing would ever release the pod" in without.output, (
        "without a webhook, no label is added"
    )
    freed = json.dumps(
        {"metadata": {"labels": {GANG_GATE_LABEL: None}}, "spec": {"schedulingGates": []}}
    )
    gated.cluster.kubectl.read(
        "patch", "pod", name, "-n", gated.namespace, "--type=merge", "-p", freed
    )

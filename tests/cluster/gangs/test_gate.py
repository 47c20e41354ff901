"""The gang gate on a real cluster: a stock scheduler gets a gang's pods together; no wait is
endless.

A quota keeps a Job's last pod from being created for as long as a test needs an incomplete gang.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from mainjob.installation import Installation, Nodes
from realcluster import install
from realcluster.programs import OPERATOR, WEBHOOKS, Programs
from reprieve_policy.keys import (
    GANG_GATE,
    GANG_GATE_LABEL,
    KOORDINATOR_GANG,
    KOORDINATOR_MIN_AVAILABLE,
)
from reprieve_policy.keys import OLD_MIN_AVAILABLE as MIN_AVAILABLE
from reprieve_policy.keys import OLD_POD_GROUP as POD_GROUP
from reprieve_testing.cluster.handle import (
    LEASE_SECONDS,
    ClusterHandle,
    cluster_for_tests,
    wait_for,
)

pytestmark = pytest.mark.cluster

SECONDS = 60.0
OURS = {"name": GANG_GATE}
FOREIGN = {"name": "example.com/hold"}
LABELS = {POD_GROUP: "train", MIN_AVAILABLE: "4"}


@dataclass(frozen=True)
class Gated:
    """One namespace of a cluster in which both programs run and the gate is switched on."""

    cluster: ClusterHandle
    installation: Installation
    namespace: str

    def create(self, document: Any, *words: str) -> Any:
        output = self.cluster.kubectl.read(
            "create",
            "-n",
            self.namespace,
            "-f",
            "-",
            "-o",
            "json",
            *words,
            stdin=json.dumps(document),
        )
        return json.loads(output)

    def pods(self, selector: str = "") -> list[Any]:
        words = ("-l", selector) if selector else ()
        return list(self.cluster.kubectl.get("pods", "-n", self.namespace, *words)["items"])

    def wait_pods(
        self, what: str, number: int, holds: Callable[[Any], bool], selector: str = ""
    ) -> list[Any]:
        """Wait until exactly `number` pods exist and each `holds`; return them."""

        def look() -> list[Any] | None:
            found = self.pods(selector)
            return found if len(found) == number and all(holds(pod) for pod in found) else None

        try:
            return wait_for(f"{number} pods are {what}", look, SECONDS)
        except AssertionError as late:
            late.add_note(json.dumps(self.pods(selector), indent=1))
            raise

    def allow_pods(self, number: int) -> None:
        """Let the namespace have so many pods, and wait until that is in force."""
        metadata = {"name": "pods", "namespace": self.namespace}
        self.cluster.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": metadata,
                "spec": {"hard": {"pods": str(number)}},
            }
        )
        wait_for("the quota is in force", lambda: self._quota() == str(number), SECONDS)

    def events(self) -> list[str]:
        items = self.cluster.kubectl.get("events.v1.events.k8s.io", "-n", self.namespace)["items"]
        return [
            item["reason"]
            for item in items
            if item["reportingController"] == "reprieve.dev/operator"
        ]

    def _quota(self) -> str:
        found = self.cluster.kubectl.get("resourcequota", "pods", "-n", self.namespace)
        return str(found.get("status", {}).get("hard", {}).get("pods"))


@pytest.fixture(scope="module")
def installed() -> Iterator[Gated]:
    with cluster_for_tests("reprieve-gang-gate") as handle:
        yield from installed_in(handle)


def installed_in(handle: ClusterHandle) -> Iterator[Gated]:
    there = Installation.for_cluster(handle.cluster, Nodes.LOCAL, lease_seconds=LEASE_SECONDS)
    try:
        stop(there.programs)
        install.install(there.kubectl, install.LOCAL, handle.cluster.port("webhooks"))
        yield Gated(handle, there, "default")
    finally:
        stop(there.programs)


def stop(programs: Programs) -> None:
    for name in (WEBHOOKS, OPERATOR):
        programs.stop(name)


@pytest.fixture
def gated(installed: Gated) -> Iterator[Gated]:
    installed.cluster.set_policy(gangGate="true")
    for name in (WEBHOOKS, OPERATOR):
        installed.installation.start(name)
    wait_for("new pods are held", lambda: holds_new_pods(installed), SECONDS)
    with installed.cluster.namespace("gate") as namespace:
        yield replace(installed, namespace=namespace)


def a_job(
    name: str = "train", pods: int = 4, gates: Any = (), annotations: Any = None, **labels: str
) -> Any:
    template = {
        "metadata": {"labels": labels or LABELS, "annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": list(gates),
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


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


def a_pod(name: str, gates: Any = (), owner: Any = None, **labels: str) -> Any:
    metadata = {"name": name, "labels": labels}
    if owner is not None:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
        metadata["ownerReferences"] = [
            reference | {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        ]
    spec = {"schedulingGates": list(gates), "containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def holds_new_pods(gated: Gated) -> bool:
    """Say whether a gang's pod would be held: by a dry run in a namespace without a quota."""
    there = replace(gated, namespace="default")
    job = gated.cluster.kubectl.find("job", "idle", "-n", there.namespace)
    if job is None:
        idle = a_job("idle")
        idle["spec"]["suspend"] = True
        job = there.create(idle)
    return is_gated(there.create(a_pod("tried", owner=job, **LABELS), "--dry-run=server"))


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


def is_gated(pod: Any) -> bool:
    return OURS in pod["spec"].get("schedulingGates", [])


def is_held(pod: Any) -> bool:
    """As `kubectl get pods` shows it: the scheduler has seen it and leaves it alone."""
    reasons = {found["type"]: found.get("reason") for found in pod["status"].get("conditions", [])}
    return (
        is_gated(pod)
        and pod["metadata"]["labels"].get(GANG_GATE_LABEL) == "waiting"
        and reasons.get("PodScheduled") == "SchedulingGated"
    )


def runs(pod: Any) -> bool:
    """On a node where the stock scheduler put it, with no trace of the gate."""
    is_free = (
        "schedulingGates" not in pod["spec"] and GANG_GATE_LABEL not in pod["metadata"]["labels"]
    )
    return is_free and pod["status"]["phase"] == "Running"


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


def test_an_incomplete_gang_is_released_at_its_timeout(gated: Gated) -> None:
    gated.cluster.set_policy(gangGate="true", gangGateTimeout="3s")
    gated.allow_pods(3)
    gated.create(a_job())
    gated.wait_pods("running", 3, runs)
    wait_for("Event", lambda: "GangIncomplete" in gated.events(), SECONDS)
    metrics = gated.installation.programs.read(OPERATOR, "/metrics")
    assert 'reprieve_gang_gate_releases_total{reason="timed-out"}' in metrics
    assert "\nreprieve_gang_gated_pods 0.0\n" in metrics


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
    wait_for("the Lease is stale", lambda: not holds_new_pods(gated), SECONDS)
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
            lambda pod: runs(pod) or pod["metadata"]["name"] == "set-0",
        )
        wait_for("Event", lambda: "GangReleased" in gated.events(), SECONDS)
        assert is_gated(gated.cluster.pod(gated.namespace, "set-0"))
    gated.wait_pods("running", 3, runs)


def test_foreign_scheduling_gates_are_not_removed(gated: Gated) -> None:
    gated.create(a_job(gates=[FOREIGN]))
    pods = gated.wait_pods(
        "held by the other gate", 4, lambda pod: pod["spec"]["schedulingGates"] == [FOREIGN]
    )
    assert all(GANG_GATE_LABEL not in pod["metadata"]["labels"] for pod in pods)


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
    stop(gated.installation.programs)
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

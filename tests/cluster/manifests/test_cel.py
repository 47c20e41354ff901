"""The overlay `cel` on the real API server: policies decide what they cover; the rest is called
for.

For what the policies cover, the API server does not call the webhooks.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from realcluster.client.kubectl import Done, Kubectl
from realcluster.install import MANIFESTS
from reprieve_policy import keys
from reprieve_testing.cluster import narrowed_webhooks
from reprieve_testing.cluster.handle import ClusterHandle
from reprieve_testing.cluster.impersonated_users import until_answered
from reprieve_testing.cluster.kubernetes_version import needs_kubernetes
from reprieve_testing.cluster.narrowed_webhooks import CALL_FAILED

pytestmark = [
    pytest.mark.cluster,
    needs_kubernetes(36, "MutatingAdmissionPolicy in admissionregistration.k8s.io/v1"),
]

NAMESPACE, EXEMPT = "cel-overlay", "kube-system"
OURS = {"reprieve-test": "cel"}
HALF = {keys.TOLERATION_PREFIX + keys.TOLERATION_SECONDS: "60"}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "0", "controller": True}
Json = Any


@pytest.fixture(scope="module")
def kubectl(cluster: ClusterHandle) -> Iterator[Kubectl]:
    kubectl = cluster.kubectl
    rendered = list(yaml.safe_load_all(kubectl.read("kustomize", MANIFESTS / "overlays" / "cel")))
    written = [*yaml.safe_load_all((MANIFESTS / "overlays" / "cel" / "policies.yaml").read_text())]
    policies = [
        narrowed_webhooks.policy(document, "test", [NAMESPACE, EXEMPT], OURS)
        for document in written
    ]
    configurations = [
        narrowed_webhooks.webhooks(document, "reprieve-test-cel", [NAMESPACE], OURS)
        for document in rendered
        if document["kind"].endswith("WebhookConfiguration")
    ]
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for namespace in (NAMESPACE, EXEMPT):
        kubectl.run("create", "serviceaccount", "default", "-n", namespace)
    kubectl.apply(*policies, *configurations)
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "cel-high"},
        "value": 7,
    }
    kubectl.apply(high)
    until_answered(CALL_FAILED, lambda: create(kubectl, a_pod(priorityClassName="cel-high")))
    until_answered(
        CALL_FAILED,
        lambda: create(kubectl, a_pod(annotations={keys.PREEMPTION_PRIORITY_CLASS: "cel-high"})),
    )
    for refused in (
        a_pod({keys.PREEMPTION_CLASS: "11"}),
        a_deployment("11"),
        a_priority_class({**HALF, **BAD_MINIMUM}),
    ):
        until_answered("denied request", lambda refused=refused: create(kubectl, refused))  # type: ignore[misc]
    until_answered(keys.PREEMPTION_CLASS, lambda: create(kubectl, a_pod()))
    until_answered(
        keys.MINIMUM_PREEMPTABLE_PRIORITY, lambda: create(kubectl, a_priority_class(HALF))
    )
    yield kubectl
    for document in (*policies, *configurations):
        kubectl.run("delete", document["kind"], document["metadata"]["name"])
    kubectl.run("delete", "namespace", NAMESPACE, "--wait=false")
    kubectl.run("delete", "priorityclass", "cel-high")


BAD_MINIMUM = {keys.TOLERATION_PREFIX + keys.MINIMUM_PREEMPTABLE_PRIORITY: "1"}


def a_pod(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: Json = None,
    **spec: object,
) -> Json:
    metadata = {"name": "new", "labels": labels or {}, "annotations": annotations or {}}
    owners = {"ownerReferences": [owner]} if owner else {}
    containers = [{"name": "main", "image": "none"}]
    spec = {"schedulerName": "nobody", "containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, **owners}, "spec": spec}


def a_deployment(preemption_class: str, **spec: object) -> Json:
    labels = {"app": "new"}
    template = {
        "metadata": {"labels": {**labels, keys.PREEMPTION_CLASS: preemption_class}},
        "spec": a_pod()["spec"] | spec,
    }
    document = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "new"},
        "spec": document,
    }


def a_priority_class(annotations: dict[str, str]) -> Json:
    metadata = {"name": "cel-new", "labels": OURS, "annotations": annotations}
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata,
        "value": 1000,
    }


def create(kubectl: Kubectl, document: Json, *more: str) -> Done:
    words = ("create", "-n", NAMESPACE, "--dry-run=server", "-o", "json", "-f", "-", *more)
    return kubectl.run(*words, stdin=json.dumps(document))


COVERED = {
    "a pod without preemption keys": (a_pod(), keys.PREEMPTION_CLASS, "4"),
    "a pod of a class": (a_pod({keys.PREEMPTION_CLASS: "2"}), keys.PREEMPTION_CLASS, "2"),
    "a pod with a plan": (
        a_pod(annotations={keys.CHECKPOINT_TIMEOUT: "5m"}),
        keys.CHECKPOINT_TIMEOUT,
        "5m",
    ),
    "a template of a class": (a_deployment("2"), keys.PREEMPTION_CLASS, "2"),
    "half a toleration": (
        a_priority_class(HALF),
        keys.TOLERATION_PREFIX + keys.MINIMUM_PREEMPTABLE_PRIORITY,
        "1001",
    ),
}
REFUSED = {
    "a pod": (
        a_pod({keys.PREEMPTION_CLASS: "11"}),
        'Invalid value: "11": must be between 0 and 10, in plain digits',
    ),
    "a pod with a text that no pattern is matched with": (
        a_pod(
            {keys.PREEMPTION_CLASS: "2"},
            {keys.CLEANERS_BEFORE: ",".join(["example.com/a"] * 17_000)},
        ),
        "must be finalizers, separated by commas",
    ),
    "a template": (
        a_deployment("11"),
        'Invalid value: "11": must be between 0 and 10, in plain digits',
    ),
    "a PriorityClass": (
        a_priority_class({**HALF, **BAD_MINIMUM}),
        "must not be below the class's own value 1000: only a higher priority preempts it",
    ),
}
LEFT = {
    "a class that a PriorityClass may give": a_pod(priorityClassName="cel-high"),
    "a pod that a controller will replace": a_pod(owner=OWNER),
    "more labels than an expression goes through": a_pod(
        {keys.PREEMPTION_CLASS: "2", **{f"example.com/{number}": "" for number in range(250)}}
    ),
    "a mark in Koordinator's dialect": a_pod(annotations={keys.KOORDINATOR_SOFT_EVICTION: "true"}),
    "a checkpoint hint": a_pod(annotations={keys.CHECKPOINT_HINT: "annotation:"}),
    "a claim to be non-preemptible": a_pod({keys.PREEMPTIBLE: "false"}),
    "a gang": a_pod({keys.PREEMPTION_CLASS: "2", keys.POD_GROUP: "gang"}),
    "borrowed nodes": a_pod(
        {keys.PREEMPTION_CLASS: "2"}, nodeSelector={keys.HOME_NAMESPACE: "other"}
    ),
    "a template that may go to borrowed nodes": a_deployment(
        "2", tolerations=[{"operator": "Exists"}]
    ),
    "a defence of a PriorityClass": a_priority_class({keys.PREEMPTION_PRIORITY_CLASS: "cel-high"}),
}


@pytest.mark.parametrize("what", COVERED)
def test_policies_admit_and_fill_in_without_a_call(kubectl: Kubectl, what: str) -> None:
    document, key, value = COVERED[what]
    done = create(kubectl, document)
    assert done.status == 0, done.output
    assert f'"{key}": "{value}"' in done.stdout


@pytest.mark.parametrize("what", REFUSED)
def test_policies_refuse_without_a_call(kubectl: Kubectl, what: str) -> None:
    document, words = REFUSED[what]
    done = create(kubectl, document)
    assert done.status != 0
    assert words in done.output
    assert CALL_FAILED not in done.output


def test_a_namespace_that_is_always_exempt_is_left_alone(kubectl: Kubectl) -> None:
    # Most policies for created pods leave it out by an expression, the others by a selector.
    for labels in ({}, {keys.PREEMPTION_CLASS: "11"}):
        done = create(kubectl, a_pod(labels), "-n", EXEMPT)
        assert done.status == 0, done.output
        assert done.stderr == ""
        assert json.loads(done.stdout)["metadata"].get("labels", {}) == labels


def test_violations_of_a_controllers_pods_are_warnings(kubectl: Kubectl) -> None:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "owner",
        "uid": "0",
        "controller": True,
    }
    template = {
        "metadata": {"labels": {keys.PREEMPTION_CLASS: "11"}},
        "spec": a_pod(restartPolicy="Never")["spec"],
    }
    metadata = {"name": "made", "ownerReferences": [owner]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": template},
    }
    controller = "--as=system:serviceaccount:kube-system:cronjob-controller"
    made, forged = create(kubectl, job, controller), create(kubectl, job)
    assert made.status == 0, made.output
    for done in (made, forged):
        assert "must be between 0 and 10, in plain digits" in done.output
    assert forged.status != 0


@pytest.mark.parametrize("what", LEFT)
def test_objects_that_need_facts_are_reviewed_by_the_webhook(kubectl: Kubectl, what: str) -> None:
    assert CALL_FAILED in create(kubectl, LEFT[what]).output

"""Requests that no rule reads stay in the API server; requests that rules or the guard read leave
it.

The tests use the base's webhook configurations with two changes: no server answers behind them, and
a failed call refuses the request. So a request reaches a webhook exactly where it fails. The
configurations are narrowed to this module's objects.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from realcluster.client.kubectl import Done
from reprieve_policy import keys
from reprieve_policy.kube import controllers
from reprieve_testing import manifests
from reprieve_testing.cluster import narrowed_webhooks
from reprieve_testing.cluster.handle import ClusterHandle
from reprieve_testing.cluster.impersonated_users import until_answered
from reprieve_testing.cluster.narrowed_webhooks import CALL_FAILED

pytestmark = pytest.mark.cluster

NAMESPACE, EXEMPT = "matching", "matching-exempt"
OURS = {"reprieve-test": "matching"}
TOLERATION = keys.TOLERATION_PREFIX + keys.TOLERATION_SECONDS


CONFIGURATIONS = [
    narrowed_webhooks.webhooks(
        manifests.named(f"{what}WebhookConfiguration", "reprieve-webhooks"),
        "reprieve-test-matching",
        [NAMESPACE, EXEMPT],
        OURS,
    )
    for what in ("Mutating", "Validating")
]


@pytest.fixture(scope="module")
def kubectl(cluster: ClusterHandle) -> Iterator[Any]:
    kubectl = cluster.kubectl
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": OURS}},
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": EXEMPT, "labels": {keys.ENFORCEMENT: "off"}},
        },
    )
    made = (
        a_pod("old"),
        a_pod("victim", {keys.SOFT_EVICTION: "requested"}),
        a_gated_pod("gated"),
        a_deployment("old", {}),
        a_deployment("owner", {}, "ReplicaSet"),
        a_deployment("counted", {keys.QUOTA_NAME: "gpu"}),
    )
    for document in (*made, *SPEAKING.values(), GOING):
        kubectl.read("create", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(document))
    kubectl.read("create", "-n", EXEMPT, "-f", "-", stdin=json.dumps(SPEAKING["with-a-class"]))
    kubectl.read("delete", "pod", "going", "-n", NAMESPACE, "--wait=false")
    kubectl.apply(*CONFIGURATIONS)
    until_answered(CALL_FAILED, lambda: create(kubectl, a_pod("new")))
    until_answered(
        CALL_FAILED, lambda: change(kubectl, "pod", "old", {"labels": {keys.PREEMPTION_CLASS: "2"}})
    )
    until_answered(CALL_FAILED, lambda: delete(kubectl, SCHEDULERS[0], "with-a-class"))
    yield kubectl
    for configuration in CONFIGURATIONS:
        kubectl.run("delete", configuration["kind"], configuration["metadata"]["name"])
    freed = '{"metadata":{"finalizers":null}}'
    kubectl.run("patch", "pod", "going", "-n", NAMESPACE, "--type=merge", "-p", freed)
    kubectl.run("delete", "namespace", NAMESPACE, EXEMPT, "--wait=false")


def a_pod(name: str, labels: dict[str, str] | None = None, **metadata: Any) -> Any:
    container = {"name": "main", "image": "localhost/reprieve/python:1", "imagePullPolicy": "Never"}
    metadata = {"name": name, "labels": labels or {}, **metadata}
    spec = {"schedulerName": "nobody", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def a_gated_pod(name: str) -> Any:
    """Return a pod whose selector and affinity may still change."""
    pod = a_pod(name)
    return {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": "example.com/quota"}]}}


def a_deployment(
    name: str, labels: dict[str, str], kind: str = "Deployment", **metadata: Any
) -> Any:
    template = {"metadata": {"labels": {"app": name, **labels}}, "spec": a_pod(name)["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def a_priority_class(annotations: dict[str, str]) -> Any:
    metadata = {"name": "matching", "labels": OURS, "annotations": annotations}
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata,
        "value": 7,
    }


def create(kubectl: Any, document: Any, namespace: str = NAMESPACE, *words: str) -> Done:
    creating = ("create", "-n", namespace, "--dry-run=server", "-f", "-", *words)
    return kubectl.run(*creating, stdin=json.dumps(document))


def change(kubectl: Any, kind: str, name: str, metadata: Any, *words: str, **fields: Any) -> Done:
    patch = json.dumps({"metadata": metadata, **fields})
    return kubectl.run(
        "patch",
        "-n",
        NAMESPACE,
        kind,
        name,
        "--dry-run=server",
        "--type=merge",
        "-p",
        patch,
        *words,
    )


def delete(kubectl: Any, user: str, *pods: str, namespace: str = NAMESPACE) -> Done:
    """Delete pods as a user who has every right: only the name matters here."""
    identity = (f"--as={user}", "--as-group=system:masters")
    return kubectl.run("delete", "pods", *pods, "-n", namespace, "--dry-run=server", *identity)


def evict(kubectl: Any, user: str, pod: str, namespace: str = NAMESPACE) -> Done:
    """Evict a pod as such a user."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction?dryRun=All"
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    identity = (f"--as={user}", "--as-group=system:masters")
    return kubectl.run("create", "--raw", path, "-f", "-", *identity, stdin=json.dumps(eviction))


SPEAKING = {
    pod["metadata"]["name"]: pod
    for pod in (
        a_pod("with-a-class", {keys.PREEMPTION_CLASS: "3"}),
        a_pod("with-preemptible", {keys.PREEMPTIBLE: "true"}),
        a_pod("is-a-victim", {keys.SOFT_EVICTION: "requested"}),
        a_pod("with-a-checkpoint", annotations={keys.CHECKPOINT: "auto"}),
        a_pod("with-a-hint", annotations={keys.CHECKPOINT_HINT: "annotation:"}),
    )
}
"""Each pod states one thing for which a scheduler's deletion of it is reviewed."""
GOING = a_pod("going", {keys.PREEMPTION_CLASS: "3"}, finalizers=["example.com/hold"])

SCHEDULERS = ("system:kube-scheduler", "system:serviceaccount:reprieve-system:reprieve-scheduler")
OPERATOR = "system:serviceaccount:reprieve-system:reprieve-operator"
CONTROLLERS = (
    "node-controller",
    "taint-eviction-controller",
    "pod-garbage-collector",
    "generic-garbage-collector",
    "namespace-controller",
    "replicaset-controller",
    "job-controller",
)
NOT_SCHEDULERS = (
    "jane",
    "system:node:kwok-0",
    OPERATOR,
    *(f"system:serviceaccount:kube-system:{name}" for name in CONTROLLERS),
)

STATUS = "--subresource=status"
MARK = {"annotations": {keys.KOORDINATOR_SOFT_EVICTION: "true"}}
CLASS = {"labels": {keys.PREEMPTION_CLASS: "2"}}
LEDGER = {"annotations": {keys.LEDGER: "{}"}}
TYPO = "reprieve.dev/checkpoint-hnt"

CALLED_FOR = {
    "a class": ("pod", "old", CLASS),
    "a class, through the status": ("pod", "old", CLASS, STATUS),
    "a checkpoint hint": ("pod", "old", {"annotations": {keys.CHECKPOINT_HINT: "annotation:"}}),
    "a toleration, which belongs on a PriorityClass": (
        "pod",
        "old",
        {"annotations": {TOLERATION: "60"}},
    ),
    "a gang": ("pod", "old", {"labels": {keys.POD_GROUP: "train"}}),
    "a gang's size": ("pod", "old", {"annotations": {keys.KOORDINATOR_MIN_AVAILABLE: "2"}}),
    "a quota": ("pod", "old", {"labels": {keys.QUOTA_NAME: "gpu"}}),
    "a misspelled key of ours": ("pod", "old", {"annotations": {TYPO: "annotation:"}}),
    "a misspelled key of Koordinator's quotas": (
        "pod",
        "old",
        {"labels": {"quota.scheduling.koordinator.sh/preemptable": "true"}},
    ),
    "more labels than an expression goes through": (
        "pod",
        "old",
        {"labels": {f"example.com/{number}": "" for number in range(251)}},
    ),
    "a class as an annotation": ("pod", "old", {"annotations": {keys.PREEMPTION_CLASS: "2"}}),
    "a deployment's own labels, which its pods do not get": (
        "deployment",
        "old",
        {"labels": {keys.PREEMPTION_CLASS: "2"}},
    ),
    "a misspelled key of a namespace": (
        "namespace",
        NAMESPACE,
        {"annotations": {"reprieve.dev/default-class": "2"}},
    ),
    "an earlier ReplicaSet's ledger on a deployment": ("deployment", "old", LEDGER),
    "such a ledger, through the status": ("deployment", "old", LEDGER, STATUS),
    "the time of its checkpoint": (
        "deployment",
        "old",
        {"annotations": {keys.LAST_CHECKPOINT_AT: "2026-11-21T12:00:00Z"}},
    ),
    "a mark in Koordinator's dialect": ("pod", "old", MARK),
    "a mark, through the status": ("pod", "old", MARK, STATUS),
    "a namespace's policy": (
        "namespace",
        NAMESPACE,
        {"annotations": {keys.WORKLOAD_TYPE: "service"}},
    ),
}
NOT_CALLED_FOR = {
    "a label": ("pod", "old", {"labels": {"team": "research"}}),
    "a finalizer": ("pod", "old", {"finalizers": ["example.com/hold"]}),
    "a Job's name, whose pods are all of one template": (
        "pod",
        "old",
        {"labels": {keys.JOB: "train"}},
    ),
    "our own label": ("pod", "victim", {"labels": {keys.SOFT_EVICTION: "hinted"}}),
    "our own state": ("pod", "victim", {"annotations": {keys.EVICTION: "{}"}}),
    "what a workload answers": ("pod", "victim", {"annotations": {keys.CHECKPOINT_ANSWER: "{}"}}),
    "another key of Koordinator's": (
        "pod",
        "old",
        {"annotations": {"scheduling.koordinator.sh/device-allocated": "{}"}},
    ),
    "our own ledger": ("replicaset", "owner", {"labels": {keys.LEDGER: "true"}, **LEDGER}),
    "a deployment's own labels of others": ("deployment", "old", {"labels": {"team": "research"}}),
    "a namespace's labels": ("namespace", NAMESPACE, {"labels": {"team": "research"}}),
}


@pytest.mark.parametrize("what", CALLED_FOR)
def test_a_change_that_a_rule_reads_is_reviewed(kubectl: Any, what: str) -> None:
    done = change(kubectl, *CALLED_FOR[what])
    assert CALL_FAILED in done.output


@pytest.mark.parametrize("what", NOT_CALLED_FOR)
def test_a_change_that_no_rule_reads_costs_no_call(kubectl: Any, what: str) -> None:
    done = change(kubectl, *NOT_CALLED_FOR[what])
    assert done.status == 0, done.output


def test_a_kubelets_status_costs_no_call(kubectl: Any) -> None:
    done = change(kubectl, "pod", "old", {}, STATUS, status={"message": "as a kubelet"})
    assert done.status == 0, done.output


def test_scaling_costs_no_call_where_no_quota_counts_it(kubectl: Any) -> None:
    done = change(kubectl, "deployment", "old", {}, spec={"replicas": 3})
    assert done.status == 0, done.output
    counted = change(kubectl, "deployment", "counted", {}, spec={"replicas": 3})
    assert CALL_FAILED in counted.output
    relabelled = change(kubectl, "deployment", "counted", {"labels": {"team": "research"}})
    assert relabelled.status == 0, relabelled.output


def test_a_template_is_reviewed_only_if_it_has_a_preemption_key(kubectl: Any) -> None:
    for said in ({keys.PREEMPTION_CLASS: "2"}, {keys.POD_GROUP: "train"}, {TYPO: "x"}):
        assert CALL_FAILED in create(kubectl, a_deployment("new", said)).output
    silent = create(kubectl, a_deployment("new", {}))
    assert silent.status == 0, silent.output


NODE_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": keys.HOME_NAMESPACE, "operator": "Exists"}]}
        ]
    }
}


def test_a_template_that_may_run_on_borrowed_nodes_is_reviewed(kubectl: Any) -> None:
    key = keys.HOME_NAMESPACE
    asks: list[tuple[str, Any]] = [
        ("nodeSelector", {key: "lender"}),
        ("tolerations", [{"key": key, "operator": "Exists"}]),
        # Every taint.
        ("tolerations", [{"operator": "Exists"}]),
        ("affinity", {"nodeAffinity": NODE_AFFINITY}),
    ]
    for field, value in asks:
        asking = a_deployment("new", {})
        asking["spec"]["template"]["spec"] = {**asking["spec"]["template"]["spec"], field: value}
        assert CALL_FAILED in create(kubectl, asking).output, field


LATER = {
    "a toleration": ("old", "tolerations/-", {"key": keys.HOME_NAMESPACE, "operator": "Exists"}),
    "a selector": ("gated", "nodeSelector", {keys.HOME_NAMESPACE: "lender"}),
    "an affinity": ("gated", "affinity", {"nodeAffinity": NODE_AFFINITY}),
}


AS_A_QUEUE_DOES = {
    "a toleration": ("old", "tolerations/-", {"key": "gpu", "operator": "Exists"}),
    "a selector": ("gated", "nodeSelector", {"pool": "gpu"}),
}


def add(kubectl: Any, name: str, field: str, value: Any) -> Done:
    patch = json.dumps([{"op": "add", "path": f"/spec/{field}", "value": value}])
    changing = ("patch", "-n", NAMESPACE, "pod", name, "--dry-run=server", "--type=json")
    return kubectl.run(*changing, "-p", patch)


@pytest.mark.parametrize(("name", "field", "value"), LATER.values(), ids=LATER)
def test_a_pod_that_asks_for_borrowed_nodes_later_is_reviewed(
    kubectl: Any, name: str, field: str, value: Any
) -> None:
    assert CALL_FAILED in add(kubectl, name, field, value).output


@pytest.mark.parametrize(("name", "field", "value"), AS_A_QUEUE_DOES.values(), ids=AS_A_QUEUE_DOES)
def test_a_pod_that_a_queue_gives_its_nodes_costs_no_call(
    kubectl: Any, name: str, field: str, value: Any
) -> None:
    done = add(kubectl, name, field, value)
    assert done.status == 0, done.output


def test_a_template_is_not_reviewed_again_as_a_deployments_replicaset(kubectl: Any) -> None:
    labels = {keys.PREEMPTION_CLASS: "2"}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "old",
        "uid": "0",
        "controller": True,
    }
    assert CALL_FAILED in create(kubectl, a_deployment("new", labels, "ReplicaSet")).output
    owned = a_deployment("new", labels, "ReplicaSet", ownerReferences=[owner])
    made = create(kubectl, owned, NAMESPACE, f"--as={controllers.OF_DEPLOYMENTS[0]}")
    assert made.status == 0, made.output
    # Any user can write an owner reference.
    assert CALL_FAILED in create(kubectl, owned).output


def test_a_priority_class_is_reviewed_if_it_has_a_preemption_key(kubectl: Any) -> None:
    for key in (TOLERATION, f"{keys.TOLERATION_PREFIX}toleration-second"):
        assert CALL_FAILED in create(kubectl, a_priority_class({key: "60"})).output
    silent = create(kubectl, a_priority_class({}))
    assert silent.status == 0, silent.output


def test_with_enforcement_off_by_label_no_webhook_is_called(kubectl: Any) -> None:
    assert CALL_FAILED in create(kubectl, a_pod("new")).output
    exempt = create(kubectl, a_pod("new", {keys.PREEMPTION_CLASS: "99"}), EXEMPT)
    assert exempt.status == 0, exempt.output


@pytest.mark.parametrize("pod", SPEAKING)
def test_a_schedulers_deletion_of_a_pod_with_a_preemption_key_is_reviewed(
    kubectl: Any, pod: str
) -> None:
    for scheduler in SCHEDULERS:
        assert CALL_FAILED in delete(kubectl, scheduler, pod).output


@pytest.mark.parametrize(
    ("pod", "namespace"), [("old", NAMESPACE), ("going", NAMESPACE), ("with-a-class", EXEMPT)]
)
def test_a_schedulers_deletion_of_another_pod_costs_no_call(
    kubectl: Any, pod: str, namespace: str
) -> None:
    done = delete(kubectl, SCHEDULERS[0], pod, namespace=namespace)
    assert done.status == 0, done.output


@pytest.mark.parametrize("user", NOT_SCHEDULERS)
def test_a_deletion_by_other_users_costs_no_call(kubectl: Any, user: str) -> None:
    done = delete(kubectl, user, *SPEAKING)
    assert done.status == 0, done.output


@pytest.mark.parametrize("pod", ["old", "with-a-hint"])
def test_an_eviction_of_any_pod_is_reviewed(kubectl: Any, pod: str) -> None:
    assert CALL_FAILED in evict(kubectl, "jane", pod).output


@pytest.mark.parametrize(("user", "namespace"), [(OPERATOR, NAMESPACE), ("jane", EXEMPT)])
def test_evictions_by_the_operator_or_without_enforcement_cost_no_call(
    kubectl: Any, user: str, namespace: str
) -> None:
    done = evict(kubectl, user, "with-a-class", namespace)
    assert done.status == 0, done.output

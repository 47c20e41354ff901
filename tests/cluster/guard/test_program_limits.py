"""A stolen token of one of our programs changes no more than the program does.

The real tokens of the ServiceAccounts, with their roles and the policies of the base. To show that
the policies refuse and not RBAC, each account is a cluster administrator as well, and the refusal
is in the policies' words.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest

from realcluster.client.kubectl import Kubectl
from realcluster.client.objects import Client, RefusedError
from realcluster.install import BASE
from reprieve_policy import keys
from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.cluster.impersonated_users import RBAC

pytestmark = pytest.mark.cluster

TEAM, HOME, KUBE_SYSTEM = "program-limits", "reprieve-system", "kube-system"
CONFIGURATION, SECRET = "reprieve-webhooks", "reprieve-webhook-certs"
VALIDATING, MUTATING = "validatingwebhookconfiguration", "mutatingwebhookconfiguration"
GUARD = "/guard/0123456789abcdef0123456789abcdef"
DENIED = "denied request: "
CONTAINER = {"name": "main", "image": "none"}

Object = dict[str, Any]


@dataclass(frozen=True)
class Account:
    """One of our programs' own tokens."""

    client: Client
    kubectl: Kubectl

    def refusal(self, kind: str, name: str, patch: Object, **where: str) -> str:
        """Patch an object; return why the policy refused that, empty if it was allowed."""
        return refusal_of(lambda: self.client.patch(kind, name, patch, **where))

    def creation_refusal(self, *documents: Object) -> str:
        return refusal_of(lambda: self.client.create(*documents))


def refusal_of(call: Callable[[], None]) -> str:
    """Return why a policy refused the call, empty if it was allowed."""
    try:
        call()
    except RefusedError as refused:
        if refused.status != HTTPStatus.FORBIDDEN or DENIED not in str(refused):
            raise
        return str(refused).partition(DENIED)[2]
    return ""


def metadata(part: str, key: str, value: object) -> Object:
    return {"metadata": {part: {key: value}}}


def a_pod(name: str, namespace: str = TEAM, spec: Object | None = None, **other: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **other},
        "spec": {"schedulerName": "nobody", "containers": [CONTAINER], **(spec or {})},
    }


def a_controller(kind: str, name: str, namespace: str = TEAM) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def a_job() -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": TEAM},
        "spec": {"parallelism": 0, "template": template},
    }


def a_configuration(kind: str, name: str, path: str) -> Object:
    service = {"namespace": HOME, "name": "reprieve-webhooks", "path": path}
    webhook = {
        "name": "preemptions.reprieve.dev",
        "clientConfig": {"service": service},
        "objectSelector": {"matchLabels": {"reprieve.dev/test": "matches-no-object"}},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
        ],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [webhook],
    }


def admin_binding(account: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"test:{account}-is-admin"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": HOME}],
    }


@pytest.fixture(scope="module")
def objects(cluster: ClusterHandle) -> Iterator[ClusterHandle]:
    """Objects of a tenant, of kube-system and of the webhooks, and two accounts with all rights."""
    client = cluster.client
    cluster.kubectl.read("apply", "-f", BASE / "webhooks-rbac.yaml", "-f", BASE / "webhooks.yaml")
    cluster.kubectl.read("delete", "deployment,service,pdb", "-n", HOME, "--all", "--wait=false")
    made = (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        a_pod("pod"),
        a_pod(
            "gated",
            spec={"schedulingGates": [{"name": keys.GANG_GATE}, {"name": "own/gate"}]},
            labels={keys.GANG_GATE_LABEL: "waiting"},
        ),
        a_controller("StatefulSet", "set"),
        a_controller("ReplicaSet", "replicas"),
        a_controller("StatefulSet", "system", KUBE_SYSTEM),
        a_pod("system", KUBE_SYSTEM),
        a_job(),
        a_configuration("ValidatingWebhookConfiguration", CONFIGURATION, "/guard"),
        a_configuration("MutatingWebhookConfiguration", CONFIGURATION, "/mutate"),
        a_configuration("ValidatingWebhookConfiguration", "others", "/guard"),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password", "namespace": HOME}},
        admin_binding("reprieve-operator"),
        admin_binding("reprieve-webhooks"),
    )
    for document in made:
        client.create(document)
    yield cluster
    for document in reversed(made):
        kind, naming = document["kind"], document["metadata"]
        client.delete(kind, naming["name"], namespace=naming.get("namespace", ""))


def account_of(cluster: ClusterHandle, name: str) -> Account:
    kubeconfig = cluster.account_kubeconfig(name)
    account = Account(Client(kubeconfig), Kubectl(cluster.kubectl.program, kubeconfig))
    # Policies and bindings take effect a moment after they are created.
    probe = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"generateName": "probe-", "namespace": TEAM},
    }

    def is_limited() -> bool:
        with suppress(RefusedError):
            return bool(account.creation_refusal(probe))
        return False

    wait_for("the limits are in force", is_limited)
    return account


@pytest.fixture(scope="module")
def operator_account(objects: ClusterHandle) -> Account:
    return account_of(objects, "reprieve-operator")


@pytest.fixture(scope="module")
def webhooks_account(objects: ClusterHandle) -> Account:
    return account_of(objects, "reprieve-webhooks")


PRIVILEGED = {"containers": [CONTAINER | {"securityContext": {"privileged": True}}]}
TEMPLATE = {"spec": {"template": {"spec": {"containers": [CONTAINER | {"image": "evil"}]}}}}
OWN_FIELDS_ONLY = "Forbidden: the operator changes only its own keys"

ATTACKS: dict[str, tuple[str, str, Object, str, str]] = {
    "a StatefulSet of kube-system becomes privileged": (
        "statefulset",
        "system",
        {"spec": {"template": {"spec": PRIVILEGED}}},
        "",
        KUBE_SYSTEM,
    ),
    "a ledger in kube-system": (
        "statefulset",
        "system",
        metadata("annotations", keys.LEDGER, "{}"),
        "",
        KUBE_SYSTEM,
    ),
    "a mark in kube-system": (
        "pod",
        "system",
        metadata("labels", keys.SOFT_EVICTION, "evict"),
        "",
        KUBE_SYSTEM,
    ),
    "the image of a pod": (
        "pod",
        "pod",
        {"spec": {"containers": [CONTAINER | {"image": "evil"}]}},
        "",
        TEAM,
    ),
    "the image in a template": ("statefulset", "set", TEMPLATE, "", TEAM),
    "the replicas": ("statefulset", "set", {"spec": {"replicas": 9}}, "", TEAM),
    "another annotation of a pod": ("pod", "pod", metadata("annotations", "a/b", "c"), "", TEAM),
    "another annotation through the status": (
        "pod",
        "pod",
        metadata("annotations", "a/b", "c"),
        "status",
        TEAM,
    ),
    "another label of an owner": ("job", "job", metadata("labels", "a/b", "c"), "", TEAM),
    "the class of a pod": ("pod", "pod", metadata("labels", keys.PREEMPTION_CLASS, "0"), "", TEAM),
    "another finalizer": ("pod", "pod", {"metadata": {"finalizers": ["a/b"]}}, "", TEAM),
    "an owner": (
        "pod",
        "pod",
        {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
                ]
            }
        },
        "",
        TEAM,
    ),
    "another condition": (
        "pod",
        "pod",
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        "status",
        TEAM,
    ),
    "the address of a pod": (
        "pod",
        "pod",
        {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
        "status",
        TEAM,
    ),
    "another gate": (
        "pod",
        "gated",
        {"spec": {"schedulingGates": [{"name": keys.GANG_GATE}]}},
        "",
        TEAM,
    ),
    "the parallelism of a Job": ("job", "job", {"spec": {"parallelism": 9}}, "", TEAM),
    "a Namespace": ("namespace", TEAM, metadata("labels", "a/b", "c"), "", ""),
    "a role": ("clusterrole", "view", metadata("labels", "a/b", "c"), "", ""),
    "the webhooks' Secret": ("secret", SECRET, {"data": {"ca.key": "AA=="}}, "", HOME),
    "the limits' own operator role": ("clusterrole", "reprieve-operator", {"rules": []}, "", ""),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_operators_token_changes_nothing_but_what_the_operator_writes(
    operator_account: Account, attack: tuple[str, str, Object, str, str]
) -> None:
    kind, name, patch, subresource, namespace = attack
    reason = operator_account.refusal(
        kind, name, patch, subresource=subresource, namespace=namespace
    )
    assert "Forbidden: the operator" in reason or "pods of kube-system" in reason, reason


def test_a_refusal_names_the_fields(operator_account: Account) -> None:
    patch = {"metadata": {"annotations": {"a/b": "c"}}, **TEMPLATE}
    reason = operator_account.refusal("statefulset", "set", patch, namespace=TEAM)
    assert reason.startswith(f"metadata.annotations[a/b], spec.template: {OWN_FIELDS_ONLY}")


WRITES: dict[str, tuple[str, str, Object, str]] = {
    "state, request and finalizer": (
        "pod", "pod",
        {"metadata": {
            "labels": {keys.SOFT_EVICTION: "hinted"},
            "annotations": {
                keys.EVICTION: '{"v":1}', keys.CHECKPOINT_REQUEST: "{}",
                keys.LAST_CHECKPOINT_AT: "2026-11-21T12:00:00Z"},
            "finalizers": [keys.CLEANUP_FINALIZER]}}, ""),
    "the condition": (
        "pod", "pod",
        {"metadata": {"annotations": {keys.EVICTION: '{"v":1,"phase":"saved"}'}},
         "status": {"conditions": [
             {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByReprieve",
              "lastTransitionTime": "2026-11-21T12:00:00Z"}]}}, "status"),
    "the end": (
        "pod", "pod",
        {"metadata": {
            "labels": {keys.SOFT_EVICTION: None}, "annotations": {keys.EVICTION: None},
            "finalizers": []}}, ""),
    "a gang's release": (
        "pod", "gated",
        {"metadata": {"labels": {keys.GANG_GATE_LABEL: "released"},
                      "annotations": {keys.GANG_RELEASED_AT: "2026-11-21T12:00:00Z"}},
         "spec": {"schedulingGates": [{"name": "own/gate"}]}}, ""),
    "a Job's suspension with its ledger": (
        "job", "job",
        {"metadata": {"labels": {keys.SUSPENDED: "true", keys.LEDGER: "true"},
                      "annotations": {keys.SUSPENDED: "{}", keys.LEDGER: "{}"}},
         "spec": {"suspend": True}}, ""),
    "the ledger of a StatefulSet": (
        "statefulset", "set", metadata("annotations", keys.LEDGER, "{}"), ""),
    "the ledger of a ReplicaSet": (
        "replicaset", "replicas", metadata("labels", keys.LEDGER, "true"), ""),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_the_operator_may_write_what_it_writes(
    operator_account: Account, write: tuple[str, str, Object, str]
) -> None:
    kind, name, patch, subresource = write
    assert (
        operator_account.refusal(kind, name, patch, subresource=subresource, namespace=TEAM) == ""
    )


def replacement(name: str, namespace: str = TEAM, spec: Object | None = None) -> Object:
    return a_pod(name, namespace, spec, annotations={keys.REQUEUED_FROM: "a-uid"})


HOST_PATH = {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}
ADMIN_CAPABILITY = {
    "containers": [CONTAINER | {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]
}
CREATIONS: dict[str, Object] = {
    "a pod that replaces no other": a_pod("new"),
    "a pod in kube-system": replacement("new", KUBE_SYSTEM),
    "a pod beside the webhooks": replacement("new", HOME),
    "a pod on a chosen node": replacement("new", spec={"nodeName": "kwok-0"}),
    "a privileged pod": replacement("new", spec=PRIVILEGED),
    "a pod with the node's files": replacement("new", spec=HOST_PATH),
    "a pod in the node's network": replacement("new", spec={"hostNetwork": True}),
    "a pod with the node's capabilities": replacement("new", spec=ADMIN_CAPABILITY),
    "a StatefulSet": a_controller("StatefulSet", "new"),
    "another Lease": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                      "metadata": {"name": "kube-scheduler", "namespace": HOME}},
    "a Lease in kube-system": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                               "metadata": {"name": "reprieve-operator", "namespace": KUBE_SYSTEM}},
    "a record elsewhere": {"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
                           "metadata": {"name": "bare-pod-u", "namespace": TEAM}},
    "an admin": admin_binding("thief"),
}  # fmt: skip


@pytest.mark.parametrize("document", CREATIONS.values(), ids=CREATIONS)
def test_the_operators_token_creates_nothing_else(
    operator_account: Account, document: Object
) -> None:
    reason = operator_account.creation_refusal(document)
    assert "Forbidden: the operator" in reason, reason


def test_the_operator_may_create_a_replacement_a_record_and_an_event(
    operator_account: Account, objects: ClusterHandle
) -> None:
    revision = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
                "metadata": {"name": "bare-pod-u", "namespace": HOME}}  # fmt: skip
    event = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "pod.1", "namespace": KUBE_SYSTEM},
        "eventTime": "2026-11-21T12:00:00.000000Z", "action": "Evict", "reason": "Test",
        "reportingController": "reprieve.dev/operator", "reportingInstance": "test",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "system",
                      "namespace": KUBE_SYSTEM},
        "type": "Normal", "note": "test",
    }  # fmt: skip
    assert operator_account.creation_refusal(replacement("again"), revision, event) == ""
    for kind, name, namespace in (
        ("pod", "again", TEAM),
        ("controllerrevision", "bare-pod-u", HOME),
    ):
        operator_account.client.delete(kind, name, namespace=namespace)
    objects.client.delete("event", "pod.1", namespace=KUBE_SYSTEM)


def test_where_a_namespace_says_privileged_the_operator_recreates_such_a_pod(
    operator_account: Account, objects: ClusterHandle
) -> None:
    label = "pod-security.kubernetes.io/enforce"
    objects.client.patch("namespace", TEAM, metadata("labels", label, "privileged"))
    document = replacement("privileged", spec=PRIVILEGED)
    wait_for("the label counts", lambda: operator_account.creation_refusal(document) == "")
    objects.client.patch("namespace", TEAM, metadata("labels", label, None))


def test_the_operators_token_deletes_no_pod_of_kube_system_and_no_other_object(
    operator_account: Account,
) -> None:
    for kind, name, namespace in (
        ("pod", "system", KUBE_SYSTEM),
        ("statefulset", "set", TEAM),
        ("namespace", TEAM, ""),
    ):
        delete = partial(operator_account.client.delete, kind, name, namespace=namespace)
        assert "Forbidden: the operator" in refusal_of(delete)


SHELLS = {"a shell": ["sh"], "another command": ["/bin/sh", "-c", "kill -USR1 1; id"]}


@pytest.mark.parametrize("command", SHELLS.values(), ids=SHELLS)
def test_the_operators_token_enters_no_container(
    operator_account: Account, command: list[str]
) -> None:
    done = operator_account.kubectl.run("exec", "-n", TEAM, "pod", "-c", "main", "--", *command)
    assert "the operator runs nothing in a container but kill" in done.output
    signal = ("kill", "-USR1", "1")
    done = operator_account.kubectl.run("exec", "-n", TEAM, "pod", "-c", "main", "--", *signal)
    # The pod has no node: the request got past admission.
    assert "does not have a host assigned" in done.output


def test_a_mark_in_kube_system_is_refused_to_every_user(objects: ClusterHandle) -> None:
    mark = metadata("labels", keys.SOFT_EVICTION, "requested")
    reason = refusal_of(lambda: objects.client.patch("pod", "system", mark, namespace=KUBE_SYSTEM))
    assert reason == (
        f"metadata.labels[{keys.SOFT_EVICTION}]: Forbidden: pods of kube-system are not "
        "soft-evicted: Reprieve writes nothing there"
    )


CONFIGURATION_ATTACKS = {
    "the rules": (VALIDATING, "/webhooks/0/rules/0/resources", ["secrets"]),
    "the service": (VALIDATING, "/webhooks/0/clientConfig/service/name", "thief"),
    "a URL": (VALIDATING, "/webhooks/0/clientConfig", {"url": "https://thief.example/guard"}),
    "the failure policy": (VALIDATING, "/webhooks/0/failurePolicy", "Fail"),
    "the selector": (VALIDATING, "/webhooks/0/objectSelector", {}),
    "another path than the guard's": (VALIDATING, "/webhooks/0/clientConfig/service/path", "/x"),
    "the path of another webhook": (MUTATING, "/webhooks/0/clientConfig/service/path", GUARD),
    "no webhook": (VALIDATING, "/webhooks", []),
    "a label": (MUTATING, "/metadata/labels", {"a": "b"}),
}


def patch_json(account: Account, kind: str, name: str, path: str, value: object) -> str:
    patch = json.dumps([{"op": "add", "path": path, "value": value}])
    return account.kubectl.run("patch", kind, name, "--type=json", "-p", patch).output


@pytest.mark.parametrize("attack", CONFIGURATION_ATTACKS.values(), ids=CONFIGURATION_ATTACKS)
def test_the_webhooks_token_changes_nothing_else_of_their_configurations(
    webhooks_account: Account, attack: tuple[str, str, object]
) -> None:
    kind, path, value = attack
    output = patch_json(webhooks_account, kind, CONFIGURATION, path, value)
    assert "Forbidden: the webhooks change only" in output, output


def test_the_webhooks_may_write_their_ca_and_the_path_of_the_guard(
    webhooks_account: Account, objects: ClusterHandle
) -> None:
    path = "/webhooks/0/clientConfig/service/path"
    # An API server accepts only a certificate.
    ca = json.loads(objects.cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    bundle = ca["certificate-authority-data"]
    for kind, where, value in (
        (VALIDATING, path, GUARD),
        (VALIDATING, path, GUARD.replace("0", "f")),
        (VALIDATING, "/webhooks/0/clientConfig/caBundle", bundle),
        (MUTATING, "/webhooks/0/clientConfig/caBundle", bundle),
    ):
        output = patch_json(webhooks_account, kind, CONFIGURATION, where, value)
        assert "patched" in output, output
    assert (
        webhooks_account.refusal(
            "secret", SECRET, {"data": {"ca.crt": "AA==", "ca.key": "AA=="}}, namespace=HOME
        )
        == ""
    )


OTHERS = {
    "another configuration": (VALIDATING, "others", metadata("labels", "a", "b"), ""),
    "another Secret": ("secret", "password", {"data": {"ca.crt": "AA=="}}, HOME),
    "another key of the Secret": ("secret", SECRET, {"data": {"other": "AA=="}}, HOME),
    "a StatefulSet": ("statefulset", "set", TEMPLATE, TEAM),
    "a pod of kube-system": (
        "pod", "system", metadata("annotations", keys.REFUSED_SINCE, "x"), KUBE_SYSTEM),
    "a policy of the base": (
        "clusterrole", "reprieve-webhooks", {"rules": []}, ""),
}  # fmt: skip


@pytest.mark.parametrize("attack", OTHERS.values(), ids=OTHERS)
def test_the_webhooks_token_changes_no_other_object(
    webhooks_account: Account, attack: tuple[str, str, Object, str]
) -> None:
    kind, name, patch, namespace = attack
    reason = webhooks_account.refusal(kind, name, patch, namespace=namespace)
    assert "Forbidden: the webhooks" in reason, reason


def test_the_webhooks_token_reads_no_token(webhooks_account: Account) -> None:
    reason = refusal_of(lambda: webhooks_account.client.create_token("reprieve-operator", HOME))
    assert "Forbidden: the webhooks do not do this: CREATE serviceaccounts/token" in reason

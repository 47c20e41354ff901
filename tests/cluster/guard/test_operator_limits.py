"""A stolen token of the operator's account changes no more than the operator does."""

from collections.abc import Iterator
from functools import partial

import pytest

from realcluster.client.objects import Client
from reprieve_policy import keys
from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.cluster.program_accounts import (
    CONTAINER,
    HOME,
    KUBE_SYSTEM,
    TEAM,
    TEMPLATE,
    Account,
    Object,
    a_controller,
    a_job,
    a_pod,
    admin_binding,
    metadata,
    refusal_of,
    stolen_account,
)

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def thief(cluster: ClusterHandle) -> Iterator[Account]:
    """The operator's account, beside objects of a tenant and of kube-system."""
    gates = [{"name": keys.GANG_GATE}, {"name": "own/gate"}]
    gated = a_pod(
        "gated", spec={"schedulingGates": gates}, labels={keys.GANG_GATE_LABEL: "waiting"}
    )
    with stolen_account(
        cluster,
        "reprieve-operator",
        a_pod("pod"),
        gated,
        a_controller("StatefulSet", "set"),
        a_controller("ReplicaSet", "replicas"),
        a_controller("StatefulSet", "system", KUBE_SYSTEM),
        a_pod("system", KUBE_SYSTEM),
        a_job(),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password", "namespace": TEAM}},
    ) as account:
        yield account


PRIVILEGED = {"containers": [CONTAINER | {"securityContext": {"privileged": True}}]}
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
    "a Secret": ("secret", "password", {"data": {"ca.key": "AA=="}}, "", TEAM),
    "the role of the operator": ("clusterrole", "reprieve-operator", {"rules": []}, "", ""),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_operators_token_changes_nothing_but_what_the_operator_writes(
    thief: Account, attack: tuple[str, str, Object, str, str]
) -> None:
    kind, name, patch, subresource, namespace = attack
    reason = thief.refusal(kind, name, patch, subresource=subresource, namespace=namespace)
    assert "Forbidden: the operator" in reason or "pods of kube-system" in reason, reason


def test_a_refusal_names_the_fields(thief: Account) -> None:
    patch = {"metadata": {"annotations": {"a/b": "c"}}, **TEMPLATE}
    reason = thief.refusal("statefulset", "set", patch, namespace=TEAM)
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
    thief: Account, write: tuple[str, str, Object, str]
) -> None:
    kind, name, patch, subresource = write
    assert thief.refusal(kind, name, patch, subresource=subresource, namespace=TEAM) == ""


def replacement(name: str, namespace: str = TEAM, spec: Object | None = None) -> Object:
    return a_pod(name, namespace, spec, annotations={keys.REQUEUED_FROM: "a-uid"})


def a_record(namespace: str) -> Object:
    """Return what the operator stores of a bare pod."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "bare-pod-u", "namespace": namespace},
        "revision": 1,
        "data": {"pod": {}},
    }


HOST_PATH = {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}
RESTRICTED = {
    # What Pod Security asks in that Namespace.
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "containers": [
        CONTAINER
        | {
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
        }
    ],
}
HOST_PORT = {"containers": [CONTAINER | {"ports": [{"containerPort": 80, "hostPort": 443}]}]}
ADMIN_CAPABILITY = {
    "containers": [CONTAINER | {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]
}
CREATIONS: dict[str, Object] = {
    "a pod that replaces no other": a_pod("new"),
    "a pod in kube-system": replacement("new", KUBE_SYSTEM),
    "a pod beside the webhooks": replacement("new", HOME, RESTRICTED),
    "a pod on a chosen node": replacement("new", spec={"nodeName": "kwok-0"}),
    "a privileged pod": replacement("new", spec=PRIVILEGED),
    "a pod with the node's files": replacement("new", spec=HOST_PATH),
    "a pod in the node's network": replacement("new", spec={"hostNetwork": True}),
    "a pod with a port of the node": replacement("new", spec=HOST_PORT),
    "a pod with the node's capabilities": replacement("new", spec=ADMIN_CAPABILITY),
    "a StatefulSet": a_controller("StatefulSet", "new"),
    "another Lease": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                      "metadata": {"name": "kube-scheduler", "namespace": HOME}},
    "a Lease in kube-system": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                               "metadata": {"name": "reprieve-operator", "namespace": KUBE_SYSTEM}},
    "a record elsewhere": a_record(TEAM),
    "an admin": admin_binding("thief"),
}  # fmt: skip


@pytest.mark.parametrize("document", CREATIONS.values(), ids=CREATIONS)
def test_the_operators_token_creates_nothing_else(thief: Account, document: Object) -> None:
    reason = thief.creation_refusal(document)
    assert "Forbidden: the operator" in reason, reason


def test_the_operator_may_create_a_replacement_a_record_and_an_event(
    thief: Account, cluster: ClusterHandle
) -> None:
    event = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "pod.1", "namespace": KUBE_SYSTEM},
        "eventTime": "2026-11-21T12:00:00.000000Z", "action": "Evict", "reason": "Test",
        "reportingController": "reprieve.dev/operator", "reportingInstance": "test",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "system",
                      "namespace": KUBE_SYSTEM},
        "type": "Normal", "note": "test",
    }  # fmt: skip
    last = {"count": 90, "lastObservedTime": "2026-11-21T12:00:10.000000Z"}
    series = event | {"metadata": {"name": "pods.1", "namespace": KUBE_SYSTEM}, "series": last}
    assert thief.creation_refusal(replacement("again"), a_record(HOME), event, series) == ""
    for kind, name, namespace in (
        ("pod", "again", TEAM),
        ("controllerrevision", "bare-pod-u", HOME),
    ):
        thief.client.delete(kind, name, namespace=namespace)
    shown = cluster.kubectl.read("get", "event", "pods.1", "-n", KUBE_SYSTEM, "-o", "wide")
    assert " 90 " in shown, "kubectl shows how many the series stands for"
    for name in ("pod.1", "pods.1"):
        cluster.client.delete("event", name, namespace=KUBE_SYSTEM)


def test_where_a_namespace_says_privileged_the_operator_recreates_such_a_pod(
    thief: Account, cluster: ClusterHandle
) -> None:
    label = "pod-security.kubernetes.io/enforce"
    cluster.client.patch("namespace", TEAM, metadata("labels", label, "privileged"))
    document = replacement("privileged", spec=PRIVILEGED)
    wait_for("the label counts", lambda: thief.creation_refusal(document) == "")
    cluster.client.patch("namespace", TEAM, metadata("labels", label, None))


def test_the_operators_token_deletes_no_pod_of_kube_system_and_no_other_object(
    thief: Account,
) -> None:
    for kind, name, namespace in (
        ("pod", "system", KUBE_SYSTEM),
        ("statefulset", "set", TEAM),
        ("namespace", TEAM, ""),
    ):
        delete = partial(thief.client.delete, kind, name, namespace=namespace)
        assert "Forbidden: the operator" in refusal_of(delete)


LABELLED = '{"metadata":{"labels":{"a":"b"}}}'
SUBRESOURCES: dict[str, tuple[str, ...]] = {
    "UPDATE statefulsets.apps/scale": ("scale", "statefulset", "set", "-n", TEAM, "--replicas=3"),
    "UPDATE pods/resize": (
        "patch", "pod", "pod", "-n", TEAM, "--subresource=resize", "-p", LABELLED),
    "UPDATE pods/ephemeralcontainers": (
        "debug", "pod", "-n", TEAM, "--image=evil", "--attach=false", "-q"),
    "CONNECT pods/proxy": ("get", "--raw", f"/api/v1/namespaces/{TEAM}/pods/pod/proxy/"),
    "CREATE serviceaccounts/token": ("create", "token", "default", "-n", TEAM),
}  # fmt: skip


@pytest.mark.parametrize("write", SUBRESOURCES)
def test_the_operators_token_writes_to_no_other_subresource(thief: Account, write: str) -> None:
    done = thief.kubectl.run(*SUBRESOURCES[write])
    assert f"Forbidden: the operator does not do this: {write}" in done.output


SHELLS = {"a shell": ["sh"], "another command": ["/bin/sh", "-c", "kill -USR1 1; id"]}


@pytest.mark.parametrize("command", SHELLS.values(), ids=SHELLS)
def test_the_operators_token_enters_no_container(thief: Account, command: list[str]) -> None:
    done = thief.kubectl.run("exec", "-n", TEAM, "pod", "-c", "main", "--", *command)
    assert "the operator runs nothing in a container but kill" in done.output
    signal = ("kill", "-USR1", "1")
    done = thief.kubectl.run("exec", "-n", TEAM, "pod", "-c", "main", "--", *signal)
    # The pod has no node: the request got past admission.
    assert "does not have a host assigned" in done.output


@pytest.mark.usefixtures("thief")
def test_a_mark_in_kube_system_is_refused_to_every_user(cluster: ClusterHandle) -> None:
    mark = metadata("labels", keys.SOFT_EVICTION, "requested")
    reason = refusal_of(lambda: cluster.client.patch("pod", "system", mark, namespace=KUBE_SYSTEM))
    assert reason == (
        f"metadata.labels[{keys.SOFT_EVICTION}]: Forbidden: pods of kube-system are not "
        "soft-evicted: Reprieve writes nothing there"
    )


@pytest.mark.usefixtures("thief")
def test_the_limits_follow_an_account_that_an_overlay_renames_and_moves(
    cluster: ClusterHandle,
) -> None:
    renamed = "team-reprieve-operator"
    account = {"kind": "ServiceAccount", "name": renamed, "namespace": TEAM}
    binding = admin_binding(renamed) | {"subjects": [account]}
    cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": renamed, "namespace": TEAM},
        },
        binding,
    )
    try:
        own = Client(cluster.account_kubeconfig(renamed, TEAM))
        wait_for(
            "the binding",
            lambda: (
                "the operator changes only its own keys"
                in refusal_of(lambda: own.patch("statefulset", "set", TEMPLATE, namespace=TEAM))
            ),
        )
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        naming = {"name": "reprieve-operator"}
        elsewhere = lease | {"metadata": {**naming, "namespace": "default"}}
        assert "writes only its own Lease" in refusal_of(lambda: own.create(elsewhere))
        assert not refusal_of(
            lambda: own.create(lease | {"metadata": {**naming, "namespace": TEAM}})
        )
        cluster.client.delete("lease", "reprieve-operator", namespace=TEAM)
    finally:
        cluster.client.delete("clusterrolebinding", binding["metadata"]["name"])
        cluster.client.delete("serviceaccount", renamed, namespace=TEAM)

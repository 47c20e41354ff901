"""Victims on lost nodes: one DELETE with grace 0, where an admin allows it and grants the reads.

Elsewhere the operator never does that.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reprieve_testing import manifests
from reprieve_testing.cluster.handle import ClusterHandle, Program, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

HELD = ["example.com/other"]
GRANT = str(manifests.EXAMPLES / "lost-nodes.yaml")
OPERATOR = "system:serviceaccount:reprieve-system:reprieve-operator"
OUT_OF_SERVICE, UNREACHABLE = "node.kubernetes.io/out-of-service", "node.kubernetes.io/unreachable"


@pytest.fixture(scope="module")
def operator(cluster: ClusterHandle) -> Iterator[Program]:
    """One that holds its victims for longer than any of these tests takes."""
    cluster.set_policy(forceDeleteOnLostNodes="true")
    program = cluster.start_operator(cleanup_ceiling_seconds=600)
    program.wait_leading()
    yield program
    assert program.stop() == 0
    cluster.set_policy()


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("lost") as name:
        yield name


@pytest.fixture
def granted(cluster: ClusterHandle) -> Iterator[None]:
    cluster.kubectl.read("apply", "-f", GRANT)
    wait_for("the right", lambda: may_read_nodes(cluster))
    yield
    cluster.kubectl.read("delete", "-f", GRANT)
    wait_for("no right", lambda: not may_read_nodes(cluster))


def may_read_nodes(cluster: ClusterHandle) -> bool:
    return cluster.kubectl.run("auth", "can-i", "get", "nodes", f"--as={OPERATOR}").status == 0


@contextmanager
def a_node(
    cluster: ClusterHandle, name: str, *taints: str, ready: str = "Unknown"
) -> Iterator[None]:
    """Create a node without a kubelet."""
    spec = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}
    cluster.kubectl.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
    )
    condition = {"type": "Ready", "status": ready, "reason": "Test", "message": ""}
    patch(cluster, "node", name, {"status": {"conditions": [condition]}}, "--subresource=status")
    try:
        yield
    finally:
        cluster.kubectl.read("delete", "node", name, "--ignore-not-found")


def patch(cluster: ClusterHandle, kind: str, name: str, change: object, *words: str) -> None:
    cluster.kubectl.read("patch", kind, name, *words, "--type=strategic", "-p", json.dumps(change))


def a_pod_on(cluster: ClusterHandle, namespace: str, node: str, **annotations: str) -> None:
    """Create a pod, and report it as running in its kubelet's place."""
    metadata = {
        "name": "victim",
        "namespace": namespace,
        "finalizers": HELD,
        "annotations": annotations,
    }
    main = {"name": "main", "image": "none"}
    spec = {"nodeName": node, "containers": [main], "tolerations": [{"operator": "Exists"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.kubectl.read("create", "-f", "-", stdin=json.dumps(pod))
    runs = {**main, "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
    status = {"status": {"phase": "Running", "containerStatuses": [runs]}}
    patch(cluster, "pod", "victim", status, "-n", namespace, "--subresource=status")


def deleted(cluster: ClusterHandle, namespace: str) -> Any:
    """Return the victim once it is deleted."""

    def find() -> Any:
        pod = cluster.pod(namespace, "victim")
        return pod if pod and pod["metadata"].get("deletionTimestamp") else None

    return wait_for("the DELETE", find)


def deletions(cluster: ClusterHandle, namespace: str) -> list[int]:
    """Return the responses to the operator's DELETEs."""
    return [entry.status for entry in cluster.audit(namespace, "victim") if entry.what == "delete"]


@pytest.mark.usefixtures("granted")
def test_a_victim_whose_node_is_lost_while_it_saves_is_deleted_with_grace_0_once(
    cluster: ClusterHandle, namespace: str
) -> None:
    with a_node(cluster, namespace):
        a_pod_on(cluster, namespace, namespace, **{"reprieve.dev/checkpoint-hint": "annotation:"})
        cluster.mark(namespace, "victim")
        hinted = cluster.wait_phase(namespace, "victim", "hinted")
    request = json.loads(hinted["metadata"]["annotations"]["reprieve.dev/checkpoint-request"])
    answer = json.dumps({"state": "saved", "id": request["id"]})
    cluster.annotate(namespace, "victim", f"reprieve.dev/checkpoint-answer={answer}")
    pod = deleted(cluster, namespace)
    assert json.loads(pod["metadata"]["annotations"]["reprieve.dev/eviction"])["graceSeconds"] == 0
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 0
    wait_for(
        "let go", lambda: (cluster.pod(namespace, "victim") or {})["metadata"]["finalizers"] == HELD
    )
    assert deletions(cluster, namespace) == [200]


@pytest.mark.usefixtures("granted")
def test_a_victim_on_a_node_that_an_admin_tainted_out_of_service_is_deleted_with_grace_0_once(
    cluster: ClusterHandle, namespace: str
) -> None:
    with a_node(cluster, namespace, OUT_OF_SERVICE):
        a_pod_on(cluster, namespace, namespace)
        cluster.mark(namespace, "victim")
        assert deleted(cluster, namespace)["metadata"]["deletionGracePeriodSeconds"] == 0
        wait_for(
            "Event", lambda: "SoftEvictionDeleting" in cluster.event_reasons(namespace, "victim")
        )
    assert deletions(cluster, namespace) == [200]


@pytest.mark.usefixtures("granted")
def test_a_victim_on_a_node_that_is_only_unreachable_keeps_its_grace_period(
    cluster: ClusterHandle, namespace: str
) -> None:
    with a_node(cluster, namespace, UNREACHABLE):
        a_pod_on(cluster, namespace, namespace)
        cluster.mark(namespace, "victim")
        assert deleted(cluster, namespace)["metadata"]["deletionGracePeriodSeconds"] == 30


@pytest.mark.usefixtures("granted")
def test_a_victim_on_a_healthy_node_keeps_its_grace_period(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "victim", grace_seconds=7, finalizers=HELD)
    cluster.mark(namespace, "victim")
    assert deleted(cluster, namespace)["metadata"]["deletionGracePeriodSeconds"] == 7
    assert deletions(cluster, namespace) == [200]


def test_without_the_permission_to_read_nodes_the_grace_period_is_kept_and_reported_once(
    cluster: ClusterHandle, namespace: str
) -> None:
    a_pod_on(cluster, namespace, f"{namespace}-never-was")
    cluster.mark(namespace, "victim")
    assert deleted(cluster, namespace)["metadata"]["deletionGracePeriodSeconds"] == 30

    def reports() -> int:
        reasons = cluster.event_reasons("reprieve-system", "reprieve-policy")
        return reasons.count("LostNodesUnreadable")

    assert wait_for("Event", reports) == 1

"""Lent nodes that the operator gives back, where all pods have one priority: no scheduler preempts.

The pods ask for a resource that only this node has, so that the pods of other tests do not matter.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reprieve_testing import manifests
from reprieve_testing.cluster.handle import ClusterHandle, Program, wait_for

pytestmark = pytest.mark.cluster

KEY = "reprieve.dev/home-namespace"
NODE, SLOT = "kwok-0", "example.com/lent-slot"
GRANT = str(manifests.EXAMPLES / "lent-nodes.yaml")
OPERATOR = "system:serviceaccount:reprieve-system:reprieve-operator"
EVENT = "LentNodeReclaimed"
LISTS = 'reprieve_api_calls_total{outcome="ok",verb="list"}'


@pytest.fixture(scope="module")
def slots(cluster: ClusterHandle) -> Iterator[None]:
    """Room for two pods of these tests on the node."""
    set_slots(cluster, "2")
    yield
    set_slots(cluster, None)


@pytest.fixture(scope="module")
def operator(cluster: ClusterHandle, slots: None) -> Iterator[Program]:
    """An operator that gives lent nodes back after two seconds, and may."""
    assert slots is None
    cluster.set_policy(reclaim="auto", reclaimAfter="2s")
    cluster.kubectl.read("apply", "-f", GRANT)
    wait_for("the right", lambda: may_list_budgets(cluster))
    program = cluster.start_operator()
    program.wait_leading()
    yield program
    assert program.stop() == 0
    cluster.kubectl.read("delete", "-f", GRANT)
    wait_for("no right", lambda: not may_list_budgets(cluster))
    cluster.set_policy()


@pytest.fixture
def home(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("home") as name:
        yield name


@pytest.fixture
def guest(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("guest") as name:
        yield name


@pytest.fixture
def lent(cluster: ClusterHandle, home: str) -> Iterator[str]:
    """The home of the node, by its label."""
    cluster.kubectl.read("label", "node", NODE, f"{KEY}={home}", "--overwrite")
    yield home
    cluster.kubectl.read("label", "node", NODE, f"{KEY}-")


def set_slots(cluster: ClusterHandle, number: str | None) -> None:
    change = {"status": {"capacity": {SLOT: number}, "allocatable": {SLOT: number}}}
    cluster.client.patch("node", NODE, change, subresource="status")


def may_list_budgets(cluster: ClusterHandle) -> bool:
    """Say whether the operator has the rights that only the ClusterRole for reclaiming grants."""
    words = ("auth", "can-i", "list", "poddisruptionbudgets", f"--as={OPERATOR}")
    return cluster.kubectl.run(*words, "--all-namespaces").status == 0


def asking(slots: int) -> list[Any]:
    """Return the container of a pod that asks for room on the node, and for one CPU."""
    wanted = {SLOT: str(slots), "cpu": "1"}
    return [{"name": "main", "image": "none", "resources": {"requests": wanted, "limits": wanted}}]


def borrow(cluster: ClusterHandle, namespace: str, name: str, **metadata: Any) -> Any:
    """Run a pod of another Namespace on the node."""
    spec = {"nodeName": NODE, "containers": asking(1)}
    return cluster.create_pod(namespace, name, spec=spec, grace_seconds=1, **metadata)


def want_back(cluster: ClusterHandle, home: str, *, slots: int = 1) -> None:
    """Create a pod of the home Namespace that fits on this node only."""
    spec = {
        "containers": asking(slots),
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "tolerations": [{"operator": "Exists"}],
    }
    metadata = {"name": "mine", "namespace": home}
    cluster.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    wait_for("the scheduler turns it away", lambda: is_unschedulable(cluster, home))


def is_unschedulable(cluster: ClusterHandle, home: str) -> bool:
    conditions = (cluster.pod(home, "mine") or {})["status"].get("conditions", [])
    return any(found.get("reason") == "Unschedulable" for found in conditions)


def node_of(cluster: ClusterHandle, namespace: str) -> str:
    return str((cluster.pod(namespace, "mine") or {})["spec"].get("nodeName", ""))


def has_run(pod: Any, seconds: float) -> bool:
    started = datetime.fromisoformat(pod["status"]["startTime"])
    return datetime.now(UTC) - started > timedelta(seconds=seconds)


def two_borrowers(cluster: ClusterHandle, guest: str) -> None:
    """Run two pods; the younger one loses less."""
    old = borrow(cluster, guest, "old")
    wait_for("it has work to lose", lambda: has_run(old, 5))
    borrow(cluster, guest, "young")


def assert_given_back(cluster: ClusterHandle, operator: Program, home: str, guest: str) -> None:
    """Assert that one borrower of two left, without a scheduler, and the Events say so."""
    wait_for("the home's pod runs there", lambda: node_of(cluster, home) == NODE)
    wait_for("the younger one is gone", lambda: cluster.pod(guest, "young") is None)
    kept = cluster.pod(guest, "old")
    assert kept is not None
    assert "soft-eviction" not in str(kept["metadata"])
    assert cluster.audit(guest, "young", user="kube-scheduler") == []
    metric = f'reprieve_preemptions_total{{namespace="{guest}",reason="reclaim"}}'
    assert operator.metric(metric) == 1
    for namespace, name in ((guest, "young"), (home, "mine"), ("default", NODE)):
        wait_for(
            f"Event about {name}",
            lambda namespace=namespace, name=name: EVENT in cluster.event_reasons(namespace, name),
        )


@pytest.mark.usefixtures("slots")
def test_without_the_right_no_pod_is_marked_and_an_event_says_so(
    cluster: ClusterHandle, lent: str, guest: str
) -> None:
    """The first test: the operator of the others has the right."""
    assert not may_list_budgets(cluster)
    cluster.set_policy(reclaim="auto", reclaimAfter="1s")
    program = cluster.start_operator()
    program.wait_leading()
    for name in ("a", "b"):
        borrow(cluster, guest, name)
    want_back(cluster, lent)

    def is_reported() -> bool:
        reasons = cluster.event_reasons("reprieve-system", "reprieve-policy")
        return "LentNodesUnreadable" in reasons

    wait_for("Event", is_reported)
    assert program.stop() == 0
    for name in ("a", "b"):
        assert "soft-eviction" not in str((cluster.pod(guest, name) or {})["metadata"])


def test_a_node_that_a_label_lends_is_given_back_to_a_pod_of_the_same_priority(
    cluster: ClusterHandle, operator: Program, lent: str, guest: str
) -> None:
    two_borrowers(cluster, guest)
    want_back(cluster, lent)
    assert_given_back(cluster, operator, lent, guest)


def test_a_node_that_a_taint_lends_is_given_back_as_well(
    cluster: ClusterHandle, operator: Program, home: str, guest: str
) -> None:
    two_borrowers(cluster, guest)
    cluster.kubectl.read("taint", "node", NODE, f"{KEY}={home}:NoSchedule")
    try:
        want_back(cluster, home)
        assert_given_back(cluster, operator, home, guest)
    finally:
        cluster.kubectl.read("taint", "node", NODE, f"{KEY}-")


def test_borrowers_that_the_class_rule_protects_stay(
    cluster: ClusterHandle, operator: Program, lent: str, guest: str
) -> None:
    for name in ("a", "b"):
        borrow(cluster, guest, name, labels={"reprieve.dev/preemption-class": "6"})
    want_back(cluster, lent)
    # Each pass over a due pod makes several lists; it is due after the first.
    before = operator.metric(LISTS) or 0
    wait_for("some passes", lambda: (operator.metric(LISTS) or 0) > before + 20)
    assert is_unschedulable(cluster, lent)
    for name in ("a", "b"):
        assert "soft-eviction" not in str((cluster.pod(guest, name) or {})["metadata"])


def test_a_borrower_stays_if_the_pod_that_it_was_asked_for_is_gone(
    cluster: ClusterHandle, operator: Program, lent: str, guest: str
) -> None:
    assert operator
    annotations = {
        "reprieve.dev/checkpoint-hint": "annotation:",
        "reprieve.dev/checkpoint-timeout": "10m",
    }
    borrow(cluster, guest, "saving", annotations=annotations)
    # The second slot: a pod that never leaves.
    borrow(cluster, guest, "kept", labels={"quota.scheduling.koordinator.sh/preemptible": "false"})
    want_back(cluster, lent)
    cluster.wait_phase(guest, "saving", "hinted")
    cluster.client.delete("pod", "mine", namespace=lent)

    def is_cancelled() -> bool:
        metadata = (cluster.pod(guest, "saving") or {})["metadata"]
        return '"phase":"cancelled"' in metadata["annotations"]["reprieve.dev/eviction"]

    wait_for("it is cancelled", is_cancelled)
    wait_for("Event", lambda: "SoftEvictionCancelled" in cluster.event_reasons(guest, "saving"))

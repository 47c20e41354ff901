"""Reprieve's finalizer, which is on by default: what it keeps, what it costs, and when it goes.

And the finalizers of others that are waited for before SIGTERM.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, ClusterHandle, Program, wait_for
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = pytest.mark.cluster

OURS, OTHER, EARLY = "reprieve.dev/cleanup", "example.com/other", "example.com/early"
HTTP = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "60s"}
POLLS = {"reprieve.dev/checkpoint-hint": "annotation:", "reprieve.dev/checkpoint-timeout": "60s"}
ASKED_BEFORE = {"reprieve.dev/cleaners-before": EARLY}


@pytest.fixture(autouse=True)
def default_policy(cluster: ClusterHandle) -> None:
    cluster.set_policy()


@pytest.fixture
def operator(cluster: ClusterHandle) -> Iterator[Program]:
    """One for a single test: some tests start and end operators of their own."""
    program = start_leader(cluster)
    yield program
    assert program.stop() == 0


def start_leader(cluster: ClusterHandle) -> Program:
    program = cluster.start_operator()
    program.wait_leading()
    return program


def finalizers(cluster: ClusterHandle, namespace: str, name: str) -> list[str]:
    pod = cluster.pod(namespace, name)
    return [] if pod is None else pod["metadata"].get("finalizers", [])


def deleted(cluster: ClusterHandle, namespace: str, name: str) -> Any:
    pod = cluster.pod(namespace, name)
    return pod if pod and pod["metadata"].get("deletionTimestamp") else None


def state(pod: Any) -> Any:
    return json.loads(pod["metadata"]["annotations"]["reprieve.dev/eviction"])


def remove_finalizer(cluster: ClusterHandle, namespace: str, name: str, finalizer: str) -> None:
    kept = [other for other in finalizers(cluster, namespace, name) if other != finalizer]
    cluster.client.patch("pod", name, {"metadata": {"finalizers": kept}}, namespace=namespace)


def start_job(cluster: ClusterHandle, namespace: str, annotations: dict[str, str]) -> Any:
    """Create a Job of one pod and return that once it runs."""
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    cluster.kubectl.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train", "namespace": namespace},
            "spec": {"template": template},
        }
    )

    def running() -> Any:
        pods = cluster.kubectl.get("pods", "-n", namespace, "-l", "job-name=train")["items"]
        return next((pod for pod in pods if pod["status"].get("podIP")), None)

    return wait_for("the Job's pod", running)


@pytest.mark.usefixtures("operator")
def test_by_default_the_finalizer_costs_one_write_of_a_victim(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "saves", annotations=HTTP)
    with Workload(pod["status"]["podIP"]) as workload:
        cluster.mark(namespace, "saves")
        asked = cluster.wait_phase(namespace, "saves", "checkpointing")
        assert asked["metadata"]["finalizers"] == [OURS]
        workload.state = {"state": "saved", "path": "/data/1"}
        cluster.wait_gone(namespace, "saves")
    writes = [entry.what for entry in cluster.audit(namespace, "saves") if entry.status < 400]
    assert writes == ["patch", "patch", "patch status", "delete", "patch"]


@pytest.mark.usefixtures("operator")
def test_a_victim_without_notice_gets_the_finalizer_with_its_condition(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "plain")
    cluster.mark(namespace, "plain")
    cluster.wait_gone(namespace, "plain")
    writes = [entry.what for entry in cluster.audit(namespace, "plain") if entry.status < 400]
    assert writes == ["patch status", "delete", "patch"]
    wait_for("Event", lambda: "SoftEvictionCompleted" in cluster.event_reasons(namespace, "plain"))


def test_an_admin_may_do_without_the_finalizer(
    cluster: ClusterHandle, operator: Program, namespace: str
) -> None:
    cluster.set_policy(cleanupFinalizer="false")
    wait_for("the policy", lambda: "cleanup_finalizer=False" in operator.log.read_text())
    cluster.create_pod(namespace, "free", annotations=POLLS)
    cluster.mark(namespace, "free")
    asked = cluster.wait_phase(namespace, "free", "hinted")
    assert "finalizers" not in asked["metadata"]


def test_what_a_replacement_inherits_is_written_though_the_pod_was_deleted_without_an_operator(
    cluster: ClusterHandle, namespace: str
) -> None:
    first = start_leader(cluster)
    name = start_job(cluster, namespace, POLLS)["metadata"]["name"]
    cluster.mark(namespace, name)
    cluster.wait_phase(namespace, name, "hinted")
    first.kill()
    cluster.kubectl.read("delete", "pod", name, "-n", namespace, "--wait=false")
    wait_for(
        "its containers have ended",
        lambda: (
            (cluster.pod(namespace, name) or {})["status"].get("phase") in ("Failed", "Succeeded")
        ),
    )
    assert OURS in finalizers(cluster, namespace, name)
    second = start_leader(cluster)
    cluster.wait_gone(namespace, name)
    job = cluster.kubectl.get("job", "train", "-n", namespace)
    (slot,) = json.loads(job["metadata"]["annotations"]["reprieve.dev/ledger"])["slots"].values()
    assert slot["count"] == 1
    wait_for("Event", lambda: "SoftEvictionOvertaken" in cluster.event_reasons(namespace, name))
    wait_for("Event on the Job", lambda: "PodEvicted" in cluster.event_reasons(namespace, "train"))
    assert second.stop() == 0


@pytest.mark.usefixtures("operator")
def test_a_terminating_namespace_releases_its_victims_though_their_containers_run(
    cluster: ClusterHandle, namespace: str
) -> None:
    # A node without a kubelet: nothing reports that the containers have ended.
    spec = {"nodeName": "nowhere", "containers": [{"name": "main", "image": "none"}]}
    metadata = {"name": "runs", "namespace": namespace, "annotations": POLLS}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.kubectl.read("create", "-f", "-", stdin=json.dumps(pod))
    running = json.dumps({"status": {"phase": "Running"}})
    words = ("patch", "pod", "runs", "-n", namespace, "--subresource=status", "--type=merge")
    cluster.kubectl.read(*words, "-p", running)
    cluster.mark(namespace, "runs")
    asked = cluster.wait_phase(namespace, "runs", "hinted")
    assert asked["metadata"]["finalizers"] == [OURS]
    cluster.kubectl.read("delete", "namespace", namespace, "--wait=false")
    wait_for("released", lambda: finalizers(cluster, namespace, "runs") == [])
    force = ("delete", "pod", "runs", "-n", namespace, "--grace-period=0", "--force")
    cluster.kubectl.run(*force, "--ignore-not-found")
    wait_for("the namespace is gone", lambda: cluster.kubectl.find("namespace", namespace) is None)
    cluster.kubectl.read("create", "namespace", namespace)


@contextmanager
def a_deployment(cluster: ClusterHandle) -> Iterator[None]:
    """Create the operator's Deployment; its one pod is simulated, and the program is the test's."""
    labels = {"app": "reprieve-operator-of-a-test"}
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "tolerations": [{"operator": "Exists"}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    name = {"name": "reprieve-operator", "namespace": OPERATOR_NAMESPACE}
    cluster.kubectl.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": name,
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        }
    )
    try:
        yield
    finally:
        words = ("delete", "deployment", "reprieve-operator", "-n", OPERATOR_NAMESPACE)
        cluster.kubectl.read(*words, "--ignore-not-found")


@pytest.mark.parametrize("how", ["scaled to 0", "deleted", "restarted"])
def test_an_operator_that_no_other_follows_releases_its_victims_and_an_upgrade_does_not(
    cluster: ClusterHandle, namespace: str, how: str
) -> None:
    words = {
        "scaled to 0": ("scale", "deployment", "reprieve-operator", "--replicas=0"),
        "deleted": ("delete", "deployment", "reprieve-operator"),
        "restarted": ("get", "deployment", "reprieve-operator"),
    }
    with a_deployment(cluster):
        operator = start_leader(cluster)
        cluster.create_pod(namespace, "held", annotations=POLLS)
        cluster.mark(namespace, "held")
        cluster.wait_phase(namespace, "held", "hinted")
        assert finalizers(cluster, namespace, "held") == [OURS]
        cluster.kubectl.read(*words[how], "-n", OPERATOR_NAMESPACE)
        assert operator.stop() == 0
        kept = [OURS] if how == "restarted" else []
        assert finalizers(cluster, namespace, "held") == kept


def test_cleanup_releases_victims_after_everything_else_is_gone(
    cluster: ClusterHandle, namespace: str
) -> None:
    operator = start_leader(cluster)
    cluster.create_pod(namespace, "left", annotations=POLLS)
    cluster.mark(namespace, "left")
    cluster.wait_phase(namespace, "left", "hinted")
    operator.kill()
    cluster.kubectl.read("delete", "pod", "left", "-n", namespace, "--wait=false")
    wait_for("it is being deleted", lambda: deleted(cluster, namespace, "left"))
    assert OURS in finalizers(cluster, namespace, "left")
    done = cluster.reprieve("cleanup", "-n", namespace)
    assert done.returncode == 0, done.stderr
    cluster.wait_gone(namespace, "left")


@pytest.mark.usefixtures("operator")
def test_the_deletion_waits_for_cleaners_before_sigterm_and_says_so(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "cleaned", annotations=ASKED_BEFORE, finalizers=[EARLY, OTHER])
    cluster.mark(namespace, "cleaned")
    waiting = cluster.wait_phase(namespace, "cleaned", "settled")
    assert state(waiting)["cleanersUntil"]
    wait_for("Event", lambda: "WaitingForCleaners" in cluster.event_reasons(namespace, "cleaned"))
    assert deleted(cluster, namespace, "cleaned") is None
    remove_finalizer(cluster, namespace, "cleaned", EARLY)
    wait_for("DELETE", lambda: deleted(cluster, namespace, "cleaned"))
    assert cluster.writes_until_end(namespace, "cleaned") == ["patch", "patch status", "delete"]
    assert "CleanersTimedOut" not in cluster.event_reasons(namespace, "cleaned")


@pytest.mark.usefixtures("operator")
def test_cleaners_and_the_workload_are_asked_together(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(
        namespace, "both", annotations=HTTP | ASKED_BEFORE, finalizers=[EARLY, OTHER]
    )
    with Workload(pod["status"]["podIP"], on_post={"state": "saved", "path": "/data/2"}):
        cluster.mark(namespace, "both")
        cluster.wait_phase(namespace, "both", "saved")
        assert deleted(cluster, namespace, "both") is None
        remove_finalizer(cluster, namespace, "both", EARLY)
        ended = wait_for("DELETE", lambda: deleted(cluster, namespace, "both"))
    assert state(ended)["outcome"] == "saved"


@pytest.mark.usefixtures("operator")
def test_cleaners_that_take_too_long_are_named_and_sigterm_comes(
    cluster: ClusterHandle, namespace: str
) -> None:
    notice = ASKED_BEFORE | {"reprieve.dev/checkpoint-timeout": "3s"}
    cluster.create_pod(namespace, "late", annotations=notice, finalizers=[EARLY])
    cluster.mark(namespace, "late")
    wait_for("DELETE", lambda: deleted(cluster, namespace, "late"))
    assert EARLY in finalizers(cluster, namespace, "late")
    wait_for("Event", lambda: "CleanersTimedOut" in cluster.event_reasons(namespace, "late"))


def test_an_operator_killed_while_it_waits_for_cleaners_is_followed_by_one_delete(
    cluster: ClusterHandle, namespace: str
) -> None:
    first = start_leader(cluster)
    cluster.create_pod(namespace, "passed-on", annotations=ASKED_BEFORE, finalizers=[EARLY, OTHER])
    cluster.mark(namespace, "passed-on")
    until = state(cluster.wait_phase(namespace, "passed-on", "settled"))["cleanersUntil"]
    first.kill()
    second = start_leader(cluster)
    remove_finalizer(cluster, namespace, "passed-on", EARLY)
    ended = wait_for("DELETE", lambda: deleted(cluster, namespace, "passed-on"))
    assert "cleanersUntil" not in state(ended)
    assert until
    assert cluster.writes_until_end(namespace, "passed-on").count("delete") == 1
    assert second.stop() == 0


@pytest.mark.usefixtures("operator")
def test_a_mark_that_is_removed_while_cleaners_are_waited_for_keeps_the_pod(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "stays", annotations=ASKED_BEFORE, finalizers=[EARLY])
    cluster.mark(namespace, "stays")
    cluster.wait_phase(namespace, "stays", "settled")
    cluster.kubectl.read("label", "pod", "stays", "-n", namespace, "reprieve.dev/soft-eviction-")
    wait_for("it is released", lambda: finalizers(cluster, namespace, "stays") == [EARLY])
    assert deleted(cluster, namespace, "stays") is None

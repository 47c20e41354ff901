"""The Deployments of the base, unchanged, from the image that a release has.

Two real nodes, two replicas of each program, with their probes, limits, accounts and Pod Security
`restricted`. Nothing enforces the NetworkPolicies here: `test_network_policies.py` shows them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mainjob.installation import PROBE
from realcluster.client.objects import RefusedError
from realcluster.errors import ClusterError
from realcluster.install import BASE
from realcluster.real_nodes import node
from realcluster.real_nodes.image import PYTHON_IMAGE
from reprieve_policy import keys
from reprieve_testing.availability.creations import CHANGED, DENIED, creating
from reprieve_testing.cluster import overlays
from reprieve_testing.cluster.hack_cluster import OwnCluster, own_cluster, succeed
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, wait_for
from reprieve_testing.cluster.patient_api_server import wait_longer_for_reviews
from reprieve_testing.guard.guarded_cluster import CPU, a_priority_class

pytestmark = [pytest.mark.cluster, pytest.mark.real_node, pytest.mark.slow]

NAME = "test-image"
NODES = (f"{NAME}-real-0", f"{NAME}-real-1")
HIGH, LOW = "image-high", "image-low"
PROGRAMS = ("reprieve-webhooks", "reprieve-operator")
IN_OURS = ("-n", OPERATOR_NAMESPACE)
SECONDS = 180.0  # 30 are usual: four programs start at once on two cores
ENOUGH = 50
"""Creations of each kind, so that what is tested happened under load."""
OURS = "app.kubernetes.io/part-of=reprieve"
KINDS = (
    "namespaces,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,"
    "validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings"
)


@pytest.fixture(scope="module")
def ours(archive_of_both: Path) -> Iterator[OwnCluster]:
    if obstacle := node.can_run():
        pytest.skip(f"no real node can run here: {obstacle}")
    with own_cluster(NAME, "--kwok-nodes", 0, "--real-nodes", len(NODES)) as cluster:
        succeed(cluster.hack("load-image", archive_of_both))
        for each in (a_priority_class(HIGH, 1000), a_priority_class(LOW, 10)):
            cluster.kubectl.apply(each)
        yield cluster


@pytest.fixture
def installed(ours: OwnCluster) -> OwnCluster:
    """The base, as a user applies it; another test may have removed it."""
    ours.kubectl.read("apply", "-k", BASE)
    wait_available(ours)
    wait_for("the API server calls the webhooks", lambda: review(ours) == "denied", SECONDS)
    return ours


def test_both_deployments_run_two_replicas_on_two_nodes_without_restarts(
    installed: OwnCluster,
) -> None:
    pods = program_pods(installed)
    assert Counter(program_of(pod) for pod in pods) == dict.fromkeys(PROGRAMS, 2)
    for program in PROGRAMS:
        assert {p["spec"]["nodeName"] for p in pods if program_of(p) == program} == set(NODES)
    assert not any(status["restartCount"] for pod in pods for status in statuses(pod))
    labels = installed.kubectl.get("namespace", OPERATOR_NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    status = installed.reprieve("status", seconds=SECONDS)
    assert status.returncode == 0, status.stdout + status.stderr


def test_a_preemption_by_the_scheduler_waits_until_the_training_saved_and_it_resumes(
    installed: OwnCluster, tmp_path: Path
) -> None:
    kubectl = installed.kubectl
    wait_longer_for_reviews(installed.kubectl)
    capacity = json.dumps({"status": {"capacity": {CPU: "1"}, "allocatable": {CPU: "1"}}})
    patched = ("--subresource=status", "--type=merge", "-p", capacity)
    kubectl.read("patch", "node", NODES[0], *patched)
    with installed.namespace("training") as namespace:
        example = overlays.on_a_slot(namespace, tmp_path, NODES[0], LOW, CPU)
        kubectl.read("apply", "-k", example)
        first = wait_for("a pod that trains", lambda: trains(installed, namespace), SECONDS)
        kubectl.apply(a_preemptor(namespace))
        wait_for("the preemptor runs", lambda: runs(installed, namespace, "preemptor"), SECONDS)
        # The operator writes Events beside its work, and on a busy machine later.
        wait_for(
            "the Event of the deletion",
            lambda: "SoftEvictionDeleting" in installed.event_reasons(namespace, first),
            SECONDS,
        )
        reasons = installed.event_reasons(namespace, first)
        assert "CheckpointSaved" in reasons[: reasons.index("SoftEvictionDeleting")], reasons
        kubectl.read("delete", "pod", "preemptor", "-n", namespace, "--grace-period=1")
        second = wait_for(
            "its replacement", lambda: trains(installed, namespace, but=first), SECONDS
        )
        log = kubectl.read("logs", second, "-n", namespace)
        assert f"saved in /checkpoints/{first}" in log


def test_a_rolling_update_under_200_requests_a_second_fails_no_review(
    installed: OwnCluster,
) -> None:
    with no_failed_review(installed):
        for program in PROGRAMS:
            installed.kubectl.read("rollout", "restart", f"deployment/{program}", *IN_OURS)
        for program in PROGRAMS:
            wait_rolled_out(installed, program)


def test_a_drained_node_fails_no_review_and_its_replicas_run_elsewhere(
    installed: OwnCluster,
) -> None:
    try:
        with no_failed_review(installed):
            installed.kubectl.read("drain", NODES[1], "--timeout=100s")
            wait_available(installed)
        assert {pod["spec"]["nodeName"] for pod in program_pods(installed)} == {NODES[0]}
    finally:
        installed.kubectl.read("uncordon", NODES[1])
    # The next test finds a replica on each node.
    for program in PROGRAMS:
        installed.kubectl.read("rollout", "restart", f"deployment/{program}", *IN_OURS)
        wait_rolled_out(installed, program)


def in_the_documented_order(ours: OwnCluster) -> None:
    ours.kubectl.read("scale", *IN_OURS, "deployment/reprieve-operator", "--replicas=0")
    wait_for(
        "a cleanup", lambda: ours.reprieve("cleanup", seconds=SECONDS).returncode == 0, SECONDS
    )
    delete_base(ours)


def everything_at_once(ours: OwnCluster) -> None:
    delete_base(ours)


def the_rights_first(ours: OwnCluster) -> None:
    ours.kubectl.read("delete", "clusterrolebindings", "-l", OURS)
    delete_base(ours)


@pytest.mark.parametrize("remove", [in_the_documented_order, everything_at_once, the_rights_first])
def test_after_an_uninstallation_in_any_order_no_pod_is_stuck_and_nothing_is_left(
    installed: OwnCluster, remove: Callable[[OwnCluster], None]
) -> None:
    with installed.namespace("removal") as namespace:
        installed.kubectl.apply(a_victim(namespace))
        wait_for("the victim runs", lambda: runs(installed, namespace, "victim"), SECONDS)
        installed.mark(namespace, "victim")
        installed.wait_phase(namespace, "victim", "hinted", SECONDS)
        remove(installed)
        cleaned = installed.reprieve("cleanup", seconds=SECONDS)
        assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
        pod = installed.pod(namespace, "victim")
        if pod is not None:
            assert keys.SOFT_EVICTION not in pod["metadata"].get("labels", {})
            assert "finalizers" not in pod["metadata"]
        installed.client.delete("pod", "victim", namespace=namespace)
        installed.wait_gone(namespace, "victim", SECONDS)
    assert installed.kubectl.read("get", KINDS, "-l", OURS, "-o", "name") == ""
    assert review(installed) == "admitted"


@contextmanager
def no_failed_review(ours: OwnCluster) -> Iterator[None]:
    """Create pods while the block runs; the webhooks must have changed or denied each."""
    wait_longer_for_reviews(ours.kubectl)
    with creating(ours.cluster) as seen:
        yield
    assert not seen.failed
    assert min(seen.outcomes[CHANGED], seen.outcomes[DENIED]) > ENOUGH, seen


def review(ours: OwnCluster) -> str:
    """Create a pod that only the webhooks refuse; return `denied`, `admitted`, or another error.

    The webhook's failure policy is Ignore: a call that fails admits the pod.
    """
    pod: Any = PROBE
    try:
        ours.client.create(pod)
    except RefusedError as refused:
        return "denied" if "denied the request" in str(refused) else str(refused)
    except ClusterError as error:
        return str(error)
    ours.client.delete("pod", pod["metadata"]["name"], namespace="default")
    return "admitted"


def wait_available(ours: OwnCluster) -> None:
    condition = ("--for=condition=Available", f"--timeout={SECONDS:g}s")
    done = ours.kubectl.run("wait", "deployment", "--all", *IN_OURS, *condition, seconds=SECONDS)
    assert done.status == 0, done.output + ours.kubectl.read("get", "events", *IN_OURS)


def wait_rolled_out(ours: OwnCluster, program: str) -> None:
    words = ("rollout", "status", f"deployment/{program}", *IN_OURS, f"--timeout={SECONDS:g}s")
    done = ours.kubectl.run(*words, seconds=SECONDS)
    assert done.status == 0, done.output


def delete_base(ours: OwnCluster) -> None:
    done = ours.kubectl.run("delete", "-k", BASE, "--ignore-not-found", seconds=SECONDS)
    assert done.status == 0, done.output


def program_pods(ours: OwnCluster) -> list[Any]:
    """Return the programs' pods, without those that are ending."""
    items = ours.kubectl.get("pods", *IN_OURS)["items"]
    return [item for item in items if "deletionTimestamp" not in item["metadata"]]


def program_of(pod: Any) -> str:
    return str(pod["metadata"]["labels"]["app.kubernetes.io/name"])


def statuses(pod: Any) -> list[Any]:
    return list(pod["status"]["containerStatuses"])


def trains(ours: OwnCluster, namespace: str, but: str = "") -> str | None:
    """Return the name of the Job's pod once it trains."""
    selector = ("-l", "batch.kubernetes.io/job-name=annotation")
    for pod in ours.kubectl.get("pods", "-n", namespace, *selector)["items"]:
        name = str(pod["metadata"]["name"])
        log = ours.kubectl.run("logs", name, "-n", namespace).stdout
        if name != but and "training from step" in log:
            return name
    return None


def runs(ours: OwnCluster, namespace: str, name: str) -> bool:
    pod = ours.pod(namespace, name)
    return pod is not None and pod["status"].get("phase") == "Running"


def a_preemptor(namespace: str) -> Any:
    pod = a_pod(namespace, "preemptor")
    pod["spec"] |= {
        "priorityClassName": HIGH,
        "nodeSelector": {"kubernetes.io/hostname": NODES[0]},
    }
    pod["spec"]["containers"][0]["resources"] = {"requests": {CPU: "1"}, "limits": {CPU: "1"}}
    return pod


def a_victim(namespace: str) -> Any:
    """Return a pod that does not answer the hint."""
    pod = a_pod(namespace, "victim")
    pod["metadata"]["annotations"] = {keys.CHECKPOINT_HINT: "annotation:"}
    return pod


def a_pod(namespace: str, name: str) -> Any:
    container = {
        "name": "main",
        "image": PYTHON_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", "import time; time.sleep(3600)"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }

"""`reprieve explain` against a real API server: what it reads, and its output without rights."""

import json
from collections.abc import Iterator

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, wait_for

pytestmark = pytest.mark.cluster

TOLERATING = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {
        "name": "explained-low",
        "annotations": {
            "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority": "10000",
            "preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "-1",
        },
    },
    "value": 8000,
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "activeDeadlineSeconds": 200,
        "template": {
            "metadata": {
                "labels": {"reprieve.dev/preemption-class": "3"},
                "annotations": {"reprieve.dev/checkpoint-hint": "http://:8080/save"},
            },
            "spec": {
                "restartPolicy": "Never",
                "priorityClassName": "explained-low",
                "containers": [
                    {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}
                ],
                "tolerations": [{"operator": "Exists"}],
            },
        },
    },
}


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    cluster.set_policy()
    with cluster.namespace("explain") as name:
        yield name


def test_explain_shows_possible_preemptors_times_cost_and_the_steps_of_an_eviction(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.kubectl.apply(TOLERATING)
    cluster.kubectl.apply({**JOB, "metadata": {"name": "train", "namespace": namespace}})
    words = ("pods", "-n", namespace, "-l", "job-name=train")
    started = [*words, "--field-selector=status.phase=Running"]
    (pod,) = wait_for("the Job's pod runs", lambda: cluster.kubectl.get(*started)["items"])
    name = pod["metadata"]["name"]
    done = cluster.reprieve("explain", name, "-n", namespace)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0] == f"pod/{name} in namespace {namespace}: class 3, preemption priority 8000"
    assert "a pod of class 4-10 whose priority is above 8000" in lines
    assert (
        "never by a preemptor with a priority below 10000: its PriorityClass tolerates those"
        in lines
    )
    # Within the last five minutes of what its Job may take.
    assert any(
        line.startswith("not before 20") and ": near-completion: its walltime ends at 20" in line
        for line in lines
    )
    assert any("CPU-hours: checkpoint 0.333, recompute 0, walltime " in line for line in lines)
    assert (
        '1. it is asked to save a checkpoint: POST to port 8080 of its own address, path "/save"'
        in lines
    )
    assert lines[-1].startswith("5. Job/train replaces it")

    done = cluster.reprieve("explain", f"pod/{name}", "-n", namespace, "-o", "json")
    explanation = json.loads(done.stdout)
    assert (explanation["preemptionClass"], explanation["preemptorClasses"]) == (
        3,
        [4, 5, 6, 7, 8, 9, 10],
    )
    assert explanation["tolerated"] == {"below": 10000, "until": None}
    assert explanation["protected"]["reason"] == "near-completion"
    assert explanation["cost"]["device"] == "cpu"


def test_objects_that_the_user_may_not_read_are_named_and_the_rest_is_explained(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "plain")
    cluster.kubectl.read("create", "role", "see", "-n", namespace, "--verb=get", "--resource=pods")
    account = f"--serviceaccount={namespace}:default"
    cluster.kubectl.read("create", "rolebinding", "see", "-n", namespace, "--role=see", account)
    done = cluster.reprieve(
        "explain",
        "plain",
        "-n",
        namespace,
        kubeconfig=cluster.account_kubeconfig("default", namespace),
    )
    assert done.returncode == 0
    assert (
        "unreadable: /apis/scheduling.k8s.io/v1/priorityclasses: not allowed to read it"
        in done.stderr
    )
    assert "1. it gets no notice: it wants no checkpoint" in done.stdout


def test_a_missing_pod_is_an_error(cluster: ClusterHandle, namespace: str) -> None:
    done = cluster.reprieve("explain", "nobody", "-n", namespace)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"reprieve: pod/nobody: not found in namespace {namespace}\n"
    done = cluster.reprieve("explain", "nobody", "-A")
    assert done.returncode == 2
    assert "a pod is in one namespace" in done.stderr


def test_a_victim_is_explained_as_a_victim(cluster: ClusterHandle, namespace: str) -> None:
    cluster.create_pod(
        namespace, "going", annotations={"reprieve.dev/checkpoint-hint": "annotation:"}
    )
    operator = cluster.start_operator()
    operator.wait_leading()
    cluster.mark(namespace, "going")
    cluster.wait_phase(namespace, "going", "hinted")
    done = cluster.reprieve("explain", "going", "-n", namespace)
    assert operator.stop() == 0
    assert "\nit is a victim now:\n  phase hinted, " in done.stdout
    assert "earliest preemption" not in done.stdout

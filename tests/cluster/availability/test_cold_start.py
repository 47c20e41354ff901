"""A whole cluster starts at once with `failurePolicy: Fail` stored, and nothing waits for ever.

The control plane is the real one. The pods of Reprieve's Deployments are on simulated nodes: a test
starts the process of each once the pod runs, as a kubelet does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from realcluster import lifecycle
from realcluster.client.objects import RefusedError
from realcluster.errors import ClusterError
from realcluster.progress import Progress
from reprieve_policy import keys
from reprieve_testing.availability.creations import a_plain_pod
from reprieve_testing.availability.replicas import WebhookReplicas, fail_closed_objects
from reprieve_testing.cluster.handle import (
    OPERATOR_NAMESPACE,
    ClusterHandle,
    cluster_for_tests,
    make_namespace,
    wait_for,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TEAM = "team"
PROGRAMS = {"reprieve-webhooks": 2, "reprieve-operator": 2}
CONTROLLERS = ("kube-controller-manager", "kube-scheduler", "kwok")
SECONDS = 180.0  # 20 are usual; all parts of a cluster start at once on two cores


@pytest.fixture(scope="module")
def ours() -> Iterator[ClusterHandle]:
    with cluster_for_tests("test-cold-start", kwok_nodes=2, variable="") as cluster:
        yield cluster


def test_everything_starts_at_once_and_no_part_waits_for_another_for_ever(
    ours: ClusterHandle,
) -> None:
    make_namespace(ours.client, TEAM)
    for name in CONTROLLERS:
        ours.kill_component(name)
    ours.client.create(a_job(), namespace=TEAM)
    ours.client.apply(*fail_closed_objects(ours))
    assert running(ours) == dict.fromkeys(PROGRAMS, 0)
    for name in ("kube-apiserver", "etcd"):
        ours.kill_component(name)

    start_all(ours)
    wait_for("Reprieve's own pods run", lambda: running(ours) == PROGRAMS, SECONDS)
    # No webhook has answered yet: its own pods did not need it, and all others wait.
    assert "failed calling webhook" in refusal_of_a_pod(ours)
    assert pods_of_the_job(ours) == []

    replicas = WebhookReplicas(ours, {"serving_ips": "127.0.0.1"})
    for _ in range(PROGRAMS["reprieve-webhooks"]):
        replicas.start()
    first = wait_for("the Job's pod runs", lambda: running_pod(ours), SECONDS)
    assert keys.PREEMPTION_CLASS in first["metadata"]["labels"]
    ours.start_operator().wait_leading(SECONDS)
    name = first["metadata"]["name"]
    ours.mark(TEAM, name)
    ours.wait_gone(TEAM, name, SECONDS)
    wait_for("its replacement runs", lambda: running_pod(ours), SECONDS)


def start_all(ours: ClusterHandle) -> None:
    """Start every component without waiting for another; one that gives up is started again."""

    def is_up() -> bool:
        for name in lifecycle.COMPONENTS:
            lifecycle.start_component(ours.cluster, name, Progress())
        return lifecycle.is_up(ours.cluster)

    wait_for("the control plane", is_up, SECONDS)


def running(ours: ClusterHandle) -> dict[str, int]:
    """Return how many pods of each of Reprieve's programs run."""
    items = ours.kubectl.get("pods", "-n", OPERATOR_NAMESPACE)["items"]
    names = [
        item["metadata"]["labels"]["app.kubernetes.io/name"]
        for item in items
        if item["status"].get("phase") == "Running"
    ]
    return {program: names.count(program) for program in PROGRAMS}


def refusal_of_a_pod(ours: ClusterHandle) -> str:
    try:
        ours.client.create(a_plain_pod(), namespace=TEAM)
    except RefusedError as refused:
        return str(refused)
    return "admitted"


def pods_of_the_job(ours: ClusterHandle) -> list[Any]:
    return list(ours.kubectl.get("pods", "-n", TEAM)["items"])


def running_pod(ours: ClusterHandle) -> Any | None:
    """Return a pod of the Job that runs and is not being deleted."""
    try:
        pods = pods_of_the_job(ours)
    except ClusterError:
        return None
    for pod in pods:
        is_ending = "deletionTimestamp" in pod["metadata"]
        if pod["status"].get("phase") == "Running" and not is_ending:
            return pod
    return None


def a_job() -> Any:
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {"template": {"spec": spec}},
    }

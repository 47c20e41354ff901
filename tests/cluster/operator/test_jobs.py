"""A Job whose pods must all leave is suspended, and resumed after the back-off.

A Job that another controller manages is not.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_testing.cluster.handle import CONTROLLER, ClusterHandle, Program, wait_for
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = pytest.mark.cluster

HELD = ["example.com/other"]
HTTP = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "10s"}
SUSPENDED = "reprieve.dev/suspended"


@pytest.fixture(scope="module", autouse=True)
def policy(cluster: ClusterHandle) -> Iterator[None]:
    cluster.set_policy(suspendJobs="true", suspendedJobBackoff="15s")
    yield
    cluster.set_policy()


@pytest.fixture
def operator(cluster: ClusterHandle) -> Iterator[Program]:
    program = cluster.start_operator(resync_interval_seconds=1.0)
    program.wait_leading()
    yield program
    assert program.stop() == 0


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("jobs") as name:
        yield name
        # Without this, an operator that a failed test left behind would lead in the tests after it.
        cluster.stop_programs()


def start_job(
    cluster: ClusterHandle,
    namespace: str,
    pods: int = 1,
    *,
    annotations: Any = None,
    selected_by: dict[str, str] | None = None,
    **metadata: Any,
) -> list[Any]:
    """Create a Job and return its pods once they run."""
    container = {"name": "main", "image": "none"}
    spec = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 5}
    template = {
        "metadata": {"annotations": annotations or {}, "labels": selected_by or {}},
        "spec": spec,
    }
    selection = (
        {"manualSelector": True, "selector": {"matchLabels": selected_by}} if selected_by else {}
    )
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace, **metadata},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": template,
        }
        | selection,
    }
    cluster.kubectl.apply(job)
    return wait_for("the Job's pods", lambda: running(cluster, namespace, pods))


def running(cluster: ClusterHandle, namespace: str, count: int) -> list[Any]:
    pods = cluster.kubectl.get("pods", "-n", namespace, "-l", "job-name=train")["items"]
    alive = [
        pod
        for pod in pods
        if pod["status"].get("podIP") and not pod["metadata"].get("deletionTimestamp")
    ]
    return alive if len(alive) == count else []


def names(pods: list[Any]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


def job_of(cluster: ClusterHandle, namespace: str) -> Any:
    return cluster.kubectl.get("job", "train", "-n", namespace)


def suspended(cluster: ClusterHandle, namespace: str) -> Any:
    """Return the Job as it was seen suspended, `None` where it runs."""
    job = job_of(cluster, namespace)
    return job if job["spec"].get("suspend") else None


def is_suspended(cluster: ClusterHandle, namespace: str) -> bool:
    return suspended(cluster, namespace) is not None


def mark_all(cluster: ClusterHandle, namespace: str, pods: list[Any]) -> None:
    cluster.kubectl.read(
        "label", "pod", *names(pods), "-n", namespace, "reprieve.dev/soft-eviction=requested"
    )


def events(cluster: ClusterHandle, namespace: str, name: str = "train") -> list[str]:
    items = cluster.kubectl.get("events.v1.events.k8s.io", "-n", namespace)["items"]
    ours = (item for item in items if item.get("reportingController") == CONTROLLER)
    return [item["reason"] for item in ours if item["regarding"]["name"] == name]


@pytest.mark.usefixtures("operator")
def test_a_job_whose_pods_all_saved_is_suspended_and_resumed_from_their_checkpoints(
    cluster: ClusterHandle, namespace: str
) -> None:
    first, second = start_job(cluster, namespace, pods=2, annotations=HTTP)
    with Workload(first["status"]["podIP"]) as one, Workload(second["status"]["podIP"]) as two:
        mark_all(cluster, namespace, [first, second])
        one.state = {"state": "saved", "path": "/data/1"}
        cluster.wait_phase(namespace, first["metadata"]["name"], "terminating")
        assert not is_suspended(cluster, namespace), "the other is still saving"
        two.state = {"state": "saved", "path": "/data/2"}
        held = wait_for("the suspension", lambda: suspended(cluster, namespace))
        for pod in (first, second):
            cluster.wait_gone(namespace, pod["metadata"]["name"])
    wait_for(
        "an Event on the Job for each pod",
        lambda: events(cluster, namespace).count("PodEvicted") == 2,
    )
    assert held["metadata"]["labels"][SUSPENDED] == "true"
    job = job_of(cluster, namespace)
    slots = json.loads(job["metadata"]["annotations"]["reprieve.dev/ledger"])["slots"]
    assert {slot: entry["saved"]["path"] for slot, entry in slots.items()} == {
        "0": "/data/1",
        "1": "/data/2",
    } or {slot: entry["saved"]["path"] for slot, entry in slots.items()} == {
        "0": "/data/2",
        "1": "/data/1",
    }
    for pod in (first, second):
        writes = [entry.what for entry in cluster.audit(namespace, pod["metadata"]["name"])]
        assert "delete" not in writes
        assert len(writes) <= 6
        assert writes[-2:] == ["patch status", "patch"], (
            "the disruption is announced before the job controller deletes, and the pod released"
        )
    wait_for("the resumption", lambda: not is_suspended(cluster, namespace))
    wait_for("the Job's new pods", lambda: running(cluster, namespace, 2))
    assert SUSPENDED not in job_of(cluster, namespace)["metadata"]["labels"]
    wait_for("Events", lambda: {"JobSuspended", "JobResumed"} <= set(events(cluster, namespace)))


@pytest.mark.usefixtures("operator")
def test_a_job_with_a_pod_that_stays_is_not_suspended(
    cluster: ClusterHandle, namespace: str
) -> None:
    first, second = start_job(cluster, namespace, pods=2)
    cluster.mark(namespace, first["metadata"]["name"])
    cluster.wait_gone(namespace, first["metadata"]["name"])
    assert not is_suspended(cluster, namespace)
    kept = cluster.pod(namespace, second["metadata"]["name"])
    assert kept is not None
    assert "deletionTimestamp" not in kept["metadata"]


@pytest.mark.usefixtures("operator")
def test_a_job_whose_pod_did_not_answer_is_not_suspended(
    cluster: ClusterHandle, namespace: str
) -> None:
    (pod,) = start_job(
        cluster, namespace, annotations=HTTP | {"reprieve.dev/checkpoint-timeout": "1s"}
    )
    cluster.mark(namespace, pod["metadata"]["name"])
    cluster.wait_gone(namespace, pod["metadata"]["name"])
    assert "JobSuspended" not in events(cluster, namespace)
    assert "delete" in [entry.what for entry in cluster.audit(namespace, pod["metadata"]["name"])]


@pytest.mark.usefixtures("operator")
def test_a_job_with_a_manual_selector_is_not_suspended(
    cluster: ClusterHandle, namespace: str
) -> None:
    """Its pods lack the label of the Job controller: they would not be seen to stay."""
    first, second = start_job(cluster, namespace, pods=2, selected_by={"job-name": "train"})
    cluster.mark(namespace, first["metadata"]["name"])
    cluster.wait_gone(namespace, first["metadata"]["name"])
    assert not is_suspended(cluster, namespace)
    kept = cluster.pod(namespace, second["metadata"]["name"])
    assert kept is not None
    assert "deletionTimestamp" not in kept["metadata"]


@pytest.mark.usefixtures("operator")
def test_a_job_in_a_kueue_queue_is_not_suspended(cluster: ClusterHandle, namespace: str) -> None:
    (pod,) = start_job(cluster, namespace, labels={"kueue.x-k8s.io/queue-name": "team"})
    cluster.mark(namespace, pod["metadata"]["name"])
    cluster.wait_gone(namespace, pod["metadata"]["name"])
    assert "JobSuspended" not in events(cluster, namespace)


def test_the_next_operator_resumes_only_jobs_that_reprieve_suspended(
    cluster: ClusterHandle, namespace: str
) -> None:
    operator = cluster.start_operator()
    operator.wait_leading()
    (pod,) = start_job(cluster, namespace)
    cluster.mark(namespace, pod["metadata"]["name"])
    wait_for("the suspension", lambda: is_suspended(cluster, namespace))
    operator.kill()
    (other,) = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "theirs", "namespace": namespace},
        }
    ]
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    }
    cluster.kubectl.apply(other | {"spec": {"suspend": True, "template": template}})
    successor = cluster.start_operator(resync_interval_seconds=1.0)
    wait_for("the resumption", lambda: not is_suspended(cluster, namespace), 80)
    assert cluster.kubectl.get("job", "theirs", "-n", namespace)["spec"]["suspend"] is True
    assert successor.stop() == 0


@pytest.mark.usefixtures("operator")
def test_a_job_that_a_user_resumed_is_forgotten(cluster: ClusterHandle, namespace: str) -> None:
    (pod,) = start_job(cluster, namespace)
    cluster.mark(namespace, pod["metadata"]["name"])
    wait_for("the suspension", lambda: is_suspended(cluster, namespace))
    cluster.kubectl.read(
        "patch", "job", "train", "-n", namespace, "--type=merge", "-p", '{"spec":{"suspend":false}}'
    )
    wait_for(
        "forgotten",
        lambda: SUSPENDED not in job_of(cluster, namespace)["metadata"].get("labels", {}),
    )
    assert "JobResumed" not in events(cluster, namespace)

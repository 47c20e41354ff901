"""`reprieve cleanup` against a real API server, with the operator stopped as it is before uninstalling."""

from collections.abc import Iterator

import pytest

from reprieve_testing.cluster import ClusterHandle

pytestmark = pytest.mark.cluster


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("cli") as name:
        yield name


def test_before_uninstalling_every_trace_goes(cluster: ClusterHandle, namespace: str) -> None:
    traces = {
        "reprieve.dev/eviction": '{"v":1}',
        "reprieve.dev/checkpoint-request": "{}",
        "reprieve.dev/checkpoint": "none",
    }
    labels = {"reprieve.dev/soft-eviction": "hinted", "reprieve.dev/preemption-class": "3"}
    finalizers = ["reprieve.dev/cleanup", "example.com/other"]
    cluster.create_pod(namespace, "traced", labels=labels, annotations=traces, finalizers=finalizers)
    cluster.create_pod(namespace, "clean")
    gated = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gated", "namespace": namespace, "labels": {"reprieve.dev/gang-gate": "waiting"}},
        "spec": {
            "schedulingGates": [{"name": "reprieve.dev/gang"}, {"name": "example.com/other"}],
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    cluster.kubectl.apply(gated)
    tried = cluster.reprieve("cleanup", "-n", namespace, "--dry-run", "--force")
    assert sorted(tried.stdout.splitlines()) == [
        f"{namespace}/pod/gated cleaned (dry run)",
        f"{namespace}/pod/traced cleaned (dry run)",
    ]
    done = cluster.reprieve("cleanup", "-n", namespace, "--force")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    pods = {pod["metadata"]["name"]: pod for pod in cluster.kubectl.get("pods", "-n", namespace)["items"]}
    left = pods["traced"]["metadata"]
    assert left["labels"] == {"reprieve.dev/preemption-class": "3"}
    assert left["annotations"] == {"reprieve.dev/checkpoint": "none"}
    assert left["finalizers"] == ["example.com/other"]
    assert [gate["name"] for gate in pods["gated"]["spec"]["schedulingGates"]] == ["example.com/other"]
    assert cluster.reprieve("cleanup", "-n", namespace, "--force").stdout == ""


def test_a_job_that_was_suspended_runs_again(cluster: ClusterHandle, namespace: str) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    held = {"labels": {"reprieve.dev/suspended": "true"}, "annotations": {"reprieve.dev/suspended": "{}"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": namespace, **held}}
    cluster.kubectl.apply(job | {"spec": {"suspend": True, "template": template}})
    done = cluster.reprieve("cleanup", "-n", namespace, "--force")
    assert f"{namespace}/job/train cleaned" in done.stdout.splitlines()
    resumed = cluster.kubectl.get("job", "train", "-n", namespace)
    assert resumed["spec"]["suspend"] is False
    assert "reprieve.dev/suspended" not in resumed["metadata"].get("labels", {})


def test_nothing_is_taken_from_a_running_operator(cluster: ClusterHandle, namespace: str) -> None:
    cluster.set_policy()
    operator = cluster.start_operator()
    operator.wait_leading()
    done = cluster.reprieve("cleanup", "-n", namespace)
    assert done.returncode == 2
    assert "the operator is running" in done.stderr
    assert operator.stop() == 0

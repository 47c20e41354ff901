"""`reprieve cleanup` on a real API server, with the operator stopped, as for an uninstall."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from reprieve_policy.lifecycle import suspension
from reprieve_policy.lifecycle.suspension import SuspensionRecord
from reprieve_testing.cluster.handle import ClusterHandle, Json

pytestmark = pytest.mark.cluster

KOORDINATOR = "scheduling.koordinator.sh/soft-eviction"


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("cli") as name:
        yield name


def test_every_trace_on_pods_is_removed_before_an_uninstall(
    cluster: ClusterHandle, namespace: str
) -> None:
    traces = {
        "reprieve.dev/eviction": '{"v":1}',
        "reprieve.dev/checkpoint-request": "{}",
        "reprieve.dev/checkpoint": "none",
        "reprieve.dev/preemptor": "uid-of-high",
        KOORDINATOR: '{"initiator":"kube-scheduler","reason":"preempted by pod uid-of-high"}',
    }
    labels = {"reprieve.dev/soft-eviction": "hinted", "reprieve.dev/preemption-class": "3"}
    finalizers = ["reprieve.dev/cleanup", "example.com/other"]
    cluster.create_pod(
        namespace, "traced", labels=labels, annotations=traces, finalizers=finalizers
    )
    cluster.create_pod(namespace, "clean")
    cluster.create_pod(
        namespace, "others", annotations={KOORDINATOR: '{"initiator":"koord-descheduler"}'}
    )
    gated = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "gated",
            "namespace": namespace,
            "labels": {"reprieve.dev/gang-gate": "waiting"},
        },
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
    pods = {
        pod["metadata"]["name"]: pod
        for pod in cluster.kubectl.get("pods", "-n", namespace)["items"]
    }
    left = pods["traced"]["metadata"]
    assert left["labels"] == {"reprieve.dev/preemption-class": "3"}
    assert left["annotations"] == {"reprieve.dev/checkpoint": "none"}
    assert left["finalizers"] == ["example.com/other"]
    assert KOORDINATOR in pods["others"]["metadata"]["annotations"]
    assert [gate["name"] for gate in pods["gated"]["spec"]["schedulingGates"]] == [
        "example.com/other"
    ]
    assert cluster.reprieve("cleanup", "-n", namespace, "--force").stdout == ""


def test_owners_keep_no_annotation_of_reprieve(cluster: ClusterHandle, namespace: str) -> None:
    saved = {"reprieve.dev/last-checkpoint-at": "2026-11-21T12:00:00Z", "example.com/own": "x"}
    ledger = {
        "labels": {"reprieve.dev/ledger": "true"},
        "annotations": {"reprieve.dev/ledger": "{}", **saved},
    }
    owners = {"Job": ledger, "StatefulSet": ledger, "ReplicaSet": {"annotations": saved}}
    for kind, metadata in owners.items():
        cluster.kubectl.apply(an_owner(kind, namespace, metadata))
    done = cluster.reprieve("cleanup", "-n", namespace, "--force")
    wanted = {f"{namespace}/{kind.lower()}/owner cleaned" for kind in owners}
    assert (set(done.stdout.splitlines()), done.returncode) == (wanted, 0)
    for kind in owners:
        left = cluster.kubectl.get(kind, "owner", "-n", namespace)["metadata"]
        assert [
            key
            for key in (*left.get("labels", {}), *left["annotations"])
            if key.startswith("reprieve.dev/")
        ] == []
        assert left["annotations"]["example.com/own"] == "x"
    assert cluster.reprieve("cleanup", "-n", namespace, "--force").stdout == ""


def an_owner(kind: str, namespace: str, metadata: Json) -> Json:
    """Return an object of a kind that makes pods, and makes none."""
    pod: Json = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    spec: Json = {"suspend": True, "template": {"spec": pod}}
    if kind != "Job":
        labels = {"app": "owner"}
        template = {"metadata": {"labels": labels}, "spec": pod | {"restartPolicy": "Always"}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "owner", "namespace": namespace, **metadata},
        "spec": spec,
    }


@pytest.mark.parametrize("is_ours", [True, False], ids=["by us", "by another client since"])
def test_a_suspended_job_is_resumed(
    cluster: ClusterHandle, namespace: str, *, is_ours: bool
) -> None:
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    }
    since = datetime.now(UTC) if is_ours else datetime(2026, 1, 1, tzinfo=UTC)
    hold = suspension.render(
        SuspensionRecord(since, since + timedelta(hours=1), generation=1 if is_ours else 2)
    )
    held = {
        "labels": {"reprieve.dev/suspended": "true"},
        "annotations": {"reprieve.dev/suspended": hold},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace, **held},
    }
    cluster.kubectl.apply(job | {"spec": {"suspend": True, "template": template}})
    done = cluster.reprieve("cleanup", "-n", namespace, "--force")
    assert f"{namespace}/job/train cleaned" in done.stdout.splitlines()
    resumed = cluster.kubectl.get("job", "train", "-n", namespace)
    assert resumed["spec"]["suspend"] is not is_ours
    assert "reprieve.dev/suspended" not in resumed["metadata"].get("labels", {})


def test_a_pending_replacement_of_a_bare_pod_is_reported_and_kept(
    cluster: ClusterHandle, namespace: str
) -> None:
    name = f"bare-pod-uid-of-train-{namespace}"
    kept = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": "reprieve-system",
            "labels": {"reprieve.dev/bare-pod": namespace},
            "annotations": {"reprieve.dev/bare-pod": "train"},
        },
        "revision": 1,
        "data": {"pod": {}},
    }
    cluster.kubectl.apply(kept)
    where = ("controllerrevision", name, "-n", "reprieve-system")
    place = f"controllerrevision/{name} in namespace reprieve-system"
    told = f"{namespace}/pod/train is still to be recreated: its manifest is only in {place}\n"
    try:
        done = cluster.reprieve("cleanup", "-n", namespace, "--force")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", told)
        assert told in cluster.reprieve("cleanup", "--dry-run", "--force").stderr
        assert cluster.reprieve("cleanup", "-n", "default", "--force").stderr == ""
        assert cluster.kubectl.find(*where) is not None
    finally:
        cluster.kubectl.read("delete", *where)


def test_nothing_is_removed_while_an_operator_runs(cluster: ClusterHandle, namespace: str) -> None:
    cluster.set_policy()
    operator = cluster.start_operator()
    operator.wait_leading()
    done = cluster.reprieve("cleanup", "-n", namespace)
    assert done.returncode == 2
    assert "the operator is running" in done.stderr
    shown = cluster.reprieve("cleanup", "-n", namespace, "--dry-run")
    assert (shown.returncode, "the operator is running" in shown.stderr) == (0, True)
    assert operator.stop() == 0

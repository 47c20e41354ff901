"""From the DELETE on: what holds a victim, for how long, and what it leaves, however it ended."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from reprieve_testing.cluster.handle import CONTROLLER, ClusterHandle, Program, wait_for
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = pytest.mark.cluster

HTTP = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "60s"}
SOFT_EVICTION = "reprieve.dev/soft-eviction"
CEILING_SECONDS = 2


@pytest.fixture(scope="module")
def operator(cluster: ClusterHandle) -> Iterator[Program]:
    """One that holds its victims, for a moment."""
    cluster.set_policy()
    program = cluster.start_operator(
        cleanup_ceiling_seconds=CEILING_SECONDS, resync_interval_seconds=0.5
    )
    program.wait_leading()
    yield program
    assert program.stop() == 0


@pytest.fixture
def namespace(cluster: ClusterHandle, operator: Program) -> Iterator[str]:
    assert operator.process.poll() is None
    with cluster.namespace("departure") as name:
        yield name


def start_job(cluster: ClusterHandle, namespace: str, **annotations: str) -> Any:
    """Create a Job of one pod and return that once it runs."""
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    policy = {f"reprieve.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    template = {"metadata": {"annotations": policy}, "spec": spec}
    metadata = {"name": "train", "namespace": namespace}
    cluster.kubectl.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {"template": template},
        }
    )

    def running() -> Any:
        pods = cluster.kubectl.get("pods", "-n", namespace, "-l", "job-name=train")["items"]
        return next((pod for pod in pods if pod["status"].get("podIP")), None)

    return wait_for("the Job's pod", running)


def ledger_of(cluster: ClusterHandle, namespace: str) -> Any:
    annotations = cluster.kubectl.get("job", "train", "-n", namespace)["metadata"].get(
        "annotations", {}
    )
    return (
        json.loads(annotations["reprieve.dev/ledger"])
        if "reprieve.dev/ledger" in annotations
        else None
    )


def notes(cluster: ClusterHandle, namespace: str, reason: str) -> list[str]:
    items = cluster.kubectl.get("events.v1.events.k8s.io", "-n", namespace)["items"]
    return [
        item["note"]
        for item in items
        if (item.get("reportingController"), item["reason"]) == (CONTROLLER, reason)
    ]


def end_with(cluster: ClusterHandle, namespace: str, name: str, phase: str) -> None:
    """Let a simulated pod end by itself."""
    patch = json.dumps({"status": {"phase": phase}})
    cluster.kubectl.read(
        "patch", "pod", name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch
    )


def create_unfinished_pod(cluster: ClusterHandle, namespace: str, name: str) -> None:
    """Create a pod whose node has no kubelet, and report it as running in the kubelet's place."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"reprieve.dev/checkpoint-hint": "annotation:"},
        },
        "spec": {"nodeName": "nowhere", "containers": [{"name": "main", "image": "none"}]},
    }
    cluster.kubectl.read("create", "-f", "-", stdin=json.dumps(pod))
    running = {
        "name": "main",
        "image": "none",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {}},
    }
    patch = json.dumps({"status": {"phase": "Running", "containerStatuses": [running]}})
    cluster.kubectl.read(
        "patch", "pod", name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch
    )


def test_our_finalizer_is_removed_at_its_ceiling(cluster: ClusterHandle, namespace: str) -> None:
    create_unfinished_pod(cluster, namespace, "hangs")
    cluster.mark(namespace, "hangs")
    hinted = cluster.wait_phase(namespace, "hangs", "hinted")
    assert hinted["metadata"]["finalizers"] == ["reprieve.dev/cleanup"]
    request = json.loads(hinted["metadata"]["annotations"]["reprieve.dev/checkpoint-request"])
    answer = json.dumps({"state": "saved", "id": request["id"]})
    cluster.annotate(namespace, "hangs", f"reprieve.dev/checkpoint-answer={answer}")
    wait_for("Event", lambda: "CleanupCeilingReached" in cluster.event_reasons(namespace, "hangs"))
    wait_for(
        "let go",
        lambda: (
            not (cluster.pod(namespace, "hangs") or {"metadata": {}})["metadata"].get("finalizers")
        ),
    )
    assert cluster.event_reasons(namespace, "hangs").count("CleanupCeilingReached") == 1
    cluster.kubectl.read("delete", "pod", "hangs", "-n", namespace, "--grace-period=0", "--force")


def test_our_finalizer_does_not_block_the_deletion_of_a_namespace(
    cluster: ClusterHandle, namespace: str
) -> None:
    pods = [
        cluster.create_pod(namespace, f"held-{number}", annotations=HTTP) for number in range(3)
    ]
    for pod in pods:
        cluster.mark(namespace, pod["metadata"]["name"])
        held = cluster.wait_phase(namespace, pod["metadata"]["name"], "hinted")
        assert held["metadata"]["finalizers"] == ["reprieve.dev/cleanup"]
    cluster.kubectl.read("delete", "namespace", namespace, "--wait=false")
    wait_for("the namespace is gone", lambda: cluster.kubectl.find("namespace", namespace) is None)
    cluster.kubectl.read("create", "namespace", namespace)


def test_foreign_finalizers_are_reported_once_a_minute_at_most(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "held", finalizers=["example.com/disk", "example.com/network"])
    cluster.mark(namespace, "held")
    wait_for("Event", lambda: notes(cluster, namespace, "WaitingForFinalizers"))
    # As long again as the first Event took, and several reconciliations.
    cluster.create_pod(namespace, "witness", finalizers=["example.com/other"])
    cluster.mark(namespace, "witness")
    wait_for("Event", lambda: "WaitingForFinalizers" in cluster.event_reasons(namespace, "witness"))
    assert cluster.event_reasons(namespace, "held").count("WaitingForFinalizers") == 1
    (note_about_disk,) = [
        note for note in notes(cluster, namespace, "WaitingForFinalizers") if "disk" in note
    ]
    held = r'"example\.com/disk" \(held for \d+s\), "example\.com/network" \(held for \d+s\)'
    assert re.search(held, note_about_disk)


def test_a_victim_that_declines_a_replacement_leaves_no_ledger(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = start_job(cluster, namespace, requeue="never")
    cluster.mark(namespace, pod["metadata"]["name"])
    cluster.wait_gone(namespace, pod["metadata"]["name"])
    assert ledger_of(cluster, namespace) is None


def test_the_owner_of_a_victim_without_replacement_has_the_time_of_its_checkpoint(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = start_job(cluster, namespace, checkpoint_hint=HINT, requeue="never")
    name = pod["metadata"]["name"]
    with Workload(pod["status"]["podIP"], on_post={"state": "saved", "path": "/data/7"}):
        cluster.mark(namespace, name)
        cluster.wait_gone(namespace, name)
    (kept,) = kept_on_owner(cluster, namespace).items()
    assert kept[0] == "reprieve.dev/last-checkpoint-at"
    assert datetime.fromisoformat(kept[1]) <= datetime.now(UTC)
    assert len(cluster.audit(namespace, name)) <= 5


def test_the_owner_has_the_checkpoint_time_of_a_gang_pod_that_finishes_or_stays(
    cluster: ClusterHandle, namespace: str
) -> None:
    owner = an_idle_job(cluster, namespace)
    gang: dict[str, Any] = {
        "labels": {"pod-group.scheduling.sigs.k8s.io": "train"},
        "annotations": HTTP,
    }
    addresses = {
        name: cluster.create_pod(namespace, name, ownerReferences=[owner], **gang)["status"][
            "podIP"
        ]
        for name in ("finishes", "stays", "saves")
    }
    with ExitStack() as stack:
        workloads = {
            name: stack.enter_context(Workload(str(address))) for name, address in addresses.items()
        }
        cluster.mark(namespace, "saves")
        for name in ("finishes", "stays"):
            workloads[name].state = {"state": "saved"}
        saved = {
            name: saved_at(cluster.wait_phase(namespace, name, "saved"))
            for name in ("finishes", "stays")
        }
        assert kept_on_owner(cluster, namespace) == {}
        end_with(cluster, namespace, "finishes", "Succeeded")
        cluster.wait_phase(namespace, "finishes", "finished")
        assert kept_on_owner(cluster, namespace) == {
            "reprieve.dev/last-checkpoint-at": saved["finishes"]
        }
        cluster.kubectl.read("label", "pod", "saves", "-n", namespace, f"{SOFT_EVICTION}-")
        wait_for(
            "it stays",
            lambda: (
                SOFT_EVICTION
                not in cluster.kubectl.get("pod", "stays", "-n", namespace)["metadata"]["labels"]
            ),
        )
        latest = max(saved.values(), key=datetime.fromisoformat)
        assert kept_on_owner(cluster, namespace) == {"reprieve.dev/last-checkpoint-at": latest}


def an_idle_job(cluster: ClusterHandle, namespace: str) -> Any:
    """Create a Job that no controller works for, and return a reference to it."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    metadata = {"name": "train", "namespace": namespace}
    spec = {"managedBy": "example.com/nobody", "template": {"spec": pod}}
    cluster.kubectl.apply(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    )
    uid = cluster.kubectl.get("job", "train", "-n", namespace)["metadata"]["uid"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": uid,
        "controller": True,
    }


def kept_on_owner(cluster: ClusterHandle, namespace: str) -> dict[str, str]:
    """Return those of the Job's annotations that are Reprieve's."""
    annotations = cluster.kubectl.get("job", "train", "-n", namespace)["metadata"].get(
        "annotations", {}
    )
    return {key: text for key, text in annotations.items() if key.startswith("reprieve.dev/")}


def saved_at(pod: Any) -> str:
    return str(
        json.loads(pod["metadata"]["annotations"]["reprieve.dev/eviction"])["checkpoint"]["at"]
    )


@contextmanager
def jobs_cannot_be_changed(cluster: ClusterHandle, namespace: str) -> Iterator[None]:
    """Add another project's webhook for Jobs that fails closed, without a server, for the block."""
    webhook = {
        "name": "down.test.reprieve.dev",
        "clientConfig": {"url": "https://127.0.0.1:1/validate"},
        "rules": [
            {
                "apiGroups": ["batch"],
                "apiVersions": ["v1"],
                "operations": ["UPDATE"],
                "resources": ["jobs"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
    }
    kind = "ValidatingWebhookConfiguration"
    document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": namespace},
    }
    cluster.kubectl.apply({**document, "webhooks": [webhook]})
    try:
        yield
    finally:
        cluster.kubectl.read("delete", kind, namespace)


@pytest.mark.slow
def test_an_owner_that_refuses_writes_delays_a_victim_for_a_minute_at_most(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = start_job(cluster, namespace, checkpoint_hint=HINT, checkpoint_timeout="60s")
    name = pod["metadata"]["name"]
    with jobs_cannot_be_changed(cluster, namespace):
        refused = ("annotate", "job", "train", "-n", namespace, "example.com/a=b", "--overwrite")
        wait_for(
            "the webhook is asked",
            lambda: "failed calling webhook" in cluster.kubectl.run(*refused).output,
        )
        with Workload(
            pod["status"]["podIP"], on_post={"state": "saved", "step": 9, "path": "/data/9"}
        ):
            cluster.mark(namespace, name)
            cluster.wait_gone(namespace, name, seconds=120)
        wait_for(
            "Event", lambda: "SoftEvictionNotCounted" in cluster.event_reasons(namespace, name)
        )
    assert ledger_of(cluster, namespace) is None


def test_a_victim_that_fails_after_the_hint_leaves_the_same_ledger_as_a_deleted_one(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = start_job(cluster, namespace, checkpoint_hint=HINT)
    with Workload(pod["status"]["podIP"]):
        cluster.mark(namespace, pod["metadata"]["name"])
        cluster.wait_phase(namespace, pod["metadata"]["name"], "checkpointing")
        end_with(cluster, namespace, pod["metadata"]["name"], "Failed")
        cluster.wait_phase(namespace, pod["metadata"]["name"], "finished")
    assert ledger_of(cluster, namespace)["slots"][""]["count"] == 1


def test_a_victim_that_finishes_after_the_hint_leaves_no_ledger(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = start_job(cluster, namespace, checkpoint_hint=HINT)
    with Workload(pod["status"]["podIP"]):
        cluster.mark(namespace, pod["metadata"]["name"])
        cluster.wait_phase(namespace, pod["metadata"]["name"], "checkpointing")
        end_with(cluster, namespace, pod["metadata"]["name"], "Succeeded")
        cluster.wait_phase(namespace, pod["metadata"]["name"], "finished")
    assert ledger_of(cluster, namespace) is None

"""A pod may fill its annotations, all 262,144 bytes of them, and so take the room of the eviction's state: it still goes."""

import json
from collections.abc import Iterator

import pytest

from reprieve_testing.cluster import ClusterHandle, Json, wait_for

pytestmark = pytest.mark.cluster

LIMIT = 262_144
FULL = {"example.com/pad": "x" * (LIMIT - len("example.com/pad"))}
HELD = ["example.com/other"]
ASKED_BY_ANNOTATION = {"reprieve.dev/checkpoint-hint": "annotation:", "reprieve.dev/checkpoint-timeout": "2s"}


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    cluster.set_policy()
    operator = cluster.start_operator(cleanup_finalizer=True)
    operator.wait_leading()
    with cluster.namespace("room") as name:
        yield name
    assert operator.stop() == 0


def size(pod: Json) -> int:
    return sum(len(key) + len(value.encode()) for key, value in pod["metadata"]["annotations"].items())


def deleted(cluster: ClusterHandle, namespace: str, name: str) -> Json | None:
    pod = cluster.pod(namespace, name)
    return pod if pod and "deletionTimestamp" in pod["metadata"] else None


def disruption(pod: Json) -> list[str]:
    return [found["status"] for found in pod["status"]["conditions"] if found["type"] == "DisruptionTarget"]


def test_a_pod_without_room_for_a_state_goes_without_notice_and_says_so(cluster: ClusterHandle, namespace: str) -> None:
    hint = {"reprieve.dev/checkpoint-hint": "http://:8080/", "reprieve.dev/checkpoint-timeout": "9m"}
    used = sum(map(len, [*hint, *hint.values(), *FULL]))
    cluster.create_pod(namespace, "full", annotations=hint | {"example.com/pad": "x" * (LIMIT - used)}, finalizers=HELD)
    cluster.mark(namespace, "full")
    pod = wait_for("DELETE", lambda: deleted(cluster, namespace, "full"))
    assert disruption(pod) == ["True"]
    assert [entry.what for entry in cluster.audit(namespace, "full") if entry.status < 300] == [
        "patch status",
        "delete",
    ]
    told = ["SoftEvictionWithoutNotice", "SoftEvictionDeleting"]
    wait_for("Events", lambda: cluster.event_reasons(namespace, "full")[:2] == told)


def test_a_pod_that_wants_no_checkpoint_goes_also_without_room(cluster: ClusterHandle, namespace: str) -> None:
    cluster.create_pod(namespace, "plain", annotations=FULL, finalizers=HELD)
    cluster.mark(namespace, "plain")
    assert disruption(wait_for("DELETE", lambda: deleted(cluster, namespace, "plain"))) == ["True"]


def test_room_that_is_taken_after_the_hint_delays_nothing_and_leaves_no_finalizer(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "late", annotations=ASKED_BY_ANNOTATION)
    cluster.mark(namespace, "late")
    hinted = cluster.wait_phase(namespace, "late", "hinted")
    assert hinted["metadata"]["finalizers"] == ["reprieve.dev/cleanup"]
    taken = json.dumps({"metadata": {"annotations": {"pad": "x" * (LIMIT - size(hinted) - len("pad"))}}})
    cluster.kubectl.read(
        "patch", "pod", "late", "-n", namespace, "--type=merge", "--patch-file=/dev/stdin", stdin=taken
    )
    cluster.wait_gone(namespace, "late")
    deletes = [entry for entry in cluster.audit(namespace, "late") if entry.verb == "delete"]
    assert [entry.status for entry in deletes] == [200]

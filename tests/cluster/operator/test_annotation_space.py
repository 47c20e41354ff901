"""A pod whose annotations leave no room for a state is still evicted.

It may fill all 262,144 bytes of its annotations, or all that etcd accepts.
"""

import json
from collections.abc import Iterator

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, Json, wait_for

pytestmark = pytest.mark.cluster

LIMIT = 262_144
FULL = {"example.com/pad": "x" * (LIMIT - len("example.com/pad"))}
HELD = ["example.com/other"]
ALMOST_ALL_OF_ETCDS = [{"name": f"V{number}", "value": "x" * 140_000} for number in range(10)]
"""Of 1.5 MiB: annotations fill the rest."""
MARK, AS_LONG_AS_THE_MARK = "reprieve.dev/soft-eviction", "example.com/soft-evictions"
SPACE_FOR_A_DELETE = 64
"""Bytes: the API server writes when, and with which grace. A state takes 500, the condition 200."""
HINTED_BY_ANNOTATION = {
    "reprieve.dev/checkpoint-hint": "annotation:",
    "reprieve.dev/checkpoint-timeout": "6s",
}


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    cluster.set_policy()
    operator = cluster.start_operator()
    operator.wait_leading()
    with cluster.namespace("room") as name:
        yield name
    assert operator.stop() == 0


def size(pod: Json) -> int:
    return sum(
        len(key) + len(value.encode()) for key, value in pod["metadata"]["annotations"].items()
    )


def pad(
    cluster: ClusterHandle, namespace: str, name: str, length: int, **labels: str | None
) -> bool:
    """Set an annotation of this length, and labels; return `False` if they do not fit."""
    text = json.dumps({"metadata": {"annotations": {"pad": "x" * length}, "labels": labels}})
    words = ("patch", "pod", name, "-n", namespace, "--type=merge", "--patch-file=/dev/stdin")
    done = cluster.kubectl.run(*words, stdin=text)
    assert not done.status or "request is too large" in done.output, done.output
    return not done.status


def deleted(cluster: ClusterHandle, namespace: str, name: str) -> Json | None:
    pod = cluster.pod(namespace, name)
    return pod if pod and "deletionTimestamp" in pod["metadata"] else None


def disruption(pod: Json) -> list[str]:
    return [
        found["status"]
        for found in pod["status"]["conditions"]
        if found["type"] == "DisruptionTarget"
    ]


def test_a_pod_without_space_for_a_state_is_deleted_without_notice_and_an_event_says_so(
    cluster: ClusterHandle, namespace: str
) -> None:
    hint = {
        "reprieve.dev/checkpoint-hint": "http://:8080/",
        "reprieve.dev/checkpoint-timeout": "9m",
    }
    used = sum(map(len, [*hint, *hint.values(), *FULL]))
    cluster.create_pod(
        namespace,
        "full",
        annotations=hint | {"example.com/pad": "x" * (LIMIT - used)},
        finalizers=HELD,
    )
    cluster.mark(namespace, "full")
    pod = wait_for("DELETE", lambda: deleted(cluster, namespace, "full"))
    assert disruption(pod) == ["True"]
    assert [entry.what for entry in cluster.audit(namespace, "full") if entry.status < 300] == [
        "patch status",
        "delete",
    ]
    reasons = ["SoftEvictionWithoutNotice", "SoftEvictionDeleting"]
    wait_for("Events", lambda: cluster.event_reasons(namespace, "full")[:2] == reasons)


def test_a_pod_without_a_checkpoint_is_deleted_even_without_space(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "plain", annotations=FULL, finalizers=HELD)
    cluster.mark(namespace, "plain")
    assert disruption(wait_for("DELETE", lambda: deleted(cluster, namespace, "plain"))) == ["True"]


def test_space_that_is_used_up_after_the_hint_delays_nothing_and_leaves_no_finalizer(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "late", annotations=HINTED_BY_ANNOTATION)
    cluster.mark(namespace, "late")
    hinted = cluster.wait_phase(namespace, "late", "hinted")
    assert hinted["metadata"]["finalizers"] == ["reprieve.dev/cleanup"]
    taken = json.dumps(
        {"metadata": {"annotations": {"pad": "x" * (LIMIT - size(hinted) - len("pad"))}}}
    )
    cluster.kubectl.read(
        "patch",
        "pod",
        "late",
        "-n",
        namespace,
        "--type=merge",
        "--patch-file=/dev/stdin",
        stdin=taken,
    )
    cluster.wait_gone(namespace, "late")
    deletes = [entry for entry in cluster.audit(namespace, "late") if entry.verb == "delete"]
    assert [entry.status for entry in deletes] == [200]


def test_a_pod_as_large_as_etcd_accepts_is_deleted_without_a_write(
    cluster: ClusterHandle, namespace: str
) -> None:
    hint = {"reprieve.dev/checkpoint-hint": "annotation:", "reprieve.dev/checkpoint-timeout": "9m"}
    spec = {"containers": [{"name": "main", "image": "none", "env": ALMOST_ALL_OF_ETCDS}]}
    cluster.create_pod(namespace, "large", annotations=hint, finalizers=HELD, spec=spec)
    fits, too_long = 0, LIMIT - 1000
    assert pad(cluster, namespace, "large", fits, **{AS_LONG_AS_THE_MARK: "requested"})
    assert not pad(cluster, namespace, "large", too_long), "it is no larger than a pod may be"
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        fits, too_long = (
            (middle, too_long) if pad(cluster, namespace, "large", middle) else (fits, middle)
        )
    marked = {AS_LONG_AS_THE_MARK: None, MARK: "requested"}
    assert pad(cluster, namespace, "large", fits - SPACE_FOR_A_DELETE, **marked)
    wait_for("DELETE", lambda: deleted(cluster, namespace, "large"))
    written = cluster.audit(namespace, "large")
    assert [entry.what for entry in written if entry.status < 300] == ["delete"]
    assert {entry.status for entry in written if entry.status >= 300} == {500}
    wait_for(
        "Event", lambda: "SoftEvictionWithoutNotice" in cluster.event_reasons(namespace, "large")
    )


def test_a_finished_pod_is_released_even_if_no_state_can_be_written(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "done", annotations=FULL)
    ended = json.dumps({"status": {"phase": "Succeeded"}})
    cluster.kubectl.read(
        "patch", "pod", "done", "-n", namespace, "--subresource=status", "--type=merge", "-p", ended
    )
    cluster.mark(namespace, "done")
    wait_for("Event", lambda: "SoftEvictionFinished" in cluster.event_reasons(namespace, "done"))
    pod = cluster.pod(namespace, "done")
    assert pod is not None
    # A phase without a state would be something that nothing bears out.
    assert "reprieve.dev/soft-eviction" not in pod["metadata"].get("labels", {})


def test_a_pod_that_is_spared_at_the_last_moment_is_written_once(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.set_policy(endWith="evict", ceiling="60s", checkpointTimeout="5s", maxDeferral="5s")
    cluster.create_pod(namespace, "kept", labels={"app": "db"}, annotations=FULL)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}
    metadata = {"name": "db", "namespace": namespace}
    cluster.kubectl.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata,
            "spec": spec,
        }
    )
    cluster.mark(namespace, "kept")
    wait_for("Event", lambda: "WaitingForBudget" in cluster.event_reasons(namespace, "kept"))
    cluster.kubectl.read("label", "pod", "kept", "-n", namespace, "reprieve.dev/soft-eviction-")
    wait_for("Event", lambda: "SoftEvictionCancelled" in cluster.event_reasons(namespace, "kept"))

    # The next victim is seen through while the first would be written again and again.
    cluster.create_pod(namespace, "next")
    cluster.mark(namespace, "next")
    cluster.wait_gone(namespace, "next")
    accepted = [entry.what for entry in cluster.audit(namespace, "kept") if entry.status < 300]
    assert accepted == ["patch"]
    assert cluster.event_reasons(namespace, "kept").count("SoftEvictionCancelled") == 1

"""What the guard keeps of the pods that it reads: what decisions depend on, however large."""

from typing import Any

import msgspec
import pytest

from reprieve_policy import keys
from reprieve_policy.lifecycle.eviction import Phase, render
from reprieve_testing.objects.builders import after, an_eviction
from reprieve_webhooks.guard.objects import GuardedPod, prune, read_marked_pods
from reprieve_webhooks.guard.review_context import observed_target
from reprieve_webhooks.snapshot.pod_pruning import MAX_ENCODED_BYTES

MANY = range(20_000)
STATE = an_eviction().in_phase(Phase.HINTED, deadline=after(60)).build()
MARKS: Any = {
    "labels": {keys.SOFT_EVICTION: "hinted", keys.KOORDINATOR_SOFT_EVICTION: "true"},
    "annotations": {
        keys.EVICTION: render(STATE),
        keys.KOORDINATOR_SOFT_EVICTION: "true",
        keys.PREEMPTOR: "uid-of-high",
    },
}
CONDITIONS = [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}]
LARGE: dict[str, Any] = {
    "labels": {"metadata": {"labels": {f"l{number}": "" for number in MANY}}},
    "annotations": {"metadata": {"annotations": {f"a{number}": "" for number in MANY}}},
    "finalizers": {"metadata": {"finalizers": [f"a.b/{number}" for number in MANY]}},
    "tolerations": {"spec": {"tolerations": [{"key": f"k{number}"} for number in MANY]}},
    "ports": {"spec": {"containers": [{"ports": [{"hostPort": 1 + n} for n in MANY]}]}},
}


def a_pod(large: Any = None, **metadata: Any) -> Any:
    large = large or {}
    named = {"name": "train", "namespace": "team-a", "uid": "uid-of-train", "resourceVersion": "7"}
    merged = {
        part: MARKS[part] | large.get("metadata", {}).get(part, {})
        for part in ("labels", "annotations")
    }
    return {
        "metadata": large.get("metadata", {}) | named | merged | metadata,
        "spec": large.get("spec", {}) | {"nodeName": "node-1", "priority": 5},
        "status": {"phase": "Running", "conditions": CONDITIONS},
    }


@pytest.mark.parametrize("large", LARGE.values(), ids=LARGE)
def test_little_is_kept_of_a_large_pod_that_is_evicted(large: Any) -> None:
    """Without this, a user who evicts some dozens of pods would take all memory of the webhooks."""
    pod = prune(msgspec.convert(a_pod(large), GuardedPod))
    assert len(msgspec.json.encode(pod)) < 3 * MAX_ENCODED_BYTES
    assert (pod.uid, pod.node, pod.metadata.resourceVersion) == ("uid-of-train", "node-1", "7")
    assert (pod.state, pod.spec.priority) == (STATE, 5)
    # Its budget asks whether it is ready.
    assert [one.type for one in pod.status.conditions or ()] == ["Ready"]


@pytest.mark.parametrize("large", LARGE.values(), ids=LARGE)
def test_of_a_pod_under_eviction_only_its_marks_its_state_and_its_place_are_read(
    large: Any,
) -> None:
    """Without this, a user who marks some dozens of pods would take all memory at a preemption."""
    documents = [a_pod(large), a_pod(large, deletionTimestamp="2026-11-21T12:00:00Z")]
    for document in documents:
        document["spec"]["schedulingGroup"] = {"podGroupName": "group"}
    pods = read_marked_pods(msgspec.json.encode({"items": documents}))
    assert all(len(msgspec.json.encode(pod)) < 3000 for pod in pods)
    for pod, document in zip(pods, documents, strict=True):
        whole = msgspec.convert(a_pod() | {"spec": document["spec"]}, GuardedPod)
        assert (pod.uid, pod.node, pod.metadata.namespace) == ("uid-of-train", "node-1", "team-a")
        assert pod.spec.schedulingGroup == whole.spec.schedulingGroup
        assert pod.view.annotations == MARKS["annotations"]
        assert pod.has_pending_mark == whole.has_pending_mark
        target = observed_target(pod)
        assert (target.state, target.has_started) == (STATE, True)
        assert target.is_terminating is ("deletionTimestamp" in document["metadata"])


def test_a_list_without_pods_is_read() -> None:
    assert read_marked_pods(b'{"items": null}') == []
    (bare,) = read_marked_pods(b'{"items": [{"metadata": {"name": "p", "namespace": "t"}}]}')
    assert (bare.uid, bare.node, bare.state, bare.has_pending_mark) == ("", "", None, False)

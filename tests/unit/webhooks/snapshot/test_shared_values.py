"""What the cached pods of a template share, and that they are the same pods as without it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.facts import Facts
from reprieve_policy.kube.conditions import Condition
from reprieve_policy.kube.pods import Pod, PodStatus
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import GangKey, ScheduledPod
from reprieve_testing.objects.builders import NOW
from reprieve_webhooks.snapshot import encoded_pods, pod_pruning
from reprieve_webhooks.snapshot.shared_values import SharedValues

SHARED = ("namespace", "node", "cost_inputs", "loss_inputs", "amounts", "labels")


def a_pod(name: str, **metadata: Any) -> Pod:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "owner", "controller": True}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": f"uid-{name}",
                "labels": {"app": "web"},
                "ownerReferences": [owner],
                **metadata,
            },
            "spec": {"nodeName": "n", "containers": [container]},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
        },
        Pod,
    )


def read_again(pod: Pod) -> Pod:
    """Return the pod as another answer of the API server has it, in objects of its own."""
    return msgspec.json.decode(msgspec.json.encode(pod), type=Pod)


def scheduled(pod: Pod) -> ScheduledPod:
    return snapshot_builder.scheduled_pod_of(pod, Facts(), now=NOW)


TIMES = st.sampled_from([None, "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"])
CONDITIONS = st.builds(
    Condition,
    type=st.sampled_from(["PodScheduled", "DisruptionTarget", "Ready"]),
    status=st.sampled_from(["True", "False"]),
    reason=st.sampled_from([None, "Unschedulable"]),
    lastTransitionTime=TIMES,
)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Draw a pod as an API server has it, with fields that are not kept, too."""
    labels = st.none() | st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"))
    pod = a_pod(
        draw(st.sampled_from("ab")),
        labels=draw(labels),
        annotations=draw(st.sampled_from([None, {keys.EVICTION: "{}"}, {"x": "1"}])),
        finalizers=draw(st.none() | st.lists(st.text(max_size=3), max_size=2)),
        creationTimestamp=draw(TIMES),
        deletionTimestamp=draw(TIMES),
    )
    spec = replace(pod.spec, nodeName=draw(st.sampled_from([None, "n", "m"])))
    status = PodStatus(
        phase=draw(st.sampled_from(["", "Pending", "Running"])),
        startTime=draw(TIMES),
        nominatedNodeName=draw(st.sampled_from([None, "n"])),
        conditions=draw(st.none() | st.lists(CONDITIONS, max_size=2)),
    )
    return replace(pod, spec=spec, status=status)


@given(pods())
def test_a_pod_is_read_from_its_encoding_as_it_is_kept(pod: Pod) -> None:
    kept, encoded = pod_pruning.prune(pod)
    assert encoded_pods.decode(encoded) == kept


@given(pods(), pods())
def test_only_equal_pods_have_equal_encodings(first: Pod, second: Pod) -> None:
    (one, its_encoding), (other, encoding) = map(pod_pruning.prune, (first, second))
    assert (its_encoding == encoding) == (one == other)


def test_pods_of_a_template_share_their_labels_and_all_that_the_template_states() -> None:
    values = SharedValues()
    first, second = (
        values.of_encoded(encoded_pods.encode(read_again(a_pod(name)))) for name in "ab"
    )

    assert first.workload is second.workload
    assert first.spec is second.spec
    assert len(first.own) < 150


def test_of_its_status_a_pod_keeps_the_values_and_no_names_of_fields() -> None:
    scheduled_since = Condition(type="PodScheduled", status="True", lastTransitionTime="then")
    pod = a_pod("a")
    status = replace(pod.status, conditions=[scheduled_since])
    _, encoded = pod_pruning.prune(replace(pod, status=status))

    assert b"then" in encoded.own
    assert not [name for name in (b"phase", b"startTime", b"status") if name in encoded.own]


def test_pods_with_labels_of_their_own_share_an_equal_spec() -> None:
    """As those of a StatefulSet, or of an Indexed Job."""
    values = SharedValues()
    first, second = (
        values.of_encoded(encoded_pods.encode(read_again(a_pod(name, labels={"pod": name}))))
        for name in "ab"
    )

    assert first.spec is second.spec


@pytest.mark.parametrize("field", SHARED)
def test_pods_of_a_template_share_the_values_that_decisions_read(field: str) -> None:
    values = SharedValues()
    first, second = (values.of_pod(scheduled(read_again(a_pod(name)))) for name in "ab")

    assert getattr(first, field) is getattr(second, field)


@given(st.lists(pods(), max_size=5), st.integers(1, 20))
def test_a_pod_with_shared_values_is_equal_to_the_one_without(
    found: list[Pod], max_values: int
) -> None:
    values = SharedValues(max_values)
    for pod in found:
        assert values.of_pod(scheduled(read_again(pod))) == scheduled(pod)


def test_equal_tuples_of_different_types_are_not_confused() -> None:
    """Without this, a pod's gang might be another pod's quota, which has no such fields."""
    pod = scheduled(a_pod("a"))
    both = replace(pod, quota=("team", "x"), gang=GangKey("team", "x"))

    assert isinstance(SharedValues().of_pod(both).gang, GangKey)


def test_so_many_values_are_remembered_at_most() -> None:
    values = SharedValues(max_values=10)
    for number in range(100):
        values.of_pod(scheduled(a_pod("a", labels={"number": f"{number}"})))

    assert len(values._values) <= 10


def test_of_a_large_pod_that_is_gone_nothing_is_remembered() -> None:
    """Without this, who creates and deletes large pods would fill the memory."""
    values = SharedValues()
    large = a_pod("a", labels={f"label-{number}": "x" * 60 for number in range(100)})
    pod = values.of_pod(scheduled(large))
    values.of_encoded(encoded_pods.encode(large))

    assert pod.labels not in values._values.values()
    assert all(not isinstance(one, bytes) or len(one) < 5000 for one in values._values.values())


def test_no_text_that_only_others_read_is_kept_of_a_pod() -> None:
    """Without this, each beat of a controller's annotation would classify the pod again."""
    loud = {"cni.example.org/status": "x" * 1000}

    assert pod_pruning.prune(a_pod("a", annotations=loud)) == pod_pruning.prune(a_pod("a"))

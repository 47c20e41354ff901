"""What is kept of a pod in memory: enough to decide by, and no more, however large it is."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from reprieve_policy import keys
from reprieve_policy.facts import Facts
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.pods import Pod
from reprieve_policy.kube.values import quantity
from reprieve_policy.lifecycle.eviction import Phase, render
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import DryRunStatus, snapshot_builder
from reprieve_policy.preemption.selection.snapshot import ScheduledPod
from reprieve_testing.objects.builders import NOW, after, an_eviction
from reprieve_testing.objects.snapshots import a_node_info, a_scheduled_pod, a_snapshot
from reprieve_webhooks.snapshot import encoded_pods, pod_pruning

MANY = range(5000)


def an_asking(index: int, **asked: str) -> Any:
    """Return a container that asks for this."""
    return {"name": f"container-{index}", "resources": {"requests": asked, "limits": asked}}


STATE = render(an_eviction().in_phase(Phase.HINTED, deadline=after(60)).build())
LARGE: dict[str, Mapping[str, Any]] = {
    "annotations": {
        "metadata": {"annotations": {f"example.org/{index}": "a" * 4000 for index in range(63)}}
    },
    "labels": {"metadata": {"labels": {f"example.org/{index}": "a" * 63 for index in MANY}}},
    "owners": {
        "metadata": {
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": f"{index}"} for index in MANY]
        }
    },
    "one owner": {
        "metadata": {"ownerReferences": [{"kind": "Job", "uid": "x" * 200_000, "controller": True}]}
    },
    "conditions": {
        "status": {"conditions": [{"type": "PodScheduled", "status": "False"} for _ in MANY]}
    },
    "long texts of conditions": {
        "status": {
            "conditions": [
                {"type": kind, "status": "x" * 99_999, "reason": "x" * 99_999}
                for kind in ("PodScheduled", "DisruptionTarget")
            ]
        }
    },
    "a scheduler": {"spec": {"schedulerName": "x" * 200_000}},
    "finalizers": {"metadata": {"finalizers": [f"example.org/{index}" for index in MANY]}},
    "tolerations": {
        "spec": {"tolerations": [{"key": f"key-{index}", "operator": "Exists"} for index in MANY]}
    },
    "selectors": {"spec": {"nodeSelector": {f"example.org/{index}": "a" * 63 for index in MANY}}},
    "gates": {"spec": {"schedulingGates": [{"name": f"example.org/{index}"} for index in MANY]}},
    "claims": {"spec": {"resourceClaims": [{"name": f"claim-{index}"} for index in MANY]}},
    "volumes": {"spec": {"volumes": [{"name": f"volume-{index}"} for index in MANY]}},
    "volumes that limit its nodes": {
        "spec": {
            "volumes": [
                {"name": f"v-{index}", "persistentVolumeClaim": {"claimName": f"c-{index}"}}
                for index in MANY
            ]
        }
    },
    "variables": {
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "env": [{"name": f"N{index}", "value": "a" * 99} for index in MANY],
                }
            ]
        }
    },
    "containers": {"spec": {"containers": [an_asking(index, cpu="1m") for index in MANY]}},
    "init containers": {"spec": {"initContainers": [an_asking(index, cpu="1m") for index in MANY]}},
    "resources": {
        "spec": {
            "containers": [an_asking(index, **{f"example.org/{index}": "1"}) for index in MANY]
        }
    },
    "resources of long names": {
        "spec": {
            "containers": [an_asking(index, **{f"{'a' * 250}/{index}": "1"}) for index in MANY]
        }
    },
    "resources of the pod": {
        "spec": {"resources": {"requests": {f"example.org/{index}": "1" for index in MANY}}}
    },
    "overhead": {"spec": {"overhead": {f"example.org/{index}": "1" for index in MANY}}},
    "ports of the node": {
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "ports": [
                        {"hostPort": 1 + index, "hostIP": f"{'1234:' * 7}1234"} for index in MANY
                    ],
                }
            ]
        }
    },
}


def a_pod(*large_fields: Mapping[str, Any], node: str = "n") -> Pod:
    metadata: dict[str, Any] = {"name": "p", "namespace": "team", "uid": "u"}
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    spec: dict[str, Any] = {"nodeName": node, "priority": 9, "containers": [container]}
    for one in large_fields:
        for name, value in one.get("metadata", {}).items():
            metadata[name] = (
                {**metadata.get(name, {}), **value} if isinstance(value, dict) else value
            )
        spec |= one.get("spec", {})
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def kept(pod: Pod) -> ScheduledPod:
    return snapshot_builder.scheduled_pod_of(pod_pruning.prune(pod)[0], Facts(), now=NOW)


@pytest.mark.parametrize("large_fields", LARGE.values(), ids=LARGE)
def test_the_memory_of_each_pod_is_bounded(large_fields: Mapping[str, Any]) -> None:
    trimmed, packed = pod_pruning.prune(a_pod(large_fields))

    assert packed.size <= pod_pruning.MAX_ENCODED_BYTES
    assert len(snapshot_builder.scheduled_pod_of(trimmed, Facts(), now=NOW).amounts) <= 64
    assert encoded_pods.decode(packed) == trimmed


@pytest.mark.parametrize("source", ["emptyDir", "persistentVolumeClaim"])
def test_whether_volumes_limit_the_nodes_of_a_pod_is_kept(source: str) -> None:
    pod = a_pod({"spec": {"volumes": [{"name": "v", source: {}}]}}, node="")
    preemptor = snapshot_builder.preemptor_of(pod_pruning.prune(pod)[0], Facts())

    assert preemptor.volumes_limit_nodes == (source == "persistentVolumeClaim")


def test_the_memory_of_a_pod_is_bounded_where_every_field_is_large_and_read() -> None:
    read = sorted(text for name, text in vars(keys).items() if name.isupper() and "/" in text)
    large_fields = {
        "labels": dict.fromkeys(read, "a" * 63),
        "annotations": dict.fromkeys(read, "a" * 5000),
    }
    kept_whole = {
        "annotations": {key: "a" * (4096 if key in pod_pruning._MARK_KEYS else 256) for key in read}
    }
    ports = [{"hostPort": 1 + index, "hostIP": f"{'1234:' * 7}1234"} for index in MANY]
    gpus = [an_asking(index, **{f"{'a' * 50}{index:05}/gpu": "1234567n"}) for index in MANY]
    spec = {
        "spec": {"containers": [{"name": "main", "ports": ports}, *gpus], "nodeName": "n" * 253}
    }

    for metadata in (large_fields, large_fields | kept_whole):
        _, packed = pod_pruning.prune(a_pod({"metadata": metadata}, spec))
        assert packed.size <= 3 * pod_pruning.MAX_ENCODED_BYTES


def test_of_a_large_pod_what_a_policy_reads_is_kept() -> None:
    """Without this, a few more labels would keep a pod from being a victim, or count it twice."""
    policy_fields = {
        "metadata": {"labels": {keys.PREEMPTION_CLASS: "2"}, "annotations": {keys.EVICTION: STATE}}
    }
    small, large = kept(a_pod(policy_fields)), kept(a_pod(LARGE["labels"], policy_fields))

    assert large.labels == {keys.PREEMPTION_CLASS: "2"}
    assert large.release is not None
    assert (large.preemption_class, large.release.notified) == (2, True)
    assert (large.amounts, large.priority, large.progress) == (
        small.amounts,
        small.priority,
        small.progress,
    )


def test_of_a_pod_with_many_containers_the_requests_are_kept() -> None:
    many = [an_asking(index, cpu="1m", memory="1Ki", **{"example.org/0": "1"}) for index in MANY]
    sidecar = an_asking(0, cpu="500m") | {"restartPolicy": "Always"}
    pod = a_pod(
        {"spec": {"containers": many, "initContainers": [sidecar], "overhead": {"cpu": "100m"}}}
    )

    assert kept(pod).amounts == pod_requests.of_pod(pod.spec)


def test_of_many_requested_resources_the_usual_ones_and_devices_are_kept() -> None:
    unusual = [an_asking(index, **{f"a.org/{index}": "1"}) for index in MANY]
    usual = {
        "cpu": "4",
        "ephemeral-storage": "1Gi",
        "hugepages-2Mi": "2Mi",
        "memory": "5Gi",
        "nvidia.com/gpu": "8",
    }
    found = kept(a_pod({"spec": {"containers": [*unusual, an_asking(0, **usual)]}}))

    assert {name: quantity.render(found.amounts[name]) for name in usual} == usual
    assert found.cost_inputs.devices == 8


def test_of_many_host_ports_the_first_are_kept() -> None:
    found = kept(a_pod(LARGE["ports of the node"]))

    assert sorted(port.number for port in found.ports) == list(range(1, 33))


def test_a_usual_pod_keeps_all_its_labels() -> None:
    assert kept(a_pod({"metadata": {"labels": {"app": "web"}}})).labels == {"app": "web"}


def test_a_usual_pending_pod_is_the_same_preemptor_as_with_all_its_fields() -> None:
    pod = a_pod({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}, node="")
    preemptor = snapshot_builder.preemptor_of(pod, Facts())

    assert snapshot_builder.preemptor_of(pod_pruning.prune(pod)[0], Facts()) == preemptor


@pytest.mark.parametrize("what", ["tolerations", "selectors", "labels"])
def test_a_pending_pod_that_is_too_large_gets_no_victims(what: str) -> None:
    preemptor = snapshot_builder.preemptor_of(
        pod_pruning.prune(a_pod(LARGE[what], node=""))[0], Facts()
    )
    built = a_snapshot(a_node_info("n", a_scheduled_pod("low"), cpu=1)).build()

    assert selection.decide(preemptor, built, ["n"]).node_statuses == {"n": DryRunStatus.UNSUITABLE}

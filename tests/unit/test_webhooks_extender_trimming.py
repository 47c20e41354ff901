"""What is kept of a pod in memory: enough to decide by, and no more, however large it is."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from reprieve_policy import choosing, keys
from reprieve_policy.choosing import Obstacle, reading
from reprieve_policy.choosing.objects import Pod
from reprieve_policy.choosing.scene import Tenant
from reprieve_policy.eviction import Phase, render
from reprieve_policy.facts import Facts
from reprieve_testing.builders import NOW, after, an_eviction
from reprieve_testing.scenes import a_room, a_scene, a_tenant
from reprieve_webhooks.extender import trimming

MANY = range(5000)
STATE = render(an_eviction().in_phase(Phase.HINTED, deadline=after(60)).build())
LARGE: dict[str, Mapping[str, Any]] = {
    "annotations": {"metadata": {"annotations": {f"example.org/{index}": "a" * 4000 for index in range(63)}}},
    "labels": {"metadata": {"labels": {f"example.org/{index}": "a" * 63 for index in MANY}}},
    "owners": {"metadata": {"ownerReferences": [{"kind": "Job", "name": "j", "uid": f"{index}"} for index in MANY]}},
    "finalizers": {"metadata": {"finalizers": [f"example.org/{index}" for index in MANY]}},
    "tolerations": {"spec": {"tolerations": [{"key": f"key-{index}", "operator": "Exists"} for index in MANY]}},
    "selectors": {"spec": {"nodeSelector": {f"example.org/{index}": "a" * 63 for index in MANY}}},
    "gates": {"spec": {"schedulingGates": [{"name": f"example.org/{index}"} for index in MANY]}},
    "claims": {"spec": {"resourceClaims": [{"name": f"claim-{index}"} for index in MANY]}},
    "volumes": {"spec": {"volumes": [{"name": f"volume-{index}"} for index in MANY]}},
    "variables": {
        "spec": {"containers": [{"name": "main", "env": [{"name": f"N{index}", "value": "a" * 99} for index in MANY]}]}
    },
}


def a_pod(*said: Mapping[str, Any], node: str = "n") -> Pod:
    metadata: dict[str, Any] = {"name": "p", "namespace": "team", "uid": "u"}
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    spec: dict[str, Any] = {"nodeName": node, "priority": 9, "containers": [container]}
    for one in said:
        for name, value in one.get("metadata", {}).items():
            metadata[name] = {**metadata.get(name, {}), **value} if isinstance(value, dict) else value
        spec |= one.get("spec", {})
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def kept(pod: Pod) -> Tenant:
    return reading.tenant_of(trimming.trim(pod)[0], Facts(), now=NOW)


@pytest.mark.parametrize("said", LARGE.values(), ids=LARGE)
def test_no_pod_takes_more_memory_than_so_much(said: Mapping[str, Any]) -> None:
    trimmed, packed = trimming.trim(a_pod(said))

    assert len(packed) <= trimming.LARGEST
    assert msgspec.msgpack.decode(packed, type=Pod) == trimmed


def test_of_one_that_is_large_it_is_known_what_a_policy_reads() -> None:
    """Without this, a few more labels would keep a pod from being a victim, or have it be one twice."""
    told = {"metadata": {"labels": {keys.PREEMPTION_CLASS: "2"}, "annotations": {keys.EVICTION: STATE}}}
    small, large = kept(a_pod(told)), kept(a_pod(LARGE["labels"], told))

    assert large.labels == {keys.PREEMPTION_CLASS: "2"}
    assert (large.preemption_class, large.is_going, large.is_told) == (2, True, True)
    assert (large.amounts, large.priority, large.work) == (small.amounts, small.priority, small.work)


def test_one_that_is_usual_is_kept_with_all_its_labels() -> None:
    assert kept(a_pod({"metadata": {"labels": {"app": "web"}}})).labels == {"app": "web"}


@pytest.mark.parametrize("what", ["tolerations", "selectors", "labels"])
def test_one_that_waits_and_is_too_large_takes_nobody(what: str) -> None:
    preemptor = reading.preemptor_of(trimming.trim(a_pod(LARGE[what], node=""))[0], Facts())
    built = a_scene(a_room("n", a_tenant("low"), cpu=1)).build()

    assert choosing.decide(preemptor, built, ["n"]).obstacles == {"n": Obstacle.UNSUITABLE}

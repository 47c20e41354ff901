"""Little of a victim is kept, however large its pod is, and all that its eviction depends on."""

import gc
import json
import re
import tracemalloc
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from reprieve_operator.cluster import kept_pods, pod_state
from reprieve_operator.cluster.pods import MAX_ENTRIES, VictimPod
from reprieve_operator.gangs.gate_pods import GatePod, to_labelled_pod
from reprieve_policy import keys
from reprieve_policy.checkpointing import agent
from reprieve_policy.checkpointing.contract import MAX_ANSWER, CheckpointAnswer
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import dialects
from reprieve_policy.gangs.dialects import GangDialect
from reprieve_policy.kube.objects import annotations_of, controller_of, labels_of
from reprieve_policy.kube.pods import Pod
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import Eviction, Phase, Source
from reprieve_policy.lifecycle.mark import Mark
from reprieve_policy.preemption import cost
from reprieve_policy.preemption.selection import anti_affinity, node_fit
from reprieve_policy.verdict import Violation
from reprieve_testing import manifests
from reprieve_testing.objects.builders import NOW
from reprieve_testing.objects.snapshots import a_preemptor, a_scheduled_pod

MARKED = {keys.SOFT_EVICTION: "marked"}
MARK = {keys.KOORDINATOR_SOFT_EVICTION: "true"}
MANY = range(5000)
LARGE = "x" * 200_000


def a_pod(spec: Any = None, **metadata: Any) -> VictimPod:
    known = {"name": "p", "namespace": "team", "labels": MARKED, "annotations": MARK}
    document = {"metadata": known | metadata, "spec": spec or {}}
    return msgspec.convert(document, VictimPod)


def resources(count: int) -> Any:
    return {"requests": {f"example.com/r{number}": "1" for number in range(count)}}


LARGE_PODS = {
    "many labels": a_pod(labels=MARKED | {f"example.com/{number}": "x" * 60 for number in MANY}),
    "many short labels": a_pod(labels=MARKED | {f"{number:04}": "" for number in range(8000)}),
    "a large annotation": a_pod(annotations=MARK | {"example.com/note": LARGE}),
    "a large answer": a_pod(annotations=MARK | {keys.CHECKPOINT_ANSWER: LARGE}),
    "many finalizers": a_pod(finalizers=[f"example.com/{number:060}" for number in MANY]),
    "many owners": a_pod(
        ownerReferences=[
            {"apiVersion": "v1", "kind": "Thing", "name": f"thing-{number}", "uid": f"u{number}"}
            for number in MANY
        ]
    ),
    "a large owner": a_pod(
        ownerReferences=[{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": LARGE}]
    ),
    "many containers": a_pod({"containers": [{"name": f"c{number}"} for number in MANY]}),
    "many resources of a container": a_pod({"containers": [{"resources": resources(5000)}]}),
    "many containers with many resources": a_pod(
        {"containers": [{"resources": resources(64)} for _ in range(200)]}
    ),
    "many init containers with many resources": a_pod(
        {"initContainers": [{"resources": resources(64)} for _ in range(200)]}
    ),
    "many resources of the pod": a_pod({"resources": resources(5000)}),
    "a large overhead": a_pod({"overhead": resources(5000)["requests"]}),
}


@pytest.mark.parametrize("pod", LARGE_PODS.values(), ids=LARGE_PODS)
def test_little_of_a_large_pod_is_kept(pod: VictimPod) -> None:
    """Without this, a tenant who marks a hundred of them would end the operator again and again."""
    assert len(msgspec.json.encode(pod)) > 50_000
    kept = kept_pods.prune_victim(pod)
    assert len(msgspec.json.encode(kept)) < 40_000
    begun = pod_state.initial_state(kept, NOW)
    assert begun is not None
    assert begun.source is Source.KOORDINATOR


def test_no_more_of_an_annotation_is_kept_than_is_read() -> None:
    """A user may fill all of them."""
    texts = {key: "x" * 4000 for name, key in vars(keys).items() if name.isupper() and "/" in key}
    kept = kept_pods.prune_victim(a_pod(annotations=texts | MARK))
    assert len(msgspec.json.encode(kept)) < 40_000


def test_of_very_many_containers_that_a_kubelet_reports_few_are_kept() -> None:
    """Without this, a compromised kubelet would end the operator for the whole cluster."""
    running: Any = [{"state": {"running": {}}}] * 20_000
    status = {f"{part}Statuses": running for part in ("container", "initContainer")}
    pod = msgspec.convert({"metadata": {"name": "p"}, "status": status}, VictimPod)
    kept = kept_pods.prune_victim(pod)
    lists = kept.status.containerStatuses, kept.status.initContainerStatuses
    assert [len(entries or ()) for entries in lists] == [1, 1]
    assert not pod_state.have_containers_ended(kept)


EMOJI = "\N{GRINNING FACE}"
MOST_KIB = 20


def the_worst_document() -> Any:
    """Return a pod that is large in all that is kept of one, in texts of four bytes a character."""
    policy = {key: f"{EMOJI}{key}".ljust(1000, "x") for key in keys.every_key()}
    long = {
        keys.CHECKPOINT_ANSWER: json.dumps({"state": "saving", "message": EMOJI * 1000}),
        keys.KOORDINATOR_SOFT_EVICTION: json.dumps({"reason": EMOJI * 1000}),
        keys.EVICTION: a_long_state(),
        "example.com/note": EMOJI * 31_000,
    }
    of_containers = [{"name": f"c{each}", "resources": resources(4)} for each in range(210)]
    owner = {"apiVersion": EMOJI * 317, "kind": EMOJI * 63, "uid": EMOJI * 128}
    statuses = [
        {"state": {"terminated": {"exitCode": each, "finishedAt": f"2030-01-01T00:00:{each:02}Z"}}}
        for each in range(60)
    ]
    return {
        "metadata": {
            "name": "p" * 253,
            "namespace": "n" * 63,
            "labels": {key: f"{number:063}" for number, key in enumerate(keys.every_key())}
            | MARKED
            | {f"example.com/{number}": "x" for number in range(900)},
            "annotations": policy | long,
            "finalizers": [f"example.com/{number:0305}" for number in range(250)],
            "ownerReferences": [owner | {"name": EMOJI * 253, "controller": True}] * 8,
        },
        "spec": {
            "containers": of_containers,
            "initContainers": of_containers,
            "resources": resources(256),
            "overhead": resources(256)["requests"],
            "tolerations": [{"key": f"key-{number}"} for number in MANY],
        },
        "status": {
            "conditions": [{"type": "DisruptionTarget", "status": "True"}] * 500,
            "containerStatuses": statuses,
            "initContainerStatuses": statuses,
            "ephemeralContainerStatuses": statuses,
        },
    }


def a_long_state() -> str:
    text = EMOJI + "x" * 252
    state = Eviction(
        eviction_id="u.1",
        phase=Phase.REQUESTED,
        requested_at=NOW,
        initiator=text,
        reason=text,
        gang=text,
    )
    return eviction.render(state)


def kib_of(document: Any) -> float:
    """Return the memory that is kept of a victim with this pod."""
    text = json.dumps(document).encode()
    tracemalloc.start()
    kept, sizes = [], []
    for _ in range(12):
        kept.append(kept_pods.prune_victim(msgspec.json.decode(text, type=VictimPod)))
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return (sizes[-1] - sizes[1]) / 10 / 1024


def test_a_victim_takes_few_kib_of_memory_whatever_its_pod_is() -> None:
    """Without this, some hundred marked pods of one tenant, each with texts that take four bytes a
    character, would end the operator again and again: no victim in the cluster would get notice.
    """
    assert kib_of(the_worst_document()) < MOST_KIB
    few = {f"example.com/{number:02}": EMOJI * 250 for number in range(30)}
    assert kib_of({"metadata": {"name": "p", "annotations": MARK | few}}) < MOST_KIB
    many = dict.fromkeys(keys.every_key(), "")
    large = {"annotations": many | MARK | {"example.com/note": LARGE}, "labels": many | MARKED}
    assert kib_of({"metadata": {"name": "p"} | large}) < MOST_KIB


def test_the_mark_and_the_state_of_the_worst_pod_are_kept() -> None:
    pod = msgspec.convert(the_worst_document(), VictimPod)
    kept = kept_pods.prune_victim(pod)
    assert pod_state.state_of(kept.metadata) == pod_state.state_of(pod.metadata) is not None
    assert mark_of(kept) == mark_of(pod)
    assert pod_state.is_requested(kept.metadata)
    assert pod_state.answer_of(kept) == pod_state.answer_of(pod)
    assert pod_state.has_completed(kept) == pod_state.has_completed(pod)
    assert pod_state.have_containers_ended(kept)
    assert pod_state.containers_ended_at(kept) == pod_state.containers_ended_at(pod) is not None


OF_NO_GANG = keys.every_key() - {
    place.key for dialect in dialects.DIALECTS for place in dialects.fields_read_of(dialect)
}


@pytest.mark.parametrize("dialect", dialects.DIALECTS, ids=lambda dialect: dialect.name.key)
def test_a_large_pod_keeps_its_gang(dialect: GangDialect) -> None:
    """Without this, it would be evicted alone, and the rest of its gang would be told nothing."""
    labels = MARKED | {f"example.com/{number}": "x" for number in range(40)}
    annotations = dict.fromkeys(OF_NO_GANG, "x" * 900) | MARK
    spec: Any = {}
    for place in dialects.fields_read_of(dialect):
        if place.holder == "spec":
            spec = {"schedulingGroup": {"podGroupName": "3"}}
        else:
            (labels if place.holder == "labels" else annotations)[place.key] = "3"
    pod = a_pod(spec, labels=labels, annotations=annotations)
    kept = kept_pods.prune_victim(pod)
    assert kept.metadata != pod.metadata
    assert pod_state.gang_of(kept) == pod_state.gang_of(pod) is not None


def mark_of(pod: VictimPod) -> Mark:
    found = mark.read(labels_of(pod.metadata), annotations_of(pod.metadata))
    assert isinstance(found, Mark)
    return found


OF_A_CONTAINER: Any = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"}


@pytest.mark.parametrize("left_out", ["nvidia.com/gpu", "memory"])
def test_the_cost_of_a_pod_of_many_containers_is_the_same(left_out: str) -> None:
    amounts = {name: text for name, text in OF_A_CONTAINER.items() if name != left_out}
    one = {"name": "main", "resources": {"limits": amounts, "requests": {"cpu": "1"}}}
    sidecar = one | {"name": agent.NAME, "restartPolicy": "Always"}
    spec = {
        "containers": [one] * 40,
        "initContainers": [sidecar, {"resources": {"requests": {"cpu": "90"}}}],
        "overhead": {"cpu": "100m"},
    }
    pod = a_pod(spec)
    kept = kept_pods.prune_victim(pod)
    assert len(kept.spec.containers or ()) == 1
    assert agent.has_agent(kept.spec.initContainers)
    before, after = (cost.devices_of(pod_state.view_of(each).spec) for each in (pod, kept))
    assert before == after
    assert before[1] > 0


def test_a_pod_with_few_long_finalizers_counts_as_full() -> None:
    """Without this, a write would remove those that are not kept."""
    names = [f"example.com/{number:0305}" for number in range(30)]
    kept = kept_pods.prune_victim(a_pod(finalizers=[*names, keys.CLEANUP_FINALIZER])).metadata
    assert len(kept.finalizers or ()) > MAX_ENTRIES
    assert pod_state.has_cleanup_finalizer(kept)
    assert names[0] in (kept.finalizers or ())


def test_of_containers_that_have_ended_the_last_and_those_that_failed_are_kept() -> None:
    ended: Any = [
        {"state": {"terminated": {"exitCode": int(each == 3), "finishedAt": timestamp.render(at)}}}
        for each, at in enumerate(NOW + timedelta(seconds=number) for number in range(50))
    ]
    document = {"spec": {"restartPolicy": "Never"}, "status": {"containerStatuses": ended}}
    pod = msgspec.convert(document, VictimPod)
    kept = kept_pods.prune_victim(pod)
    assert len(kept.status.containerStatuses or ()) == 2
    assert not pod_state.has_completed(kept)
    assert pod_state.containers_ended_at(kept) == NOW + timedelta(seconds=49)


LARGE_SPECS: dict[str, Any] = {
    "many containers": {"containers": [{"name": f"c{number}"} for number in MANY]},
    "many ports": {"containers": [{"ports": [{"hostPort": number + 1} for number in MANY]}]},
    "many resources": {"containers": [{"resources": resources(5000)}]},
    "many containers with many resources": {
        "containers": [{"resources": resources(64)} for _ in range(100)]
    },
    "a large node selector": {"nodeSelector": {f"example.com/{number}": "x" for number in MANY}},
    "many tolerations": {"tolerations": [{"key": f"key-{number}"} for number in MANY]},
    "many scheduling gates": {"schedulingGates": [{"name": f"gate-{number}"} for number in MANY]},
    "a large name of a scheduler": {"schedulerName": LARGE},
    "a large affinity": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": f"key-{number}"} for number in MANY
                ]
            }
        }
    },
}


@pytest.mark.parametrize("spec", LARGE_SPECS.values(), ids=LARGE_SPECS)
def test_little_of_a_large_pod_counts_for_the_room_on_nodes(spec: Any) -> None:
    """Without this, a tenant with a hundred of them would end the operator while a gang waits."""
    usual = {"nodeName": "one", "priority": 7, "overhead": {"cpu": "1"}}
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": usual | spec}, Pod)
    assert len(msgspec.json.encode(pod)) > 64 * 1024
    kept = kept_pods.prune(pod)
    assert len(msgspec.json.encode(kept)) < 40_000
    assert (kept.spec.nodeName, kept.spec.priority) == ("one", 7)
    assert kept.spec.overhead == {"cpu": "1"}


@pytest.mark.parametrize(("selector", "is_kept"), [({}, True), (None, False)])
def test_a_large_pod_with_anti_affinity_keeps_all_others_away(
    selector: Any, *, is_kept: bool
) -> None:
    """Without this, a lent node of which it keeps the home's pods away would count as one with
    room, and no pod would leave the other lent nodes.
    """
    terms = [{"topologyKey": f"key-{number}", "labelSelector": selector} for number in MANY]
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": {"affinity": rules}}, Pod)
    kept = node_fit.anti_affinity_of(kept_pods.prune(pod).spec, "team")
    index = anti_affinity.index_of([a_scheduled_pod("p", anti_affinity=kept)], {})
    away = (
        ()
        if index is None
        else anti_affinity.matching(index, anti_affinity.labels_of(a_preemptor()))
    )
    assert bool(away) == is_kept


def test_a_pod_whose_gates_are_not_all_kept_counts_as_full() -> None:
    """Without this, a release would remove the gates of others that are not kept."""
    names = [keys.GANG_GATE, *(f"example.com/{number:060}" for number in MANY)]
    document = {
        "metadata": {"name": "p"},
        "spec": {"schedulingGates": [{"name": n} for n in names]},
    }
    pod = to_labelled_pod(msgspec.convert(document, GatePod), Facts(), NOW)
    assert MAX_ENTRIES < len(pod.other_gates) < len(MANY)


def test_a_usual_pod_counts_as_it_is_for_the_room_on_nodes() -> None:
    metadata = {"name": "p", "labels": {"app": "x"}}
    spec = {"nodeSelector": {"zone": "a"}, "containers": [{"resources": resources(3)}]}
    pod = msgspec.convert({"metadata": metadata, "spec": spec}, Pod)
    assert kept_pods.prune(pod) is pod


def test_a_usual_pod_is_kept_as_it_is() -> None:
    pod = a_pod(
        {"containers": [{"name": "main", "resources": resources(3)}]},
        labels=MARKED | {"app": "train"},
        annotations=MARK | {"example.com/note": "x" * 1000},
        finalizers=["example.com/disk"],
        ownerReferences=[{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}],
    )
    assert kept_pods.prune_victim(pod) is pod


def test_a_value_that_is_too_long_to_be_read_stays_one() -> None:
    """If a mark were left out, its author could take an eviction back by a longer one."""
    annotations = {keys.KOORDINATOR_SOFT_EVICTION: LARGE, keys.CHECKPOINT_ANSWER: LARGE}
    kept = kept_pods.prune_victim(a_pod(annotations=annotations))
    assert pod_state.is_requested(kept.metadata)
    assert isinstance(pod_state.answer_of(kept), Violation)
    readable = '{"state":"saving","path":"' + "x" * (MAX_ANSWER - 100) + '"}'
    pod = a_pod(annotations={"example.com/note": LARGE, keys.CHECKPOINT_ANSWER: readable})
    answer = pod_state.answer_of(pod)
    assert isinstance(answer, CheckpointAnswer)
    assert pod_state.answer_of(kept_pods.prune_victim(pod)) == answer


def test_the_controller_is_kept_of_many_owners_and_our_finalizer_of_many() -> None:
    controller = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}
    others = [controller | {"name": f"j{number}"} for number in MANY]
    names = [f"example.com/{number}" for number in MANY]
    kept = kept_pods.prune_victim(
        a_pod(
            ownerReferences=[*others, controller | {"controller": True}],
            finalizers=[*names, keys.CLEANUP_FINALIZER],
        )
    ).metadata
    owner = controller_of(kept)
    assert owner is not None
    assert owner.name == "j"
    assert pod_state.has_cleanup_finalizer(kept)
    assert len(kept.finalizers or ()) > MAX_ENTRIES


def test_a_pod_counts_as_full_as_the_policy_of_the_operator_says() -> None:
    policy = manifests.named("ValidatingAdmissionPolicy", "reprieve-operator-limits")
    (limit,) = re.findall(r"entries.size\(\) > (\d+)\)$", _first_half(policy), re.MULTILINE)
    assert int(limit) == MAX_ENTRIES


def _first_half(policy: Any) -> str:
    (expression,) = [
        one["expression"] for one in policy["spec"]["variables"] if one["name"] == "isTooLong"
    ]
    return str(expression).partition(" || ")[0]

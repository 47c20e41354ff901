"""Whom a victim makes room for."""

from dataclasses import replace

from reprieve_policy.kube.conditions import Condition
from reprieve_policy.kube.objects import ObjectMeta, SchedulingGroup
from reprieve_policy.kube.pods import Pod, PodSpec, PodStatus
from reprieve_policy.preemption import nominated_pods
from reprieve_policy.preemption.nominated_pods import FreedCapacity, NominatedPod

HERE = FreedCapacity(node="here", priority=100)


def a_nominee(
    uid: str, priority: int | None, node: str = "here", *, created: str = "", leaves: bool = False
) -> NominatedPod:
    metadata = ObjectMeta(
        namespace="team",
        uid=uid,
        creationTimestamp=created or None,
        deletionTimestamp=created or "now" if leaves else None,
    )
    status = PodStatus(phase="Pending", nominatedNodeName=node)
    return NominatedPod(pod=Pod(metadata=metadata, spec=PodSpec(priority=priority), status=status))


def told(uid: str, priority: int, **condition: str) -> NominatedPod:
    pod = a_nominee(uid, priority).pod
    return NominatedPod(
        pod=replace(pod, status=replace(pod.status, conditions=[Condition(**condition)]))
    )


def turned_away(uid: str, priority: int) -> NominatedPod:
    return told(uid, priority, type="PodScheduled", status="False")


def a_grouped(uid: str, priority: int) -> NominatedPod:
    pod = a_nominee(uid, priority).pod
    return NominatedPod(
        pod=replace(pod, spec=replace(pod.spec, schedulingGroup=SchedulingGroup(podGroupName="g")))
    )


def inferred(*nominees: NominatedPod) -> str | None:
    found = nominated_pods.possible_preemptors(nominees, HERE)
    return found[0].uid if found else None


def test_the_highest_priority_wins_then_the_oldest_then_any_but_always_the_same() -> None:
    young = a_nominee("a", 200, created="2026-11-21T12:00:01Z")
    old = a_nominee("b", 200, created="2026-11-21T12:00:00Z")
    assert inferred(young, old, a_nominee("c", 101)) == "b"
    assert inferred(a_nominee("z", 200), a_nominee("y", 200)) == "y"


def test_one_of_a_group_may_be_it_whatever_its_own_priority() -> None:
    assert inferred(a_grouped("grouped", 0)) == "grouped"
    assert inferred(a_grouped("grouped", 0), a_nominee("a", 101)) == "a"


def test_for_a_group_its_scheduler_preempts_once() -> None:
    assert a_nominee("alone", 0).preemptor_key == "alone"
    assert a_grouped("one", 0).preemptor_key == a_grouped("two", 0).preemptor_key == "team/g"


def test_a_preemptor_of_a_native_group_is_on_any_node_but_preempts_by_priority() -> None:
    anywhere = replace(HERE, spans_nodes=True)
    far, farther, near = (
        a_nominee("far", 300, "there"),
        a_nominee("farther", 200, "away"),
        a_nominee("near", 101),
    )
    low, nowhere = a_nominee("low", 100, "there"), a_nominee("nowhere", 200, "")
    found = nominated_pods.possible_preemptors([low, farther, nowhere, far, near], anywhere)
    assert [one.uid for one in found] == ["near", "far", "farther"]
    assert nominated_pods.possible_preemptors([far, near, farther], HERE) == [near]
    # Who was turned away needs room, and is before all.
    assert (
        nominated_pods.possible_preemptors([near, turned_away("mine", 101)], anywhere)[0].uid
        == "mine"
    )


def test_one_that_was_not_turned_away_is_the_least_probable() -> None:
    assert inferred(a_nominee("binds", 300), turned_away("mine", 200)) == "mine"
    assert inferred(a_nominee("binds", 300)) == "binds"


def test_a_pod_was_turned_away_where_its_scheduler_says_so() -> None:
    assert turned_away("mine", 200).was_unschedulable
    assert not a_nominee("binds", 200).was_unschedulable
    assert not told("bound", 200, type="PodScheduled", status="True").was_unschedulable
    assert not told(
        "was gated", 200, type="PodScheduled", status="False", reason="SchedulingGated"
    ).was_unschedulable
    assert not told("going", 200, type="DisruptionTarget", status="False").was_unschedulable


def test_kubernetes_own_are_known_by_their_priority_or_their_namespace() -> None:
    assert a_nominee("critical", 2_000_001_000).is_exempt
    assert not a_nominee("highest of users", 1_000_000_000).is_exempt
    assert not a_nominee("none", None).is_exempt
    assert NominatedPod(pod=Pod(metadata=ObjectMeta(namespace="kube-system"))).is_exempt


def test_whoever_could_not_have_preempted_is_not_suspected() -> None:
    assert inferred() is None
    assert inferred(a_nominee("elsewhere", 200, "there")) is None
    assert inferred(a_nominee("equal", 100), a_nominee("none", None)) is None
    assert inferred(a_nominee("leaving", 200, leaves=True)) is None
    assert inferred(NominatedPod(pod=Pod(spec=PodSpec(priority=200)))) is None

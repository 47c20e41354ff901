"""For which nominated pod a victim is preempted."""

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


def a_pod_with_condition(uid: str, priority: int, **condition: str) -> NominatedPod:
    pod = a_nominee(uid, priority).pod
    return NominatedPod(
        pod=replace(pod, status=replace(pod.status, conditions=[Condition(**condition)]))
    )


def turned_away(uid: str, priority: int) -> NominatedPod:
    return a_pod_with_condition(uid, priority, type="PodScheduled", status="False")


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


def test_a_pod_of_a_group_may_be_the_preemptor_with_any_priority_of_its_own() -> None:
    assert inferred(a_grouped("grouped", 0)) == "grouped"
    assert inferred(a_grouped("grouped", 0), a_nominee("a", 101)) == "a"


def test_all_pods_of_a_group_are_one_preemptor() -> None:
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


def test_a_pod_that_was_not_unschedulable_is_the_least_probable_preemptor() -> None:
    assert inferred(a_nominee("binds", 300), turned_away("mine", 200)) == "mine"
    assert inferred(a_nominee("binds", 300)) == "binds"


def test_a_pod_was_unschedulable_if_its_condition_shows_it() -> None:
    assert turned_away("mine", 200).was_unschedulable
    assert not a_nominee("binds", 200).was_unschedulable
    assert not a_pod_with_condition(
        "bound", 200, type="PodScheduled", status="True"
    ).was_unschedulable
    assert not a_pod_with_condition(
        "was gated", 200, type="PodScheduled", status="False", reason="SchedulingGated"
    ).was_unschedulable
    assert not a_pod_with_condition(
        "going", 200, type="DisruptionTarget", status="False"
    ).was_unschedulable


def test_system_critical_pods_are_recognised_by_priority_or_namespace() -> None:
    assert a_nominee("critical", 2_000_001_000).is_exempt
    assert not a_nominee("highest of users", 1_000_000_000).is_exempt
    assert not a_nominee("none", None).is_exempt
    assert NominatedPod(pod=Pod(metadata=ObjectMeta(namespace="kube-system"))).is_exempt


def test_pods_that_could_not_have_preempted_are_not_considered() -> None:
    assert inferred() is None
    assert inferred(a_nominee("elsewhere", 200, "there")) is None
    assert inferred(a_nominee("equal", 100), a_nominee("none", None)) is None
    assert inferred(a_nominee("leaving", 200, leaves=True)) is None
    assert inferred(NominatedPod(pod=Pod(spec=PodSpec(priority=200)))) is None

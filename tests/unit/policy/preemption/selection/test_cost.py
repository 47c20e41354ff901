"""With `victimOrder: priority`, class and cost count where a pod states preferences; how many
victims a decision takes at most, and at what cost (document 001).
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.cost import CostInputs, WorkProgress
from reprieve_policy.preemption.selection import DryRunStatus
from reprieve_policy.preemption.selection.snapshot import GangKey, Preemptor, ScheduledPod
from reprieve_testing.objects.builders import NOW, after
from reprieve_testing.objects.snapshots import (
    SnapshotFixture,
    a_budget,
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

ABOVE = a_preemptor(preemption_class=9)


def speaking(
    name: str, *, preemption_class: int = 3, stated: int = 0, cpu: float = 1, **fields: object
) -> ScheduledPod:
    stake = CostInputs(devices=cpu, stated=stated)
    return a_scheduled_pod(
        name,
        preemption_class=preemption_class,
        states_preferences=True,
        cpu=cpu,
        cost_inputs=stake,
        **fields,
    )  # type: ignore[arg-type]  # named by these tests


def victims(snapshot_fixture: SnapshotFixture, preemptor: Preemptor = ABOVE) -> Sequence[str]:
    built = snapshot_fixture.build()
    built = replace(built, settings=replace(built.settings, victim_order="priority"))
    best = selection.decide(preemptor, built, built.nodes).best
    return () if best is None else [victim.name for victim in best.victims]


TWO = replace(ABOVE, demand=a_preemptor(cpu=2).demand)

NODE = {
    "the lower class is preempted, whatever its age": (
        (
            speaking("high", preemption_class=4, started=-1),
            speaking("low", preemption_class=2, started=-9999),
        ),
        ["low"],
    ),
    "of one class, the pod with the lower stated cost is preempted": (
        (speaking("dear", stated=5, started=-1), speaking("cheap", stated=-5, started=-9999)),
        ["cheap"],
    ),
    "of one class and stated cost, the pod that loses the least is preempted": (
        (speaking("long", started=-9999), speaking("short", started=-1)),
        ["short"],
    ),
    "a pod without preferences counts as one of the cluster's default class": (
        (a_scheduled_pod("silent", started=-1), speaking("low", preemption_class=2, started=-9999)),
        ["low"],
    ),
    "a lower priority is preempted first, whatever the class": (
        (speaking("high", preemption_class=0, priority=5), speaking("low", preemption_class=8)),
        ["low"],
    ),
}


@pytest.mark.parametrize(("pods", "want"), NODE.values(), ids=NODE.keys())
def test_which_of_two_pods_on_a_node_is_preempted(
    pods: Sequence[ScheduledPod], want: Sequence[str]
):
    assert victims(a_snapshot(a_node_info("n", *pods, cpu=2))) == want
    assert victims(a_snapshot(a_node_info("n", *reversed(pods), cpu=2))) == want


NODES = {
    "the lower class is preempted": (
        speaking("a", preemption_class=4),
        speaking("b", preemption_class=2),
    ),
    "the cheaper pod is preempted": (speaking("a", stated=3), speaking("b")),
    "the pod that loses the least is preempted": (
        speaking("a", started=-99),
        speaking("b", started=-9),
    ),
    "a pod without preferences stays beside a lower class": (
        a_scheduled_pod("a", started=-1),
        speaking("b", preemption_class=1),
    ),
    "by name, if all else is equal": (speaking("b"), speaking("b")),
}


@pytest.mark.parametrize("pods", NODES.values(), ids=NODES.keys())
def test_on_which_of_two_nodes_the_pod_is_preempted(pods: Sequence[ScheduledPod]):
    node_infos = [a_node_info(f"n{index}", pod, cpu=1) for index, pod in enumerate(pods)]

    assert victims(a_snapshot(*node_infos)) == ["b"]


SMALL = [speaking(f"small-{index}") for index in range(2)]


def test_one_large_pod_is_preempted_rather_than_many_small_ones():
    assert victims(a_snapshot(a_node_info("n", *SMALL, speaking("large", cpu=2), cpu=4)), TWO) == [
        "large"
    ]


def test_small_pods_are_preempted_if_a_budget_protects_the_large_one():
    large = speaking("large", cpu=2, labels={"app": "web"})
    snapshot_fixture = a_snapshot(a_node_info("n", *SMALL, large, cpu=4)).with_budgets(
        a_budget("web")
    )

    assert sorted(victims(snapshot_fixture, TWO)) == ["small-0", "small-1"]


def test_small_pods_are_preempted_if_the_large_one_has_a_higher_class():
    large = speaking("large", cpu=2, preemption_class=4)

    assert sorted(victims(a_snapshot(a_node_info("n", *SMALL, large, cpu=4)), TWO)) == [
        "small-0",
        "small-1",
    ]


def test_without_preferences_fewer_victims_count_only_above_the_limit_of_a_decision():
    old, young = (
        a_scheduled_pod("large", cpu=2, started=-99),
        [a_scheduled_pod(f"small-{index}") for index in range(2)],
    )
    young = [replace(pod, progress=WorkProgress(started_at=after(-1))) for pod in young]
    snapshot_fixture = a_snapshot(a_node_info("n", old, *young, cpu=4))
    preemptor = a_preemptor(cpu=2)

    assert sorted(victims(snapshot_fixture, preemptor)) == ["small-0", "small-1"]
    assert victims(snapshot_fixture.with_settings(PolicySettings(max_victims=1)), preemptor) == [
        "large"
    ]


def test_a_gang_counts_with_its_highest_class_and_the_sum_of_costs():
    def gang(name: str, *classes: int) -> list[ScheduledPod]:
        key = GangKey("team", name)
        return [speaking(f"{name}-{value}", preemption_class=value, gang=key) for value in classes]

    snapshot_fixture = (
        a_snapshot(a_node_info("n", *gang("a", 1, 4), *gang("b", 3, 2), cpu=4))
        .with_gang("a")
        .with_gang("b")
    )

    assert sorted(victims(snapshot_fixture)) == ["b-2", "b-3"]


GANG = GangKey("team", "gang")
BESIDE_A_GANG = {
    "is reprieved before a single pod that costs more": (
        ABOVE,
        (speaking("member", gang=GANG), speaking("dear", preemption_class=4, stated=9)),
        ["dear"],
    ),
    "is reprieved where fewer large pods are preempted": (
        TWO,
        (speaking("member", gang=GANG, cpu=3), speaking("large", cpu=2), *SMALL),
        ["large"],
    ),
}


@pytest.mark.parametrize(
    ("preemptor", "pods", "want"), BESIDE_A_GANG.values(), ids=BESIDE_A_GANG.keys()
)
def test_with_preferences_a_gang_of_equal_priority(
    preemptor: Preemptor, pods: Sequence[ScheduledPod], want: Sequence[str]
):
    node_info = a_node_info("n", *pods, cpu=sum(pod.cost_inputs.devices for pod in pods))

    assert victims(a_snapshot(node_info).with_gang("gang"), preemptor) == want


def bounded(seconds: int) -> PolicySettings:
    return PolicySettings(preemptor_worth_seconds=seconds)


HOUR = 3600
# The victim has run for an hour on one CPU: it costs one hour.
WORTH = {
    "no bound is set": (PolicySettings(), 1.0, None, True),
    "the victim costs less than the preemptor is worth": (bounded(HOUR + 1), 1.0, None, True),
    "the victim costs as much": (bounded(HOUR), 1.0, None, False),
    "more devices are worth more": (bounded(HOUR), 2.0, None, True),
    "the preemptor runs for a shorter time": (bounded(9 * HOUR), 1.0, HOUR, False),
    "a longer walltime of the preemptor has no effect": (bounded(HOUR), 1.0, 9 * HOUR, False),
}


@pytest.mark.parametrize(
    ("settings", "devices", "walltime", "is_worth_it"), WORTH.values(), ids=WORTH.keys()
)
def test_victims_cost_less_than_the_preemptor_is_worth(
    settings: PolicySettings, devices: float, walltime: int | None, *, is_worth_it: bool
):
    snapshot_fixture = (
        a_snapshot(a_node_info("n", a_scheduled_pod("low", started=-HOUR), cpu=1))
        .with_settings(settings)
        .build()
    )
    preemptor = a_preemptor(devices=devices, walltime_seconds=walltime)

    assert selection.decide(preemptor, snapshot_fixture, ["n"]).node_statuses == (
        {} if is_worth_it else {"n": DryRunStatus.TOO_EXPENSIVE}
    )


def test_a_choice_has_its_cost():
    work = WorkProgress(started_at=after(-HOUR), walltime=Walltime(after(-HOUR), 2 * HOUR))
    snapshot_fixture = a_snapshot(
        a_node_info("n", a_scheduled_pod("low", cpu=2, progress=work), cpu=2)
    ).build()

    best = selection.decide(a_preemptor(), snapshot_fixture, ["n"]).best

    assert best is not None
    # An hour to compute again, and half of the hour's walltime: the share between 10 % and 90 %.
    assert best.cost_hours == pytest.approx(2 * (1 + 0.5))
    assert best.victims[0].cost(NOW).hours == pytest.approx(best.cost_hours)


def test_no_decision_has_more_victims_than_the_limit():
    snapshot_fixture = a_snapshot(
        a_node_info("n", *(a_scheduled_pod(f"t{index}") for index in range(4)), cpu=4)
    )

    assert victims(snapshot_fixture, a_preemptor(cpu=4)) == ()
    assert len(victims(snapshot_fixture, a_preemptor(cpu=3))) == 3

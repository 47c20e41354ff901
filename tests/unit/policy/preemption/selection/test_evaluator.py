"""Victims and nodes for one pod: kube-scheduler's own choice if no pod states preferences."""

from dataclasses import dataclass

import pytest

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import DryRunStatus
from reprieve_policy.preemption.selection.snapshot import GangKey, Preemptor
from reprieve_testing.objects.snapshots import (
    SnapshotFixture,
    a_budget,
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

WEB = {"app": "web"}
PREEMPTOR = a_preemptor()


def decided(
    preemptor: Preemptor, snapshot_fixture: SnapshotFixture
) -> selection.PreemptionDecision:
    built = snapshot_fixture.build()
    return selection.decide(preemptor, built, built.nodes)


@dataclass(frozen=True, kw_only=True)
class Case:
    preemptor: Preemptor = PREEMPTOR
    snapshot_fixture: SnapshotFixture
    want: tuple[str, ...]
    """Names of victims on the best node, the most important first."""


CASES = {
    "the lowest priority is preempted": Case(
        snapshot_fixture=a_snapshot(
            a_node_info(
                "n", a_scheduled_pod("high", priority=9), a_scheduled_pod("low", priority=5), cpu=2
            )
        ),
        want=("low",),
    ),
    "of one priority, the pod that started last is preempted": Case(
        snapshot_fixture=a_snapshot(
            a_node_info(
                "n",
                a_scheduled_pod("old", started=-60),
                a_scheduled_pod("young", started=-5),
                cpu=2,
            )
        ),
        want=("young",),
    ),
    "only as many pods are preempted as needed": Case(
        preemptor=a_preemptor(cpu=2),
        snapshot_fixture=a_snapshot(
            a_node_info(
                "n",
                a_scheduled_pod("a", priority=3),
                a_scheduled_pod("b", priority=2),
                a_scheduled_pod("c", priority=1),
                cpu=3,
            )
        ),
        want=("b", "c"),
    ),
    "a small one of higher priority stays where a large one suffices": Case(
        preemptor=a_preemptor(cpu=3),
        snapshot_fixture=a_snapshot(
            a_node_info(
                "n",
                a_scheduled_pod("small", priority=1),
                a_scheduled_pod("large", priority=2, cpu=3),
                cpu=4,
            )
        ),
        want=("large",),
    ),
    "a pod that a budget protects is preempted last": Case(
        snapshot_fixture=a_snapshot(
            a_node_info(
                "n",
                a_scheduled_pod("web", priority=1, labels=WEB),
                a_scheduled_pod("batch", priority=2),
                cpu=2,
            )
        ).with_budgets(a_budget("web")),
        want=("batch",),
    ),
    "a node without violated budgets is preferred to lower priorities": Case(
        snapshot_fixture=a_snapshot(
            a_node_info("a", a_scheduled_pod("web", priority=1, labels=WEB), cpu=1),
            a_node_info("b", a_scheduled_pod("batch", priority=2), cpu=1),
        ).with_budgets(a_budget("web")),
        want=("batch",),
    ),
    "by priority, the node with the lowest highest priority is chosen": Case(
        preemptor=a_preemptor(cpu=2),
        snapshot_fixture=a_snapshot(
            a_node_info("a", a_scheduled_pod("a", priority=9), cpu=2),
            a_node_info(
                "b", a_scheduled_pod("b", priority=5), a_scheduled_pod("c", priority=5), cpu=2
            ),
        ).with_settings(PolicySettings(victim_order="priority")),
        want=("b", "c"),
    ),
    "pods nominated to a node keep their room there": Case(
        snapshot_fixture=a_snapshot(
            a_node_info(
                "a",
                a_scheduled_pod("low", priority=1),
                cpu=1,
                nominated_pods=(a_pod_demand("first", priority=1000),),
            ),
            a_node_info("b", a_scheduled_pod("mid", priority=2), cpu=1),
        ),
        want=("mid",),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_victims_are_those_of_the_best_node(case: Case):
    best = decided(case.preemptor, case.snapshot_fixture).best

    assert best is not None
    assert tuple(victim.name for victim in best.victims) == case.want


def test_a_node_without_possible_victims_has_that_status():
    found = decided(
        a_preemptor(), a_snapshot(a_node_info("n", a_scheduled_pod("high", priority=2000), cpu=1))
    )

    assert found.node_statuses == {"n": DryRunStatus.NO_VICTIMS}


@pytest.mark.parametrize(("minimum", "is_whole"), [(2, True), (1, False)])
def test_a_gang_goes_with_a_pod_that_it_cannot_spare(minimum: int, *, is_whole: bool) -> None:
    key = GangKey("team", "train")
    nodes = [a_node_info(name, a_scheduled_pod(f"on-{name}", gang=key)) for name in "ab"]
    built = a_snapshot(*nodes).with_gang("train", DisruptionMode.SINGLE, minimum).build()
    found = selection.gang_evicted_with(PREEMPTOR, built.nodes["a"].pods[0], built)
    assert (found is not None and found.key == key) is is_whole

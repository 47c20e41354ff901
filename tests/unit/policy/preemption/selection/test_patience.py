"""A preemptor waits a little for room that may come, instead of victims that lose much."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from reprieve_policy.config.settings import PRIORITY, PolicySettings
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.loss import LossInputs, SaveWay
from reprieve_policy.preemption.selection import DryRunStatus, PreemptionDecision
from reprieve_policy.preemption.selection.snapshot import Preemptor, ScheduledPod
from reprieve_testing.objects.builders import after
from reprieve_testing.objects.snapshots import (
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

PATIENCE = 100
WAITING = replace(a_preemptor(cpu=2), devices=2.0, unschedulable_since=after(-10))
"""It has two devices, so it waits for victims that lose more than 200 device-seconds."""
MUCH = a_scheduled_pod("much", cpu=2, started=-101)
LITTLE = a_scheduled_pod("little", cpu=2, started=-100)
SAVES = replace(
    MUCH,
    loss_inputs=LossInputs(devices=2.0, way=SaveWay.WHEN_ASKED, save_seconds=1000),
)
LEAVING = a_scheduled_pod("leaving", is_leaving=True, is_being_deleted=True)


def deleted_by(seconds: float | None) -> ScheduledPod:
    end = None if seconds is None else after(seconds)
    return a_scheduled_pod("l", is_leaving=True, is_being_deleted=True, release_expected_at=end)


def decide(
    *pods: ScheduledPod,
    preemptor: Preemptor = WAITING,
    elsewhere: tuple[ScheduledPod, ...] = (LEAVING,),
    may_wait: bool = True,
    **settings: Any,
) -> PreemptionDecision:
    node_infos = (a_node_info("n", *pods, cpu=2), a_node_info("elsewhere", *elsewhere, cpu=1))
    built = replace(
        a_snapshot(*node_infos).build(),
        settings=PolicySettings(patience_seconds=PATIENCE, **settings),
    )
    return selection.decide(preemptor, built, ["n"], may_wait=may_wait)


def test_it_waits_for_as_long_as_its_victims_would_lose_more() -> None:
    found = decide(MUCH)
    assert (found.best, found.node_statuses) == (None, {"n": DryRunStatus.LOSES_MUCH})


@dataclass(frozen=True)
class Case:
    pod: ScheduledPod = MUCH
    elsewhere: tuple[ScheduledPod, ...] = (LEAVING,)
    unschedulable_since: Any = WAITING.unschedulable_since
    may_wait: bool = True
    settings: tuple[tuple[str, Any], ...] = ()


@pytest.mark.parametrize(
    "case",
    [
        Case(LITTLE),
        Case(SAVES),
        Case(unschedulable_since=after(-PATIENCE)),
        Case(unschedulable_since=None),
        Case(elsewhere=()),
        Case(elsewhere=(a_scheduled_pod("stays"),)),
        Case(elsewhere=(a_scheduled_pod("saves", is_leaving=True),)),
        Case(elsewhere=(deleted_by(91),)),
        Case(elsewhere=(deleted_by(-6),)),
        Case(elsewhere=(deleted_by(None),)),
        Case(may_wait=False),
        Case(unschedulable_since=after(-60), settings=(("ceiling_seconds", 50),)),
        Case(settings=(("victim_order", PRIORITY),)),
    ],
    ids=[
        "the victims lose no more",
        "the victims save",
        "it has waited for long enough",
        "its scheduler has not said yet that it finds no node",
        "there are no other pods",
        "no other pod leaves",
        "the other pod is not being deleted yet",
        "the other pod ends when it has waited for long enough",
        "the other pod is overdue",
        "when the other pod ends is not known",
        "the caller does not come again",
        "it has waited for as long as the ceiling",
        "losses are not compared",
    ],
)
def test_it_takes_the_victims(case: Case) -> None:
    found = decide(
        case.pod,
        preemptor=replace(WAITING, unschedulable_since=case.unschedulable_since),
        elsewhere=case.elsewhere,
        may_wait=case.may_wait,
        **dict(case.settings),
    )
    assert found.best is not None
    assert found.best.victims == (case.pod,) or found.best.victims[0].uid == case.pod.uid


@pytest.mark.parametrize("ends_in", [-5, 0, 90])
def test_it_waits_for_a_pod_that_ends_before_it_has_waited_for_long_enough(ends_in: float) -> None:
    assert decide(MUCH, elsewhere=(deleted_by(ends_in),)).best is None


def test_without_patience_nothing_is_waited_for() -> None:
    node_infos = (a_node_info("n", MUCH, cpu=2), a_node_info("elsewhere", LEAVING, cpu=1))
    built = replace(a_snapshot(*node_infos).build(), settings=PolicySettings(patience_seconds=0))
    assert selection.decide(WAITING, built, ["n"], may_wait=True).best is not None

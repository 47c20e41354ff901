"""Many PodDisruptionBudgets of one tenant do not make a decision long."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import budget_uses, least_loss, pdb_usage
from reprieve_policy.preemption.selection.budget_uses import BudgetUses
from reprieve_policy.preemption.selection.snapshot import GangKey, Requirement, ScheduledPod
from reprieve_testing.objects.snapshots import (
    a_budget,
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

WEB = {"app": "web"}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often a pod is compared with a budget, and budgets are spent for pods."""
    counted = Counter[str]()
    covers, spend = budget_uses.covers, pdb_usage.PdbUsage._spend

    def counting_covers(*arguments: Any) -> bool:
        counted["compared"] += 1
        return covers(*arguments)

    def counting_spend(*arguments: Any) -> int:
        counted["spent"] += 1
        return spend(*arguments)

    monkeypatch.setattr(budget_uses, "covers", counting_covers)
    monkeypatch.setattr(pdb_usage.PdbUsage, "_spend", counting_spend)
    return counted


def decide(pods: list[ScheduledPod], budgets: int, cpu: int = 1) -> None:
    fixture = a_snapshot(a_node_info("a", *pods, cpu=len(pods), pods=400)).with_budgets(
        *[a_budget("web")] * budgets
    )
    for gang in sorted({pod.gang.identity for pod in pods if pod.gang is not None}):
        fixture = fixture.with_gang(gang)
    decision = selection.decide(a_preemptor(cpu=cpu), fixture.build(), ["a"])
    assert decision.candidates


def test_a_pod_is_compared_with_a_budget_once_in_a_decision(counts: Counter[str]) -> None:
    decide([a_scheduled_pod(f"pod-{number}", labels=WEB) for number in range(10)], budgets=20)
    assert 0 < counts["compared"] <= 10 * 20


def test_large_gangs_with_budgets_are_not_counted_for_each_set(counts: Counter[str]) -> None:
    gangs, size = 10, 30
    pods = [
        a_scheduled_pod(
            f"pod-{gang}-{number}",
            labels=WEB,
            gang=GangKey("team", f"gang-{gang}"),
            disruption_mode=DisruptionMode.ALL,
        )
        for gang in range(gangs)
        for number in range(size)
    ]
    assert gangs <= least_loss.MAX_EXACT_UNITS
    decide(pods, budgets=1, cpu=3 * size)
    assert 0 < counts["spent"] <= 5 * gangs


def pod_by_pod(pods: Sequence[ScheduledPod], uses: BudgetUses) -> int:
    """Return how many pods no budget allows to evict, as kube-scheduler counts them."""
    left: dict[int, int] = {}
    violations = 0
    for pod in pods:
        budgets = uses.of(pod)
        for budget in budgets:
            left[id(budget)] = left.get(id(budget), budget.disruptions_allowed) - 1
        violations += any(left[id(budget)] < 0 for budget in budgets)
    return violations


@given(
    allowed=st.tuples(st.integers(-2, 4), st.integers(-2, 4)),
    apps=st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=3),
)
def test_budgets_are_spent_as_pod_by_pod(allowed: tuple[int, int], apps: list[list[str]]) -> None:
    """Of pods that two budgets cover, one, or none; gang after gang."""
    both = a_budget("a", allowed=allowed[0]), a_budget("a", allowed=allowed[1])
    wide = replace(both[0], requirements=(Requirement("app", "In", ("a", "b")),))
    uses = BudgetUses({"team": [wide, both[1]]})
    gangs = [
        tuple(a_scheduled_pod(f"{gang}-{at}", labels={"app": app}) for at, app in enumerate(each))
        for gang, each in enumerate(apps)
    ]
    usage = pdb_usage.PdbUsage(uses)
    counted = sum(usage.count_violations(pods) for pods in gangs)
    assert counted == pod_by_pod([pod for pods in gangs for pod in pods], uses)


def test_pods_of_two_budgets_that_come_in_turn_are_counted_in_two_runs() -> None:
    uses = BudgetUses({"team": [a_budget("a"), a_budget("b")]})
    pods = [a_scheduled_pod(str(at), labels={"app": "ab"[at % 2]}) for at in range(100)]
    assert [run.pods for run in uses.runs_of(tuple(pods))] == [50, 50]


def test_a_pod_uses_ten_budgets_at_most() -> None:
    uses = BudgetUses({"team": [a_budget("web")] * 50})
    assert len(uses.of(a_scheduled_pod("pod", labels=WEB))) == 10


def test_a_pod_without_budgets_uses_none() -> None:
    uses = BudgetUses({"team": [a_budget("other")], "others": [a_budget("web")]})
    assert uses.of(a_scheduled_pod("pod", labels=WEB)) == ()
    assert BudgetUses({}).of(a_scheduled_pod("pod", labels=WEB)) == ()

"""A gang that is evicted as a unit is counted once in a decision, on however many nodes it is."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from reprieve_policy.config.settings import LOSS, PRIORITY, PolicySettings
from reprieve_policy.preemption import cost, loss, selection
from reprieve_policy.preemption.selection import PreemptionDecision
from reprieve_policy.preemption.selection.snapshot import GangKey
from reprieve_testing.objects.snapshots import (
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

OLD = GangKey("team", "old")
SIZE = 40


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often the loss and the cost of a pod are computed."""
    counted = Counter[str]()
    expected_loss, sort_key_of = loss.expected_loss, cost.sort_key_of

    def counting_loss(*arguments: Any) -> float:
        counted["loss"] += 1
        return expected_loss(*arguments)

    def counting_cost(*arguments: Any) -> tuple[int, float]:
        counted["cost"] += 1
        return sort_key_of(*arguments)

    monkeypatch.setattr(loss, "expected_loss", counting_loss)
    monkeypatch.setattr(cost, "sort_key_of", counting_cost)
    return counted


def decide(order: str, *, beside: int) -> PreemptionDecision:
    """Decide about a gang with a pod on each node, and single pods beside it; all must go."""
    node_infos = [
        a_node_info(
            f"node-{number}",
            a_scheduled_pod(f"gang-{number}", gang=OLD, states_preferences=True),
            *[a_scheduled_pod(f"single-{number}-{other}") for other in range(beside)],
            cpu=1 + beside,
        )
        for number in range(SIZE)
    ]
    built = replace(
        a_snapshot(*node_infos).with_gang("old").build(),
        settings=PolicySettings(victim_order=order),
    )
    return selection.decide(a_preemptor(cpu=1 + beside), built, built.nodes)


@pytest.mark.parametrize("beside", [0, 1])
@pytest.mark.parametrize("order", [LOSS, PRIORITY])
def test_each_pod_of_a_gang_is_counted_once_in_a_decision(
    counts: Counter[str], order: str, beside: int
) -> None:
    found = decide(order, beside=beside)

    assert len(found.candidates) == SIZE
    assert all(len(one.all_pods) == SIZE + beside for one in found.candidates)
    # A gang's pod once, and a single one a few times on its own node: never each on each node.
    assert counts["loss"] <= (1 + 2 * beside) * SIZE
    assert counts["cost"] <= (1 + 4 * beside) * SIZE
    assert (counts["loss"] > 0) == (order == LOSS)
    assert counts["cost"] >= SIZE


@pytest.mark.parametrize("beside", [0, 1, 2])
def test_a_candidate_costs_what_its_pods_cost(beside: int) -> None:
    """Exactly: pod by pod, whatever was counted before."""
    found = decide(LOSS, beside=beside).candidates[0]
    assert found.cost_hours == SIZE + beside

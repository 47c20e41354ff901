"""The redesign loses far less than the stock scheduler: simulated, with fixed seeds."""

from __future__ import annotations

from typing import Any

import pytest

from bench.preemption import trace
from bench.preemption.simulator import contenders, figures, published
from bench.preemption.simulator.contenders import Contender
from bench.preemption.simulator.simulation import Simulation


def wasted(generate: Any, contender: Contender, *, jobs: int, nodes: int, seeds: int) -> float:
    """Return the pod-seconds that are wasted on the traces of these seeds together."""
    return sum(
        figures.figures_of(
            Simulation(generate(seed, jobs, nodes), contender).run()
        ).wasted_pod_seconds
        for seed in range(1, seeds + 1)
    )


@pytest.mark.slow
def test_the_redesign_wastes_about_half_of_what_stock_wastes_on_the_synthetic_trace() -> None:
    at = {"jobs": 400, "nodes": 40, "seeds": 8}
    stock = wasted(trace.generate, contenders.STOCK, **at)
    today = wasted(trace.generate, contenders.EXTENDER, **at)
    redesign = wasted(trace.generate, contenders.REDESIGN, **at)
    bound = wasted(trace.generate, contenders.BOUND, **at)

    assert redesign <= 0.55 * stock
    assert redesign <= 0.65 * today
    assert bound <= redesign <= 2 * bound


@pytest.mark.parametrize("seeds", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_the_redesign_wastes_a_third_of_what_stock_wastes_with_philly_runtimes(seeds: int) -> None:
    at = {"jobs": 1000, "nodes": 60, "seeds": seeds}
    stock = wasted(published.philly, contenders.STOCK, **at)

    assert wasted(published.philly, contenders.REDESIGN, **at) <= 0.35 * stock
    assert wasted(published.philly, contenders.POLICY_ONLY, **at) >= 0.75 * stock

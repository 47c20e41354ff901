"""The same scenarios through upstream's PreemptionToleration and the stock scheduler with our
extender.

Upstream's scheduler is scheduler-plugins v0.34.7, built where it is not cached. Both schedulers run
at once on one real API server, each on nodes and pods of its own, and the test watches what they
delete: the same victims, or a difference that has a name (`difference.WHY`). `REPRIEVE_SEED`
has the seeds of other scenarios than the usual ones, and `REPRIEVE_SCENES` their number for each
seed.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, new_cluster
from reprieve_testing.differential import extender, population, rule
from reprieve_testing.differential.difference import Difference
from reprieve_testing.differential.documents import REPRIEVE, UPSTREAM
from reprieve_testing.differential.examples import EXAMPLES
from reprieve_testing.differential.published import use_cases
from reprieve_testing.differential.scenario import Scenario, ScenarioOutcome
from reprieve_testing.differential.scheduler_pair import SchedulerPair

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NAME = "reprieve-victims"
SCENARIOS = population.all_scenarios(
    int(os.environ.get("REPRIEVE_SCENES", population.GENERATED)),
    [int(seed) for seed in os.environ.get("REPRIEVE_SEED", str(population.SEED)).split(",")],
)
SECONDS = 120.0 + len(SCENARIOS)
"""A busy machine has needed a third of it."""
USE_CASES = tuple(use_cases())
TURNS = SCENARIOS[: len(USE_CASES)], SCENARIOS[len(USE_CASES) :]
"""The use cases have a turn of their own: a toleration of ten minutes ends soon, and is not to end
while others are created.
"""


@dataclass(frozen=True)
class Run:
    """The outcome of each scenario on both sides, by the scenario's name, and the extender's
    calls.
    """

    upstream: dict[str, ScenarioOutcome]
    reprieve: dict[str, ScenarioOutcome]
    calls: Counter[str]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with new_cluster(NAME, kwok_nodes=0) as cluster:
        handle = ClusterHandle.of(cluster)
        found: dict[tuple[str, str], ScenarioOutcome] = {}
        calls: Counter[str] = Counter()
        for scenarios in TURNS:
            outcomes, counted = _play(handle, scenarios)
            found |= outcomes
            calls += counted
        yield Run(
            {scenario.name: found[scenario.name, UPSTREAM.name] for scenario in SCENARIOS},
            {
                scenario.name: rule.with_gangs(scenario, found[scenario.name, REPRIEVE.name])
                for scenario in SCENARIOS
            },
            calls,
        )


def _play(
    handle: ClusterHandle, scenarios: Sequence[Scenario]
) -> tuple[dict[tuple[str, str], ScenarioOutcome], Counter[str]]:
    """Create the scenarios; return what both schedulers did, and the extender's calls."""
    pair = SchedulerPair(handle.cluster, scenarios)
    pair.clear()
    asyncio.run(pair.fill())
    with extender.running(handle) as ours:
        before = ours.calls()
        found = asyncio.run(pair.run(ours.configuration, seconds=SECONDS))
        calls = ours.calls() - before
    asyncio.run(pair.stop())
    return found, calls


def test_published_use_cases_have_the_published_outcome_on_both_schedulers(run: Run) -> None:
    outcomes = {
        case.sentence: (run.upstream[case.scenario.name], run.reprieve[case.scenario.name])
        for case in USE_CASES
    }
    assert outcomes == {case.sentence: (case.outcome, case.outcome) for case in USE_CASES}


def test_upstreams_scheduler_follows_the_rule_from_its_sources(run: Run) -> None:
    assert breaking(run.upstream, rule.decide) == []


def test_our_extender_takes_the_same_victims_except_for_the_named_differences(run: Run) -> None:
    assert breaking(run.reprieve, lambda scenario: rule.decide(scenario, rule.REPRIEVE)) == []
    unnamed = [
        scenario
        for scenario in SCENARIOS
        if rule.explain(scenario, run.reprieve[scenario.name]) is None
    ]
    assert unnamed == []


def test_the_scheduler_always_used_the_answer_of_the_extender(run: Run) -> None:
    # Any other outcome of a call is one after which the scheduler has kept to its own choice. On a
    # busy machine, a watch may be behind.
    assert set(run.calls) - {"behind"} == {"chosen", "nothing"}
    assert run.calls["behind"] <= run.calls.total() // 100
    assert run.calls["chosen"] >= sum(outcome.node is not None for outcome in run.reprieve.values())


@pytest.mark.parametrize("difference", Difference)
def test_each_named_difference_explains_its_example_alone(run: Run, difference: Difference) -> None:
    shown = EXAMPLES[difference]
    assert run.upstream[shown.scenario.name] == shown.upstream
    assert run.reprieve[shown.scenario.name] == shown.reprieve != shown.upstream
    assert rule.explain(shown.scenario, shown.reprieve) == {difference}


def breaking(
    found: dict[str, ScenarioOutcome], wanted: Callable[[Scenario], ScenarioOutcome]
) -> list[str]:
    """Return what was found otherwise than wanted, in words."""
    pairs = ((scenario, found[scenario.name], wanted(scenario)) for scenario in SCENARIOS)
    return [
        f"{outcome}, not {want}: {scenario}" for scenario, outcome, want in pairs if outcome != want
    ]

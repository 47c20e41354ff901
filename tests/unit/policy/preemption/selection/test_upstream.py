"""Victims are chosen by upstream's rule, but for the differences that have a name;
`tests/differential` asks upstream itself.
"""

import pytest

from reprieve_testing.differential import core, generator, rule, variations
from reprieve_testing.differential.difference import WHY, Difference
from reprieve_testing.differential.examples import EXAMPLES
from reprieve_testing.differential.published import HIGH, UseCase, use_cases
from reprieve_testing.differential.scenario import (
    MINIMUM,
    SECONDS,
    Scenario,
    ScenarioNode,
    ScenarioOutcome,
    ScenarioPod,
    ScenarioPriorityClass,
)
from reprieve_testing.objects.builders import NOW

SEED = 2026
SCENARIOS = [*generator.scenarios(120, SEED), *variations.variants(12, SEED)]


@pytest.mark.parametrize("case", tuple(use_cases()), ids=lambda case: case.sentence)
def test_published_use_cases_have_the_published_outcome(case: UseCase) -> None:
    assert rule.decide(case.scenario) == core.decide(case.scenario, NOW) == case.outcome


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_decisions_follow_upstreams_rule_and_the_named_differences(scenario: Scenario) -> None:
    if rule.has_room(scenario):
        # Then no scheduler asks.
        assert rule.decide(scenario, rule.REPRIEVE) == rule.decide(scenario)
    else:
        assert core.decide(scenario, NOW) == rule.decide(scenario, rule.REPRIEVE)


@pytest.mark.parametrize(("seconds", "is_taken"), [(599, False), (600, True), (601, True)])
def test_a_toleration_ends_at_the_very_second(seconds: int, is_taken: bool) -> None:  # noqa: FBT001 - a row of the table
    # Too fine for schedulers that run, so only here: upstream's `After` is false where both are the
    # same.
    named = ScenarioPriorityClass(value=8000, annotations={MINIMUM: "10000", SECONDS: "600"})
    node = ScenarioNode(
        name="n0", cpu=1, pods=(ScenarioPod(name="a", priority_class=named, scheduled_ago=seconds),)
    )
    scenario = Scenario(
        name="end", preemptor=ScenarioPod(name="preemptor", priority_class=HIGH), nodes=(node,)
    )
    wanted = ScenarioOutcome("n0", frozenset({"a"})) if is_taken else ScenarioOutcome()
    assert rule.decide(scenario) == core.decide(scenario, NOW) == wanted


@pytest.mark.parametrize("difference", Difference)
def test_each_difference_has_a_reason_and_an_example_of_its_own(difference: Difference) -> None:
    shown = EXAMPLES[difference]
    assert WHY[difference]
    assert shown.upstream != shown.reprieve
    assert rule.decide(shown.scenario) == shown.upstream
    by_itself = [
        one for one in Difference if rule.decide(shown.scenario, frozenset({one})) == shown.reprieve
    ]
    assert by_itself == [difference]
    assert core.decide(shown.scenario, NOW) == shown.reprieve


def test_scenarios_contain_tolerations() -> None:
    without = [
        scenario
        for scenario in SCENARIOS
        if rule.decide(scenario) != rule.decide(generator.without_tolerations(scenario))
    ]
    assert len(without) > len(SCENARIOS) / 6

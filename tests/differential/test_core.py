"""Thousands of scenarios through Reprieve's core and through upstream's rule in Python.

`test_victims` checks with upstream's own scheduler that the rule is upstream's.
"""

from itertools import chain

from reprieve_testing.differential import core, generator, rule, variations
from reprieve_testing.differential.scenario import Scenario, ScenarioOutcome
from reprieve_testing.objects.builders import NOW

PLAIN, FLAVOURED, SEED = 2000, 100, 7


def test_thousands_of_scenarios_follow_upstreams_rule_and_the_named_differences() -> None:
    scenarios = chain(generator.scenarios(PLAIN, SEED), variations.variants(FLAVOURED, SEED))
    assert [found for scenario in scenarios if (found := differing(scenario))] == []


def differing(scenario: Scenario) -> tuple[Scenario, ScenarioOutcome, ScenarioOutcome] | None:
    """Return a scenario with differing outcomes; with free room, no scheduler calls the
    extender.
    """
    if rule.has_room(scenario):
        return None
    found, wanted = core.decide(scenario, NOW), rule.decide(scenario, rule.REPRIEVE)
    return None if found == wanted else (scenario, found, wanted)

"""All scenarios that are run: upstream's published use cases, those that show a difference, and generated ones."""

from collections import Counter
from collections.abc import Sequence

from . import flavours, generator, rule
from .difference import Difference
from .published import use_cases
from .scenario import Scenario
from .shown import EXAMPLES

GENERATED, SEED = 500, 2026
_SHARE = 1 / 25
"""Of scenarios of each flavour, beside one generated."""


def all_scenarios(generated: int = GENERATED, seed: int = SEED) -> Sequence[Scenario]:
    """Return them; their names tell which is which."""
    return (
        *(case.scenario for case in use_cases()),
        *(shown.scenario for shown in EXAMPLES.values()),
        *generator.scenarios(generated, seed),
        *flavours.variants(round(generated * _SHARE), seed),
    )


def count_differences(scenarios: Sequence[Scenario]) -> Counter[frozenset[Difference]]:
    """Count the scenarios about which Reprieve differs from upstream, by what explains it; by the rule, that is."""
    outcomes = ((scenario, rule.decide(scenario, rule.REPRIEVE)) for scenario in scenarios)
    explained = (rule.explain(scenario, outcome) for scenario, outcome in outcomes)
    return Counter(found for found in explained if found)

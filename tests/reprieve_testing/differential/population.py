"""All scenarios of a run: upstream's published use cases, the examples of differences, generated
ones.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from . import generator, rule, variations
from .difference import Difference
from .examples import EXAMPLES
from .published import use_cases
from .scenario import Scenario

GENERATED, SEED = 500, 2026
_SHARE = 1 / 25
"""The scenarios of each variation, for each generated scenario."""


def all_scenarios(generated: int = GENERATED, seeds: Iterable[int] = (SEED,)) -> Sequence[Scenario]:
    """Return the scenarios of all kinds; the name of each shows its kind, and its seed.

    `generated`: for each seed.
    """
    return (
        *(case.scenario for case in use_cases()),
        *(shown.scenario for shown in EXAMPLES.values()),
        *(
            scenario
            for seed in seeds
            for scenario in (
                *generator.scenarios(generated, seed),
                *variations.variants(round(generated * _SHARE), seed),
            )
        ),
    )


def count_differences(scenarios: Sequence[Scenario]) -> Counter[frozenset[Difference]]:
    """Count the scenarios with outcomes that differ by the rule, by the explaining differences."""
    outcomes = ((scenario, rule.decide(scenario, rule.REPRIEVE)) for scenario in scenarios)
    explained = (rule.explain(scenario, outcome) for scenario, outcome in outcomes)
    return Counter(found for found in explained if found)

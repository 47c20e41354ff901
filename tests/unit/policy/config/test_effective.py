"""Which policy is in force when its ConfigMap appears, becomes invalid, is fixed and is deleted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from reprieve_policy.config.effective import EffectivePolicy, decide_effective_policy

Data = Mapping[str, str] | None
NONE: Data = None
TWO, THREE = {"defaultPreemptionClass": "2"}, {"defaultPreemptionClass": "3"}
BROKEN = {"defaultPreemptionClass": "11"}


@dataclass(frozen=True)
class Case:
    """The ConfigMap's versions in order; the default class in force at the end; its validity."""

    changes: Sequence[Data]
    default_class: int
    is_as_written: bool = True


CASES = {
    "without a ConfigMap the defaults hold": Case([], 4),
    "the settings of the ConfigMap are in force": Case([TWO], 2),
    "a removed key has its default again, not its previous value": Case([TWO, {}], 4),
    "a broken ConfigMap changes nothing": Case([TWO, BROKEN], 2, is_as_written=False),
    "a second broken ConfigMap changes nothing": Case(
        [TWO, BROKEN, {"ceiling": "x"}], 2, is_as_written=False
    ),
    "a ConfigMap broken from the start leaves the defaults": Case([BROKEN], 4, is_as_written=False),
    "an unknown key makes it invalid": Case([TWO, {"defaultClass": "3"}], 2, is_as_written=False),
    "a corrected ConfigMap is in force": Case([TWO, BROKEN, THREE], 3),
    "a deleted ConfigMap restores the defaults": Case([TWO, NONE], 4),
    "a broken ConfigMap that is deleted restores the defaults": Case([TWO, BROKEN, NONE], 4),
    "a deleted policy does not return with a broken one": Case(
        [TWO, NONE, BROKEN], 4, is_as_written=False
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_which_policy_is_in_force(case: Case) -> None:
    held = EffectivePolicy()
    for data in case.changes:
        held = decide_effective_policy(held, data)

    assert (held.settings.default_class, held.is_config_map_valid) == (
        case.default_class,
        case.is_as_written,
    )
    assert bool(held.error_message) is not case.is_as_written


def test_the_error_message_names_the_violations_without_their_values() -> None:
    held = decide_effective_policy(EffectivePolicy(), {"defaultPreemptionClass": "secret"})

    assert held.error_message == (
        "data[defaultPreemptionClass]: must be between 0 and 6, in plain digits: only Namespaces "
        "and PriorityClasses can give a higher class"
    )


def test_the_error_message_is_limited_for_any_number_of_violations() -> None:
    held = decide_effective_policy(
        EffectivePolicy(), {f"{number}" * 200: "x" for number in range(5000)}
    )

    assert len(held.violations) == 5000
    assert len(held.error_message) < 4300
    assert held.error_message.endswith("; and 4995 more")

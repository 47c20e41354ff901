"""How a victim that may go is ended, as a table of what holds then."""

from dataclasses import dataclass, field

import pytest

from reprieve_policy import ending
from reprieve_policy.ending import Way
from reprieve_policy.settings import PolicySettings
from reprieve_testing.builders import after, an_eviction

EVICTS = PolicySettings(end_with="evict", ceiling_seconds=600)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What holds `seconds` after the victim was requested."""

    settings: PolicySettings = field(default_factory=PolicySettings)
    seconds: float = 60
    want: Way


CASES = {
    "without a word of the admin's it is deleted": Case(want=Way.DELETE),
    "it is evicted where the admin wants budgets honoured": Case(settings=EVICTS, want=Way.EVICT),
    "no budget is honoured beyond the ceiling": Case(settings=EVICTS, seconds=600, want=Way.DELETE),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_victim_is_ended(case: Case) -> None:
    assert ending.decide(an_eviction().build(), case.settings, after(case.seconds)) is case.want

"""Which victims are a set, and for which of them the others wait."""

import pytest

from reprieve_policy.lifecycle import victim_set
from reprieve_policy.lifecycle.eviction import AWAITING_WORKLOAD, Phase
from reprieve_testing.builders import an_eviction


def test_a_set_has_a_preemptor_and_a_node() -> None:
    assert victim_set.key_of("uid-of-high", "a") == ("uid-of-high", "a")
    assert victim_set.key_of("", "a") is None
    assert victim_set.key_of("uid-of-high", "") is None


def test_a_victim_whose_notice_is_due_is_awaited() -> None:
    assert victim_set.is_awaited(None)


@pytest.mark.parametrize("phase", Phase)
def test_a_victim_is_awaited_while_its_workload_may_still_save(phase: Phase) -> None:
    state = an_eviction().in_phase(phase).build()
    assert victim_set.is_awaited(state) == (phase in (Phase.REQUESTED, *AWAITING_WORKLOAD))

"""Which victims are a set, and for which of them the others wait."""

from dataclasses import replace

import pytest

from reprieve_policy.lifecycle import victim_set
from reprieve_policy.lifecycle.eviction import (
    AWAITING_WORKLOAD,
    CheckpointOutcome,
    Eviction,
    Phase,
)
from reprieve_policy.lifecycle.victim_set import OPEN_ENDED
from reprieve_testing.objects.builders import EvictionBuilder, after, an_eviction


def test_a_set_has_a_preemptor_and_a_node() -> None:
    assert victim_set.key_of("uid-of-high", "a") == ("uid-of-high", "a")
    assert victim_set.key_of("", "a") is None
    assert victim_set.key_of("uid-of-high", "") is None


def test_a_victim_whose_notice_is_due_is_awaited() -> None:
    assert victim_set.awaited_until(None, None) is OPEN_ENDED


@pytest.mark.parametrize("phase", Phase)
def test_a_victim_is_awaited_while_its_workload_may_still_save(phase: Phase) -> None:
    state = an_eviction().in_phase(phase).build()
    may_save = phase in (Phase.REQUESTED, *AWAITING_WORKLOAD)
    assert victim_set.awaited_until(state, None) == (OPEN_ENDED if may_save else None)


@pytest.mark.parametrize("phase", [Phase.SETTLED, Phase.SAVED])
def test_a_victim_that_waits_for_its_cleaners_is_awaited(phase: Phase) -> None:
    state = replace(an_eviction().in_phase(phase).build(), cleaners_until=after(60))
    assert victim_set.awaited_until(state, None) is OPEN_ENDED
    assert victim_set.awaited_until(replace(state, phase=Phase.TERMINATING), None) is None


@pytest.mark.parametrize("phase", [Phase.SETTLED, Phase.TERMINATING])
def test_a_victim_that_saves_on_sigterm_is_awaited_until_its_grace_period_ends(
    phase: Phase,
) -> None:
    ended = an_eviction().ended(CheckpointOutcome.ON_SIGTERM).build()
    assert victim_set.awaited_until(replace(ended, phase=phase), None) is OPEN_ENDED
    assert victim_set.awaited_until(replace(ended, phase=phase), after(90)) == after(90)


@pytest.mark.parametrize("state", [None, an_eviction().ended(CheckpointOutcome.SAVED).build()])
def test_any_other_victim_that_is_being_deleted_is_not_awaited(state: Eviction | None) -> None:
    assert victim_set.awaited_until(state, after(90)) is None


@pytest.mark.parametrize("outcome", [CheckpointOutcome.SKIPPED, CheckpointOutcome.LOSES_LESS])
def test_a_victim_that_is_not_asked_waits_while_its_set_may_grow(
    outcome: CheckpointOutcome,
) -> None:
    state = an_eviction().ended(outcome).build()
    assert victim_set.waits_for_set(state, is_set_ready=True, may_set_grow=True)
    assert victim_set.waits_for_set(state, is_set_ready=False, may_set_grow=False)
    assert not victim_set.waits_for_set(state, is_set_ready=True, may_set_grow=False)


def test_a_victim_that_has_saved_waits_only_until_its_set_is_ready() -> None:
    state = an_eviction().ended(CheckpointOutcome.SAVED).build()
    assert not victim_set.waits_for_set(state, is_set_ready=True, may_set_grow=True)
    assert victim_set.waits_for_set(state, is_set_ready=False, may_set_grow=False)


def test_a_victim_that_saves_on_sigterm_never_waits_for_its_set() -> None:
    state = an_eviction().ended(CheckpointOutcome.ON_SIGTERM).build()
    assert not victim_set.waits_for_set(state, is_set_ready=False, may_set_grow=True)


STAYS = {
    "a scheduler's, whose preemptor left": (an_eviction().asked_by_scheduler(), True),
    "a person's": (an_eviction(), False),
}


@pytest.mark.parametrize(("victim", "want"), STAYS.values(), ids=STAYS)
def test_a_victim_stays_if_its_preemptor_left(victim: EvictionBuilder, *, want: bool) -> None:
    state = victim.build()
    assert victim_set.is_not_needed(state, has_preemptor_left=True, is_node_wanted=False) is want
    assert not victim_set.is_not_needed(state, has_preemptor_left=True, is_node_wanted=True)
    assert not victim_set.is_not_needed(state, has_preemptor_left=False, is_node_wanted=False)


def test_a_gang_that_is_evicted_as_a_unit_is_not_taken_back_for_one_of_its_pods() -> None:
    state = replace(an_eviction().asked_by_scheduler().build(), gang="train")
    assert not victim_set.is_not_needed(state, has_preemptor_left=True, is_node_wanted=False)

"""When Reprieve's finalizer is removed, and which cleaners are waited for."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import cleanup
from reprieve_policy.lifecycle.cleanup import HeldVictim, ReleaseReason
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Phase
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_testing.objects.builders import after, an_eviction

HELD = HeldVictim(overdue=timedelta(seconds=-20), ceiling_seconds=300)
RELEASES = {
    "its containers run": (HELD, None),
    "its containers have ended": (
        replace(HELD, have_containers_ended=True),
        ReleaseReason.CONTAINERS_ENDED,
    ),
    "no kubelet will report its end": (replace(HELD, is_forced=True), ReleaseReason.FORCED),
    "just before the ceiling": (replace(HELD, overdue=timedelta(seconds=299.9)), None),
    "at the ceiling": (replace(HELD, overdue=timedelta(seconds=300)), ReleaseReason.CEILING),
}


@pytest.mark.parametrize(("held", "reason"), RELEASES.values(), ids=RELEASES)
def test_when_the_finalizer_is_removed(held: HeldVictim, reason: ReleaseReason | None) -> None:
    assert cleanup.decide_release(held) is reason


@pytest.mark.parametrize("phase", Phase)
def test_a_victim_is_held_from_its_notice_on(phase: Phase) -> None:
    state = an_eviction().in_phase(phase).build()
    begun = phase is not Phase.REPRIEVED and phase not in TERMINAL
    assert cleanup.is_held(state, PolicySettings()) is begun
    assert not cleanup.is_held(state, PolicySettings(cleanup_finalizer=False))


def test_a_named_cleaner_counts_while_its_finalizer_is_on_the_pod() -> None:
    named = ("example.com/a", "example.com/b", "example.com/c")
    on_pod = ["example.com/other", "example.com/c", "example.com/a"]
    assert cleanup.pending_cleaners(named, on_pod) == ("example.com/a", "example.com/c")
    assert cleanup.pending_cleaners(named, []) == ()


@pytest.mark.parametrize("phase", Phase)
def test_only_a_victim_that_is_ready_waits_for_cleaners(phase: Phase) -> None:
    state = replace(an_eviction().in_phase(phase).build(), cleaners_until=after(60))
    assert cleanup.waits_for_cleaners(state) is (phase in (Phase.SETTLED, Phase.SAVED))
    assert not cleanup.waits_for_cleaners(replace(state, cleaners_until=None))


def test_the_replacement_of_an_overtaken_victim_inherits_once_its_workload_was_asked() -> None:
    unasked = an_eviction().ended(CheckpointOutcome.OVERTAKEN).build()
    asked = an_eviction().hinted(deadline=after(600)).ended(CheckpointOutcome.OVERTAKEN).build()
    assert not cleanup.inherits_if_overtaken(unasked)
    assert cleanup.inherits_if_overtaken(asked)
    assert cleanup.inherits_if_overtaken(replace(unasked, outcome=CheckpointOutcome.SAVED))

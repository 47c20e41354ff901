"""When Reprieve's finalizer is removed, and which cleaners are waited for."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import cleanup
from reprieve_policy.lifecycle.cleanup import (
    CleanedPod,
    CleanerTurn,
    HeldVictim,
    ReleaseReason,
)
from reprieve_policy.lifecycle.eviction import AWAITING_WORKLOAD, CheckpointOutcome, Phase
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_testing.objects.builders import NOW, after, an_eviction

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


UNWRITTEN = {
    "before the ceiling": (299.9, 3600, None),
    "at the ceiling, after a minute of refusals": (300, 60, ReleaseReason.WRITES_REFUSED),
    "after the ceiling, at a first refusal": (3600, 0, None),
}


@pytest.mark.parametrize(("overdue", "refused", "reason"), UNWRITTEN.values(), ids=UNWRITTEN)
def test_when_the_finalizer_is_removed_though_writes_fail(
    overdue: float, refused: float, reason: ReleaseReason | None
) -> None:
    held = replace(HELD, overdue=timedelta(seconds=overdue), have_containers_ended=True)
    assert cleanup.decide_release_unwritten(held, timedelta(seconds=refused)) is reason


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


RUNNING = CleanedPod(has_finalizer=True)
NAMED = replace(RUNNING, names_cleaner=True, eviction=an_eviction().hinted(deadline=NOW).build())
TURNS = {
    "a pod that runs": (RUNNING, None),
    "a victim that does not name the cleaner": (replace(NAMED, names_cleaner=False), None),
    "a victim that names the cleaner": (NAMED, CleanerTurn.BEFORE_SIGTERM),
    "a pod that names the cleaner and is no victim": (replace(NAMED, eviction=None), None),
    "a pod that is deleted and whose containers run": (
        replace(RUNNING, is_being_deleted=True),
        None,
    ),
    "a pod that was deleted by any client and has ended": (
        replace(RUNNING, is_being_deleted=True, has_ended=True),
        CleanerTurn.AT_THE_END,
    ),
    "a pod that has ended and is not deleted": (replace(RUNNING, has_ended=True), None),
    "a pod without the finalizer": (replace(NAMED, has_finalizer=False), None),
}


@pytest.mark.parametrize(("pod", "turn"), TURNS.values(), ids=TURNS)
def test_when_a_cleaner_does_its_work(pod: CleanedPod, turn: CleanerTurn | None) -> None:
    assert cleanup.decide_turn(pod) is turn


@pytest.mark.parametrize("phase", Phase)
def test_a_cleaner_before_sigterm_is_asked_from_the_notice_on(phase: Phase) -> None:
    pod = replace(NAMED, eviction=an_eviction().in_phase(phase).build())
    asked = (*AWAITING_WORKLOAD, Phase.SETTLED, Phase.SAVED, Phase.TERMINATING)
    assert (cleanup.decide_turn(pod) is not None) is (phase in asked)


ABSENT = replace(RUNNING, has_finalizer=False)
ADDED = {
    "a living pod": (ABSENT, True),
    "a pod that has it": (RUNNING, False),
    "a pod that is being deleted": (replace(ABSENT, is_being_deleted=True), False),
    "a pod that has ended": (replace(ABSENT, has_ended=True), False),
    "a victim whose cleaner is done before SIGTERM": (replace(NAMED, has_finalizer=False), False),
}


@pytest.mark.parametrize(("pod", "is_added"), ADDED.values(), ids=ADDED)
def test_a_cleaner_puts_its_finalizer_on_living_pods(pod: CleanedPod, *, is_added: bool) -> None:
    assert cleanup.may_add_finalizer(pod) is is_added

"""How a victim is ended, as a table of its circumstances."""

from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import termination
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase, Source
from reprieve_policy.lifecycle.suspension import SuspensionReadiness
from reprieve_policy.lifecycle.termination import EvictionMethod, OwnerJobState
from reprieve_testing.objects.builders import NOW, EvictionBuilder, after, an_eviction

EVICTS = PolicySettings(end_with="evict", ceiling_seconds=600)
SUSPENDS = PolicySettings(suspend_jobs=True, end_with="evict", ceiling_seconds=600)


def a_job(
    *others: SuspensionReadiness, may_be_suspended: bool = True, is_suspended: bool = False
) -> OwnerJobState:
    return OwnerJobState(
        may_be_suspended=may_be_suspended, is_suspended=is_suspended, other_pods=frozenset(others)
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """The circumstances `seconds` after the victim was requested."""

    settings: PolicySettings = field(default_factory=PolicySettings)
    job: OwnerJobState | None = None
    outcome: CheckpointOutcome = CheckpointOutcome.SAVED
    must_evict: bool = False
    seconds: float = 60
    grace_seconds: int = 30
    want: EvictionMethod


CASES = {
    "by default, the victim is deleted": Case(want=EvictionMethod.DELETE),
    "by default, a Job's victim is deleted": Case(job=a_job(), want=EvictionMethod.DELETE),
    "the victim is evicted if the admin wants budgets honoured": Case(
        settings=EVICTS, want=EvictionMethod.EVICT
    ),
    "no budget is honoured beyond the ceiling": Case(
        settings=EVICTS, seconds=600, want=EvictionMethod.DELETE
    ),
    "a Job whose only pod has saved is suspended": Case(
        settings=SUSPENDS, job=a_job(), want=EvictionMethod.SUSPEND
    ),
    "a Job whose only pod had nothing to save is suspended": Case(
        settings=SUSPENDS,
        job=a_job(),
        outcome=CheckpointOutcome.SKIPPED,
        want=EvictionMethod.SUSPEND,
    ),
    "a Job whose pod did not answer is not suspended": Case(
        settings=SUSPENDS,
        job=a_job(),
        outcome=CheckpointOutcome.UNRESPONSIVE,
        want=EvictionMethod.EVICT,
    ),
    "a victim without a Job is evicted": Case(settings=SUSPENDS, want=EvictionMethod.EVICT),
    "a Job that another controller manages is not suspended": Case(
        settings=SUSPENDS, job=a_job(may_be_suspended=False), want=EvictionMethod.EVICT
    ),
    "a Job with one pod that is no victim is not suspended": Case(
        settings=SUSPENDS,
        job=a_job(
            SuspensionReadiness.READY_WITH_CONDITION,
            SuspensionReadiness.SAVING,
            SuspensionReadiness.PREVENTS_SUSPENSION,
        ),
        want=EvictionMethod.EVICT,
    ),
    "a Job is suspended only after its other victims have saved": Case(
        settings=SUSPENDS,
        job=a_job(
            SuspensionReadiness.READY_WITH_CONDITION,
            SuspensionReadiness.READY,
            SuspensionReadiness.SAVING,
        ),
        want=EvictionMethod.WAIT,
    ),
    "once all pods may be deleted, each pod's condition is written": Case(
        settings=SUSPENDS,
        job=a_job(SuspensionReadiness.READY_WITH_CONDITION, SuspensionReadiness.READY),
        want=EvictionMethod.SET_DISRUPTION_CONDITION,
    ),
    "a Job is suspended once the conditions of all its pods are written": Case(
        settings=SUSPENDS,
        job=a_job(SuspensionReadiness.READY_WITH_CONDITION),
        want=EvictionMethod.SUSPEND,
    ),
    "the victim waits for the Job controller": Case(
        settings=SUSPENDS, job=a_job(is_suspended=True), want=EvictionMethod.WAIT
    ),
    "on a lost node, the victim is deleted without the Eviction API": Case(
        settings=EVICTS, grace_seconds=0, want=EvictionMethod.DELETE
    ),
    "on a lost node, the victim does not wait for its Job": Case(
        settings=SUSPENDS,
        job=a_job(SuspensionReadiness.SAVING),
        grace_seconds=0,
        want=EvictionMethod.DELETE,
    ),
    "a pod that an eviction asked for is evicted, whatever the policy": Case(
        must_evict=True, want=EvictionMethod.EVICT
    ),
    "a requested eviction stays an eviction beyond the ceiling": Case(
        must_evict=True, seconds=6000, want=EvictionMethod.EVICT
    ),
    "a requested eviction stays an eviction on a lost node": Case(
        must_evict=True, grace_seconds=0, want=EvictionMethod.EVICT
    ),
    "a requested eviction does not suspend the Job": Case(
        settings=SUSPENDS, job=a_job(), must_evict=True, want=EvictionMethod.EVICT
    ),
    "the wait for other pods ends at the ceiling": Case(
        settings=SUSPENDS,
        job=a_job(SuspensionReadiness.SAVING),
        seconds=600,
        want=EvictionMethod.DELETE,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_victim_is_ended(case: Case) -> None:
    ended = an_eviction().ended(case.outcome).build()
    victim = replace(ended, grace_seconds=case.grace_seconds, must_evict=case.must_evict)
    assert (
        termination.decide_method(victim, case.job, case.settings, after(case.seconds)) is case.want
    )


def test_others_wait_for_a_held_victim_until_the_ceiling_and_once_more_for_all_that_follow() -> (
    None
):
    asked = replace(an_eviction().build(), must_evict=True)
    assert termination.budget_wait_ends_at(asked, EVICTS) == after(600)
    assert termination.budget_wait_ends_at(
        replace(asked, requested_at=after(900), held_since=after(600)), EVICTS
    ) == after(1200)


HINTED = an_eviction().hinted(deadline=after(600)).build()
PREEMPTED = replace(HINTED, source=Source.KOORDINATOR)


@pytest.mark.parametrize(
    ("state", "may_stay"),
    [
        (HINTED, False),
        (PREEMPTED, True),
        (replace(PREEMPTED, gang="train"), False),
        (replace(HINTED, must_evict=True), True),
        (replace(HINTED, must_evict=True, gang="train", source=Source.GANG), False),
        (replace(PREEMPTED, phase=Phase.CANCELLED), False),
    ],
)
def test_a_victim_may_stay_for_its_preemptor_or_for_a_budget(
    state: Eviction, *, may_stay: bool
) -> None:
    assert termination.may_stay(state) is may_stay


@pytest.mark.parametrize("must_evict", [True, False])
def test_only_a_victim_that_waits_to_be_evicted_is_held(*, must_evict: bool) -> None:
    ended = replace(an_eviction().ended(CheckpointOutcome.SAVED).build(), must_evict=must_evict)
    assert termination.is_held_by_budget(ended) is must_evict
    assert not termination.is_held_by_budget(replace(an_eviction().build(), must_evict=must_evict))


@pytest.mark.parametrize("must_evict", [True, False])
def test_a_victim_that_a_budget_held_before_may_be_held_again_while_it_saves(
    *, must_evict: bool
) -> None:
    again = replace(an_eviction().build(), must_evict=must_evict, held_since=NOW)
    assert termination.is_held_by_budget(again) is must_evict
    assert not termination.is_held_by_budget(replace(again, phase=Phase.CANCELLED))


def stood_down(ago: float, since: float | None = None) -> Eviction:
    """Return the last state of a pod requested `ago` seconds ago, maybe held by a budget before."""
    held_since = None if since is None else after(-since)
    over = an_eviction().in_phase(Phase.CANCELLED).build()
    return replace(
        over,
        requested_at=after(-ago),
        held_since=held_since,
        outcome=CheckpointOutcome.HELD_BY_BUDGET,
    )


FOLLOWED = {
    "the first eviction has no predecessor": (None, None),
    "an eviction after a user's cancellation follows no delay by a budget": (
        an_eviction().in_phase(Phase.CANCELLED).build(),
        None,
    ),
    "an eviction soon after a budget delayed the last one": (stood_down(ago=600), NOW),
    "an eviction some time after a budget delayed the last one": (stood_down(ago=700), after(-100)),
    "an eviction after many delays by a budget": (stood_down(ago=600, since=7200), after(-7200)),
    "an eviction after a budget's delay and the refusal of a scheduler": (
        replace(stood_down(ago=5, since=600), phase=Phase.SPARED, outcome=CheckpointOutcome.SPARED),
        after(-600),
    ),
    "an eviction just before the delay is forgotten": (stood_down(ago=1199), after(-599)),
    "an eviction once the delay is forgotten": (stood_down(ago=1200), None),
}


@pytest.mark.parametrize(("before", "want"), FOLLOWED.values(), ids=FOLLOWED)
def test_a_new_request_after_a_hold_does_not_begin_a_new_wait(
    before: Eviction | None, want: datetime | None
) -> None:
    begun = an_eviction().build()
    assert termination.carry_over_budget_hold(begun, before, EVICTS) == replace(
        begun, held_since=want
    )


INHERITED = {
    "a victim that finished has no replacement": (
        an_eviction().hinted(deadline=after(60)),
        False,
        False,
    ),
    "a notified victim that failed has the ledger of a deleted one": (
        an_eviction().hinted(deadline=after(60)),
        True,
        True,
    ),
    "a victim that failed before it was notified failed by itself": (an_eviction(), True, False),
}


@pytest.mark.parametrize(("victim", "has_failed", "want"), INHERITED.values(), ids=INHERITED)
def test_of_a_pod_that_ended_by_itself(
    victim: EvictionBuilder,
    *,
    has_failed: bool,
    want: bool,
) -> None:
    assert termination.counts_as_preempted(victim.build(), has_failed=has_failed) is want


def test_a_pod_is_counted_from_when_its_end_was_chosen() -> None:
    assert not termination.is_recorded_in_ledger(an_eviction().build())
    assert termination.is_recorded_in_ledger(replace(an_eviction().build(), grace_seconds=0))


@pytest.mark.parametrize(
    ("ceiling_seconds", "left", "is_urgent"),
    [(1800, 61, False), (1800, 60, True), (1800, -5, True), (40, 11, False), (40, 10, True)],
)
def test_a_victim_is_urgent_shortly_before_its_ceiling(
    ceiling_seconds: int, left: int, *, is_urgent: bool
) -> None:
    settings = PolicySettings(ceiling_seconds=ceiling_seconds)
    found = termination.is_urgent(an_eviction().build(), settings, after(ceiling_seconds - left))
    assert found is is_urgent


@pytest.mark.parametrize(
    ("pods", "ceiling_seconds", "seconds"), [(0, 1800, 0), (1000, 1800, 30), (1000, 60, 15)]
)
def test_a_gang_waits_less_by_what_its_deletion_takes(
    pods: int, ceiling_seconds: int, seconds: int
) -> None:
    settings = PolicySettings(ceiling_seconds=ceiling_seconds)
    latest = termination.latest_deadline(an_eviction().build(), settings, pods)
    assert latest == after(ceiling_seconds - seconds)

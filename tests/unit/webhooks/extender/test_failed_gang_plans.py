"""A gang without a plan is not planned again for a multiple of the time that it took."""

from reprieve_policy.preemption.selection.snapshot import GangKey
from reprieve_webhooks.extender.failed_gang_plans import FACTOR, MIN_SECONDS, FailedGangPlans

GANG, OTHER = GangKey("team", "train"), GangKey("team", "other")


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_failed_plan_holds_for_a_multiple_of_the_time_that_it_took() -> None:
    clock = Clock()
    failed = FailedGangPlans(monotonic=clock)
    clock.seconds = 2.0
    failed.record(GANG, 0.0)
    assert (failed.has(GANG), failed.has(OTHER)) == (True, False)

    clock.seconds = 2.0 + 2.0 * FACTOR - 0.1
    assert failed.has(GANG)
    clock.seconds = 2.0 + 2.0 * FACTOR
    assert not failed.has(GANG)


def test_a_plan_that_takes_no_longer_than_one_for_a_pod_is_made_again() -> None:
    failed = FailedGangPlans(monotonic=Clock())
    failed.record(GANG, -MIN_SECONDS / 2)
    assert not failed.has(GANG)


def test_beyond_the_limit_the_oldest_gang_is_forgotten() -> None:
    failed = FailedGangPlans(max_gangs=1, monotonic=Clock())
    for gang in (GANG, OTHER):
        failed.record(gang, -2.0)
    assert (failed.has(GANG), failed.has(OTHER)) == (False, True)

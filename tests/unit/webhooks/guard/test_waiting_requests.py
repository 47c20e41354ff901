"""Which requests for a victim were told to come back and are not back yet."""

import pytest

from reprieve_webhooks.guard.waiting_requests import WaitingRequests


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0
        self.waiting = WaitingRequests(lambda: self.seconds)

    def tell(self, uid: str = "a", *, times: int = 1, by: str = "p") -> None:
        for _ in range(times):
            self.waiting.add(uid, by, 5)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_two_requests_of_a_preemptor_wait_and_a_third_one_need_not(clock: Clock) -> None:
    clock.tell()
    assert not clock.waiting.is_enough("a", "p", 1)
    clock.tell()
    assert clock.waiting.is_enough("a", "p", 1)


def test_the_pods_of_a_job_that_preempt_one_victim_may_all_wait(clock: Clock) -> None:
    clock.tell(times=5)
    assert not clock.waiting.is_enough("a", "p", 3)
    clock.tell()
    assert clock.waiting.is_enough("a", "p", 3)


def test_a_request_that_is_back_waits_no_longer(clock: Clock) -> None:
    clock.tell(times=2)
    clock.seconds += 4.9
    assert clock.waiting.is_enough("a", "p", 1)
    clock.seconds += 0.1
    assert not clock.waiting.is_enough("a", "p", 1)


def test_requests_for_other_victims_and_of_other_preemptors_do_not_count(clock: Clock) -> None:
    clock.tell(times=2)
    assert not clock.waiting.is_enough("b", "p", 1)
    assert not clock.waiting.is_enough("a", "q", 1)


def test_the_victims_of_a_preemptor_count_for_which_requests_wait(clock: Clock) -> None:
    clock.tell("a", times=2)
    clock.tell("b", by="q")
    assert [clock.waiting.count_victims(uid, "p") for uid in "ab"] == [1, 2]
    clock.seconds += 3
    clock.tell("b")
    clock.seconds += 2
    assert [clock.waiting.count_victims(uid, "p") for uid in "abc"] == [2, 1, 2]


def test_a_request_that_is_back_ends_the_attempt_once_and_with_it_the_other_requests(
    clock: Clock,
) -> None:
    assert not clock.waiting.try_end("a", "p")
    clock.tell("a")
    clock.tell("b")
    clock.tell("c", by="q")
    clock.seconds += 4.9
    assert not clock.waiting.try_end("a", "p")
    clock.seconds += 0.1
    assert not clock.waiting.try_end("c", "p")
    assert [clock.waiting.try_end(uid, "p") for uid in "aab"] == [True, False, False]
    assert clock.waiting.try_end("c", "q")


def test_while_another_request_for_the_victim_waits_no_attempt_ends(clock: Clock) -> None:
    clock.tell("a")
    clock.seconds += 3
    clock.tell("a")
    clock.seconds += 2
    assert not clock.waiting.try_end("a", "p")

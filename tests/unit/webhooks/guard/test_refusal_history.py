"""How many victims a preemptor waits for: those that were refused lately, of its node or for it."""

import pytest

from reprieve_webhooks.guard.refusal_history import RefusalHistory


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0
        self.memory = RefusalHistory(lambda: self.seconds)

    def refuse(self, uids: str, node: str = "one", by: str = "p", *, after: float = 0.0) -> None:
        self.seconds += after
        for uid in uids:
            self.memory.record_refusal(uid, node, by=by, was_timed=True)

    def pass_for_gone(self, uids: str, *, times: int, every: float, by: str = "p") -> None:
        for _ in range(times):
            self.seconds += every
            for uid in uids:
                self.memory.record_not_found(uid, "one", by=by)

    def is_pressed(self, uid: str, by: str = "p") -> bool:
        return self.memory.retries_despite_not_found(uid, "one", by)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_they_are_the_nodes_and_the_preemptors_wherever_they_run(clock: Clock) -> None:
    clock.refuse("ab")
    clock.refuse("c", "two")
    clock.refuse("d", by="q")
    clock.refuse("e", "two", by="q")
    assert clock.memory.count_recent_victims("one", "a", "p") == 4
    assert clock.memory.count_recent_victims("three", "new", "q") == 3
    assert clock.memory.count_recent_victims("three", "new", "") == 1


def test_who_was_refused_long_ago_is_none_and_who_is_refused_again_is_one(clock: Clock) -> None:
    clock.refuse("a")
    clock.refuse("b", after=10)
    clock.refuse("a", after=55)
    clock.refuse("c", after=6)
    # The one between them is too old by now.
    assert clock.memory.count_recent_victims("one", "c", "p") == 2


def test_who_was_let_go_is_none(clock: Clock) -> None:
    clock.refuse("ab")
    clock.memory.forget("a")
    assert clock.memory.count_recent_victims("one", "b", "p") == 1


def test_whoever_asks_again_and_again_for_pods_that_pass_for_gone_is_to_sleep_over_them(
    clock: Clock,
) -> None:
    clock.pass_for_gone("abc", times=5, every=1)
    assert not clock.is_pressed("a")
    clock.pass_for_gone("abc", times=1, every=5.9)
    assert clock.is_pressed("a")
    assert not clock.is_pressed("d")
    assert not clock.is_pressed("a", by="q")


def test_it_sleeps_over_them_until_it_has_not_asked_for_a_minute(clock: Clock) -> None:
    clock.pass_for_gone("abc", times=6, every=1)
    clock.refuse("abc", after=30)
    clock.refuse("abc", after=30)
    assert clock.is_pressed("a")
    clock.seconds += 60
    assert not clock.is_pressed("a")


def test_what_one_was_told_counts_for_no_other(clock: Clock) -> None:
    clock.pass_for_gone("a", times=6, every=1)
    clock.refuse("a", by="q", after=1)
    assert not clock.is_pressed("a", by="q")
    clock.pass_for_gone("b", times=6, every=1)
    clock.pass_for_gone("b", times=1, every=1, by="q")
    assert not clock.is_pressed("b", by="q")


def test_who_asks_rarely_is_told_so_as_often_as_it_asks(clock: Clock) -> None:
    """Two seconds for each: of one call a second, each of two replicas sees a half."""
    clock.pass_for_gone("abc", times=20, every=6)
    assert not clock.is_pressed("a")


GANG = "abcdefgh"


@pytest.mark.parametrize("size", [7, 8])
def test_the_ends_of_the_gang_itself_do_not_count(clock: Clock, size: int) -> None:
    """Each has its preemptor look again, and ask for all that are left: by a long sleep it would miss the last."""
    for left in range(size, 0, -1):
        clock.pass_for_gone(GANG[:left], times=1, every=1)
        assert not clock.is_pressed("a")


def test_of_a_large_gang_only_so_many_are_not_told_from_other_ends(clock: Clock) -> None:
    everybody = [str(number) for number in range(100)]
    for times in range(17):
        assert not clock.is_pressed("0"), times
        clock.seconds += 1
        for uid in everybody:
            clock.memory.record_not_found(uid, "one", by="p")
    assert clock.is_pressed("0")

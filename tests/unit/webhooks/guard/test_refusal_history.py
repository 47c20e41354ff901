"""How many victims a preemptor waits for: those that were refused lately, of its node or for it."""

import pytest

from reprieve_policy.preemption import retry_times
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


def test_victims_of_the_node_and_of_the_preemptor_count_on_every_node(clock: Clock) -> None:
    clock.refuse("ab")
    clock.refuse("c", "two")
    clock.refuse("d", by="q")
    clock.refuse("e", "two", by="q")
    assert clock.memory.count_recent_victims("one", "a", "p") == 4
    assert clock.memory.count_recent_victims("three", "new", "q") == 3
    assert clock.memory.count_recent_victims("three", "new", "") == 1


def test_old_refusals_do_not_count_and_repeated_ones_count_once(clock: Clock) -> None:
    clock.refuse("a")
    clock.refuse("b", after=10)
    clock.refuse("a", after=55)
    clock.refuse("c", after=6)
    # The one between them is too old by now.
    assert clock.memory.count_recent_victims("one", "c", "p") == 2


def test_a_pod_whose_deletion_was_allowed_does_not_count(clock: Clock) -> None:
    clock.refuse("ab")
    clock.memory.forget("a")
    assert clock.memory.count_recent_victims("one", "b", "p") == 1


def test_a_preemptor_that_retries_often_despite_404_has_to_wait(
    clock: Clock,
) -> None:
    clock.pass_for_gone("abc", times=4, every=1)
    assert not clock.is_pressed("a")
    clock.pass_for_gone("abc", times=1, every=1)
    assert clock.is_pressed("a")
    assert not clock.is_pressed("d")
    assert not clock.is_pressed("a", by="q")


def test_a_preemptor_that_waited_as_it_was_told_gets_404_again(clock: Clock) -> None:
    """Without this, its client would come back eleven times, and it could use no other room."""
    clock.pass_for_gone("abc", times=5, every=1)
    for _ in range(3):
        clock.refuse("abc")
        assert clock.is_pressed("a")
        clock.seconds += 12
        assert not clock.is_pressed("a")
        clock.pass_for_gone("abc", times=1, every=0)


def test_answers_to_one_preemptor_do_not_count_for_another(clock: Clock) -> None:
    clock.pass_for_gone("a", times=6, every=1)
    clock.refuse("a", by="q", after=1)
    assert not clock.is_pressed("a", by="q")
    clock.pass_for_gone("b", times=6, every=1)
    clock.pass_for_gone("b", times=1, every=1, by="q")
    assert not clock.is_pressed("b", by="q")


def test_a_preemptor_that_retries_rarely_always_gets_404(clock: Clock) -> None:
    """Four seconds for each: with a 404 and a 429 each time, two replicas get a call a second."""
    clock.pass_for_gone("abc", times=20, every=12)
    assert not clock.is_pressed("a")


MINUTES = 10


def calls_a_second(victims: int, replicas: int) -> float:
    """Return the calls of a preemptor that is tried again at once, whenever all got an answer."""
    seconds = 0.0
    memories = [RefusalHistory(lambda: seconds) for _ in range(replicas)]
    calls = 0
    for attempt in range(100_000):
        waits = [0.0] * victims
        for number in range(victims):
            memory, uid = memories[(number + attempt) % replicas], f"victim-{number}"
            calls += 1
            if memory.retries_despite_not_found(uid, "one", "p") and memory.may_wait(uid, "p"):
                fellows = memory.count_recent_victims("one", uid, "p")
                waits[number] = retry_times.retry_interval_seconds(fellows)
                memory.record_refusal(uid, "one", by="p", was_timed=True)
            else:
                memory.record_not_found(uid, "one", by="p")
        # Those that got a time are asked for once more; the others are not.
        for number in sorted(range(victims), key=waits.__getitem__):
            if waits[number]:
                calls += 1
                memory = memories[(number + attempt) % replicas]
                started, seconds = seconds, max(seconds, seconds + waits[number])
                memory.record_not_found(f"victim-{number}", "one", by="p")
                seconds = started
        seconds += max(waits)
        if seconds >= 60 * MINUTES:
            break
    return calls / seconds


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("victims", [1, 2, 3, 7])
def test_a_preemptor_that_never_stops_asking_causes_at_most_one_call_a_second(
    victims: int, replicas: int
) -> None:
    assert calls_a_second(victims, replicas) <= 0.6 * replicas


def asked(clock: Clock, uids: str, by: str = "p", *, after: float = 2.0) -> str:
    """Ask for these victims without a pause; return those at which the scheduler may wait."""
    clock.seconds += after
    waits = ""
    for uid in uids:
        waits += uid if clock.memory.may_wait(uid, by) else ""
        clock.memory.record_not_found(uid, "one", by=by)
    return waits


def test_a_scheduler_waits_at_the_last_victim_of_its_first_attempt_after_a_pause(
    clock: Clock,
) -> None:
    """While it waits at another one, it does not notice that all victims end."""
    asked(clock, "abc")
    assert asked(clock, "abc") == "c"
    assert asked(clock, "cba") == "a"
    assert asked(clock, "bac") == "c"
    # Where the second attempt begins is not known: the first one may have ended with `a`.
    assert asked(clock, "bcaabc") == "a"


def test_a_request_that_the_api_server_repeats_is_one_request(clock: Clock) -> None:
    asked(clock, "ab")
    assert asked(clock, "aab") == "b"
    assert asked(clock, "abb") == "b"
    assert asked(clock, "b", after=0.1) == ""


@pytest.mark.parametrize("first", ["aabb", "abab", "abacbc", "aabbcc"])
def test_where_each_victim_changes_in_its_first_review_the_last_one_is_known_all_the_same(
    clock: Clock, first: str
) -> None:
    """The first attempt marks the pods, so the API server asks twice; others follow at once."""
    for place, uid in enumerate(first):
        clock.memory.record_not_found(uid, "one", by="p", is_changed=uid not in first[:place])
    victims = "".join(sorted(set(first)))

    assert asked(clock, victims * 5, after=0.1) == victims[-1] * 5


def test_an_answer_that_the_scheduler_does_not_get_is_no_wait(clock: Clock) -> None:
    clock.memory.record_refusal("a", "one", by="p", was_timed=True, is_changed=True)
    assert asked(clock, "a", after=0) == "a"
    assert asked(clock, "b" + "ab" * 3, after=0.1) == "bbb"


def test_the_api_server_asks_about_a_request_no_third_time(clock: Clock) -> None:
    for uid in "aabb":
        clock.memory.record_not_found(uid, "one", by="p", is_changed=True)
    assert asked(clock, "ab" * 3, after=0.1) == "bbb"


def test_a_victim_that_is_gone_counts_until_it_is_forgotten(clock: Clock) -> None:
    asked(clock, "abc")
    assert asked(clock, "bc") == ""
    clock.seconds += 59
    asked(clock, "bc")
    assert asked(clock, "bc") == "c"


def test_the_only_victim_that_is_left_is_the_last_one_before_the_others_are_forgotten(
    clock: Clock,
) -> None:
    """Without this, nothing would slow its preemptor down for a minute."""
    asked(clock, "abc")
    assert asked(clock, "a") == ""
    assert asked(clock, "aaaa", after=0.1) == "aa"


def test_the_last_of_the_victims_that_are_left_is_known_before_the_others_are_forgotten(
    clock: Clock,
) -> None:
    """Without this, it would wait at any of them after some attempts."""
    asked(clock, "abcd")
    assert asked(clock, "abcd") == "d"
    assert asked(clock, "abc" * 5, after=0.1) == "ccc"
    # Another one ends.
    assert asked(clock, "ab" * 5, after=0.1) == "bbb"
    # All are victims again, which its third request shows.
    assert asked(clock, "abcd" * 3, after=0.1) == "bddd"


def test_a_scheduler_waits_at_the_last_victim_of_each_attempt(clock: Clock) -> None:
    """Seen in `make test-robustness`: four attempts in 0.1 s, and then no other pod ended."""
    asked(clock, "ba")
    assert asked(clock, "ab" * 5) == "b" * 5
    assert asked(clock, "abc" * 3) == "bcc"


def test_where_the_order_changes_the_last_victim_is_known_again_by_the_next_attempts(
    clock: Clock,
) -> None:
    asked(clock, "abc")
    assert asked(clock, "abc") == "c"
    # `c` ended an attempt; was it asked for twice, or does it begin the next one?
    assert asked(clock, "cab", after=0.1) == ""
    assert asked(clock, "acb", after=0.1) == "b"


def test_where_the_order_changes_after_a_moment_the_last_victim_is_known_at_once(
    clock: Clock,
) -> None:
    """Seen in `make test-robustness`: of victims that started in one second, kube-scheduler asks
    first for the one that did not change last. It waited at `b`, and both ended meanwhile.
    """
    asked(clock, "ab")
    assert asked(clock, "abab", after=0.5) == "bb"
    assert asked(clock, "ba", after=0.66) == "a"
    assert asked(clock, "ba", after=0.4) == "a"


def test_where_the_last_victim_is_not_known_it_waits_at_any_once_pods_end_all_the_time(
    clock: Clock,
) -> None:
    asked(clock, "ab")
    assert asked(clock, "ab") == "b"
    assert asked(clock, "baba", after=0.1) == ""
    assert asked(clock, "ba", after=0.1) == "a"
    clock.refuse("b")
    # It is not known what follows a wait at such a victim.
    assert asked(clock, "bab", after=12) == "b"


def test_after_the_wait_the_victim_is_asked_for_again_and_the_next_attempt_begins(
    clock: Clock,
) -> None:
    asked(clock, "abc")
    assert asked(clock, "ab") == ""
    assert clock.memory.may_wait("c", "p")
    clock.refuse("c")
    assert asked(clock, "c", after=12) == "c"
    assert asked(clock, "abc", after=0) == "c"


def test_another_victim_after_a_wait_is_the_first_one_of_the_next_attempt(clock: Clock) -> None:
    asked(clock, "abc")
    assert asked(clock, "ab") == ""
    clock.refuse("c")
    assert asked(clock, "dabc", after=12) == "c"


def test_victims_that_are_asked_for_during_a_wait_do_not_end_it(clock: Clock) -> None:
    asked(clock, "abc")
    assert asked(clock, "ab") == ""
    clock.refuse("c")
    assert asked(clock, "a", after=0.1) == ""
    assert asked(clock, "c", after=12) == "c"
    assert asked(clock, "abc", after=0) == "c"


def test_a_preemptor_with_one_victim_and_an_unknown_one_may_wait(clock: Clock) -> None:
    assert asked(clock, "aaa") == "aaa"
    asked(clock, "bc", by="q")
    assert clock.memory.may_wait("a", "p")
    assert clock.memory.may_wait("b", "")


GANG = "abcdefgh"


@pytest.mark.parametrize("size", [7, 8])
def test_deletions_of_the_gangs_own_pods_do_not_count(clock: Clock, size: int) -> None:
    """After each deletion the preemptor retries those left: a long wait would miss the last."""
    for left in range(size, 0, -1):
        clock.pass_for_gone(GANG[:left], times=1, every=1)
        assert not clock.is_pressed("a")


def test_only_a_limited_number_of_deletions_of_a_large_gang_is_left_out(clock: Clock) -> None:
    uids = [str(number) for number in range(100)]
    for times in range(17):
        assert not clock.is_pressed("0"), times
        clock.seconds += 1
        for uid in uids:
            clock.memory.record_not_found(uid, "one", by="p")
    assert clock.is_pressed("0")

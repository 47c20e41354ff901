"""How often calls are allowed, in total and in one namespace."""

import pytest

from reprieve_runtime import rate_limit
from reprieve_runtime.rate_limit import Rate, RateLimiter, RateLimits

SHARED = RateLimits(
    total=Rate(per_second=4.0, burst=20), per_namespace=Rate(per_second=1.0, burst=4)
)


def take_all(left: RateLimiter, namespace: str, now: float = 0.0) -> int:
    """Return how many calls were left."""
    return next(count for count in range(1000) if not left.try_accept(namespace, now))


def test_a_namespace_gets_up_to_its_limit():
    left = RateLimiter(SHARED, 0.0)
    assert [take_all(left, name) for name in ("a", "a", "b")] == [4, 0, 4]


def test_all_namespaces_together_get_no_more_than_the_total():
    left = RateLimiter(SHARED, 0.0)
    taken = [take_all(left, name) for name in "abcdefg"]
    assert sum(taken) == 20
    assert taken[0] == 4


def test_once_half_is_used_up_each_namespace_gets_its_share():
    left = RateLimiter(SHARED, 0.0)
    assert [take_all(left, name) for name in "abcdef"] == [4, 4, 4, 3, 3, 2]


def test_a_refused_call_costs_the_others_nothing():
    left = RateLimiter(SHARED, 0.0)
    assert [left.try_accept("a", 0.0) for _ in range(100)] == [True] * 4 + [False] * 96
    assert [take_all(left, name) for name in "bcdef"] == [4, 4, 3, 3, 2]


def test_tokens_refill_with_time_up_to_the_burst():
    left = RateLimiter(SHARED, 0.0)
    take_all(left, "a")
    assert [take_all(left, "a", now) for now in (0.5, 1.0, 3.0, 1000.0)] == [0, 1, 2, 4]


def test_without_shares_one_namespace_may_use_the_total():
    left = RateLimiter(RateLimits(Rate(2.0, 10)), 0.0)
    assert [take_all(left, name) for name in "ab"] == [10, 0]


def test_however_many_namespaces_there_are_few_are_remembered_and_the_bound_on_all_holds():
    left = RateLimiter(SHARED, 0.0)
    taken = sum(
        left.try_accept(f"team-{number}", 0.0) for number in range(2 * rate_limit._MAX_NAMESPACES)
    )
    assert taken == 20
    assert len(left._namespaces) == rate_limit._MAX_NAMESPACES


def test_a_namespace_that_asks_for_nothing_is_forgotten_and_takes_no_share():
    left = RateLimiter(SHARED, 0.0)
    for number in range(30):
        left.try_accept(f"team-{number}", 0.0)
    assert [take_all(left, name, 5.0) for name in "abcdef"] == [4, 4, 4, 3, 3, 2]
    assert list(left._namespaces) == list("abcdef")


LIMITS = {
    "lookups": RateLimits(Rate(50.0, 100), per_namespace=Rate(25.0, 50)),
    "evictions": RateLimits(Rate(200.0, 400), per_namespace=Rate(50.0, 100)),
    "reads of the operator": RateLimits(Rate(50.0, 50), per_namespace=Rate(10.0, 10)),
}


def part_accepted(limits: RateLimits, others: int, others_per_second: float) -> float:
    """Return which part a namespace gets of its five calls a second, beside so many others.

    Without the first seconds, in which the others use up the burst.
    """
    asked_at = [(number / 5, "own") for number in range(100)]
    asked_at += [
        (number / others_per_second, f"other-{other}")
        for other in range(others)
        for number in range(int(20 * others_per_second))
    ]
    left = RateLimiter(limits, 0.0)
    accepted = [
        (now, name) for now, name in sorted(asked_at) if left.try_accept(name, now) and now >= 5
    ]
    return sum(name == "own" for _, name in accepted) / 75


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("others", [1, 2, 5, 20])
@pytest.mark.parametrize("others_per_second", [30.0, 100.0])
def test_a_namespace_that_asks_for_little_gets_all_of_it_beside_any_that_ask_for_much(
    limits: RateLimits, others: int, others_per_second: float
) -> None:
    assert part_accepted(limits, others, others_per_second) >= 0.95


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("others_per_second", [3.0, 5.0, 8.0, 12.0, 20.0])
def test_beside_namespaces_that_ask_for_any_rate_each_gets_three_quarters_of_an_equal_share(
    limits: RateLimits, others_per_second: float
) -> None:
    for others in (1, 2, 5, 20):
        share = 0.75 * limits.total.per_second / (others + 1)
        assert part_accepted(limits, others, others_per_second) >= 0.95 * min(1.0, share / 5)

"""How often calls are allowed, in total and in one namespace."""

from reprieve_runtime import rate_limit
from reprieve_runtime.rate_limit import Rate, RateLimiter, RateLimits

SHARED = RateLimits(
    total=Rate(per_second=2.0, burst=10), per_namespace=Rate(per_second=1.0, burst=4)
)


def take_all(left: RateLimiter, namespace: str, now: float = 0.0) -> int:
    """Return how many calls were left."""
    return next(count for count in range(1000) if not left.try_accept(namespace, now))


def test_a_namespace_gets_its_share_and_no_more():
    left = RateLimiter(SHARED, 0.0)
    assert [take_all(left, name) for name in ("a", "a", "b")] == [4, 0, 4]


def test_all_namespaces_together_get_no_more_than_the_total():
    left = RateLimiter(SHARED, 0.0)
    assert [take_all(left, name) for name in "abcd"] == [4, 4, 2, 0]


def test_a_refused_call_costs_the_others_nothing():
    left = RateLimiter(SHARED, 0.0)
    assert [left.try_accept("a", 0.0) for _ in range(100)] == [True] * 4 + [False] * 96
    assert take_all(left, "b") == 4
    assert take_all(left, "c") == 2


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
    assert taken == 10
    assert len(left._buckets) == rate_limit._MAX_NAMESPACES

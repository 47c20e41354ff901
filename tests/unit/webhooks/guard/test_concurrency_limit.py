"""How many calls may be under way at once, in all and of each namespace."""

from contextlib import ExitStack

import pytest

from reprieve_webhooks.guard.concurrency_limit import ConcurrencyLimiter, TooManyCallsError


def take_all(limiter: ConcurrencyLimiter, namespace: str, held: ExitStack) -> int:
    """Take places until one is refused; return how many there were."""
    taken = 0
    while True:
        try:
            held.enter_context(limiter.place(namespace))
        except TooManyCallsError:
            return taken
        taken += 1


def test_each_namespace_gets_at_most_half_of_what_the_others_left() -> None:
    limiter = ConcurrencyLimiter(32)
    with ExitStack() as held:
        taken = [take_all(limiter, f"team-{number}", held) for number in range(7)]
    assert taken == [16, 8, 4, 2, 1, 1, 0]


def test_a_place_is_free_again_once_its_call_ends() -> None:
    limiter = ConcurrencyLimiter(32)
    for _ in range(2):
        with ExitStack() as held:
            assert take_all(limiter, "team-a", held) == 16
            assert take_all(limiter, "team-b", held) == 8


def test_a_place_is_free_again_once_its_call_fails() -> None:
    limiter = ConcurrencyLimiter(1)
    for _ in range(2):
        with pytest.raises(KeyError), limiter.place("team-a"):
            raise KeyError


def test_a_call_that_was_refused_takes_no_place() -> None:
    limiter = ConcurrencyLimiter(2)
    with limiter.place("team-a"):
        for _ in range(3):
            with pytest.raises(TooManyCallsError), limiter.place("team-a"):
                pass
        with limiter.place("team-b"):
            pass


def test_nothing_is_kept_of_a_namespace_without_calls() -> None:
    limiter = ConcurrencyLimiter(2)
    with limiter.place("team-a"), pytest.raises(TooManyCallsError), limiter.place("team-a"):
        pass
    assert not limiter._taken

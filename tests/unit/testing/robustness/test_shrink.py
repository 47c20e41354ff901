"""Shrinking keeps what still fails, and plays no more often than it may."""

from collections.abc import Sequence

import pytest

from reprieve_testing.robustness.shrink import shrink


class Failure:
    """Fails while all of these are played; counts how often it is played."""

    def __init__(self, *causes: int) -> None:
        self.causes, self.played = set(causes), 0

    async def __call__(self, items: Sequence[int]) -> bool:
        self.played += 1
        return self.causes <= set(items)


@pytest.mark.parametrize("causes", [(0,), (15,), (3, 4), (0, 15), (1, 7, 11)])
async def test_only_the_causes_are_left(causes: tuple[int, ...]):
    fails = Failure(*causes)
    found = await shrink(range(16), fails, 1000)
    assert found.items == list(causes)
    assert found.attempts == fails.played


@pytest.mark.parametrize("attempts", [0, 1, 3])
async def test_no_more_attempts_than_allowed(attempts: int):
    fails = Failure(3)
    found = await shrink(range(16), fails, attempts)
    assert found.attempts == fails.played == attempts
    assert 3 in found.items


async def test_the_order_is_kept():
    assert (await shrink([9, 3, 7, 1], Failure(9, 1), 100)).items == [9, 1]


async def test_what_passes_without_any_part_stays_whole():
    items = [1, 2, 3, 4]
    assert (await shrink(items, Failure(*items), 100)).items == items


async def test_one_action_needs_no_attempt():
    assert await shrink([5], Failure(5), 10) == await shrink([5], Failure(5), 0)

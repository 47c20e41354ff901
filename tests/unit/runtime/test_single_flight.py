"""One call for many callers, and how long its result is reused."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from reprieve_runtime.client.api_error import ApiError
from reprieve_runtime.rate_limit import Rate, RateLimits
from reprieve_runtime.single_flight import RateLimitedError, SingleFlight


class Result:
    """What a call returns; a weak reference shows whether it is kept."""


class Calls:
    """Counts calls; each returns its number, or raises what is set."""

    def __init__(self) -> None:
        self.now, self.count = 0.0, 0
        self.error: ApiError | None = None
        self.takes_seconds = 0.0
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def start(self) -> int:
        self.count += 1
        number = self.count
        await self.may_end.wait()
        self.now += self.takes_seconds
        if self.error is not None:
            raise self.error
        return number

    def shared(
        self, ttl: float | Callable[[int], float], limits: RateLimits | None = None
    ) -> Callable[[], Awaitable[int]]:
        flight: SingleFlight[str, int] = SingleFlight(
            ttl, limits=limits, monotonic=lambda: self.now
        )
        return lambda: flight.do("key", self.start)


async def test_a_result_is_reused_until_it_is_too_old_counted_from_the_start_of_its_call():
    calls = Calls()
    calls.takes_seconds = 0.5
    read = calls.shared(2.0)
    found = []
    for now in (0.0, 1.9, 2.0):
        calls.now = now
        found.append(await read())
    assert found == [1, 1, 2]


async def test_how_long_a_result_is_reused_may_depend_on_it():
    calls = Calls()
    read = calls.shared(lambda number: 60.0 if number == 1 else 0.0)
    found = []
    for now in (0.0, 59.0, 60.0, 60.0, 60.0):
        calls.now = now
        found.append(await read())
    assert found == [1, 1, 2, 3, 4]


async def test_callers_share_the_call_that_is_under_way_and_one_may_go_away():
    calls = Calls()
    calls.may_end.clear()
    read = calls.shared(0.0)
    first, second = asyncio.ensure_future(read()), asyncio.ensure_future(read())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    calls.may_end.set()
    assert (await second, calls.count) == (1, 1)


@pytest.mark.parametrize("ttl", [0.0, 1.0])
async def test_a_result_that_is_not_reused_any_more_does_not_stay_in_memory(ttl: float):
    now, made = 0.0, []
    flight: SingleFlight[int, Result] = SingleFlight(ttl, limits=None, monotonic=lambda: now)

    async def start() -> Result:
        result = Result()
        made.append(weakref.ref(result))
        return result

    for number in range(100):
        await flight.do(number, start)
        now += 0.1
    assert sum(one() is not None for one in made) <= 1 + 10 * ttl


async def test_a_failed_call_is_not_reused():
    calls = Calls()
    calls.error = ApiError(503, "Unavailable", "later")
    read = calls.shared(lambda _: 60.0)
    with pytest.raises(ApiError):
        await read()
    calls.error = None
    assert await read() == 2


async def test_nothing_is_kept_of_the_callers_of_a_failed_call():
    """Its exception refers to their frames, and so to the reviews that they answer."""
    flight: SingleFlight[str, int] = SingleFlight(60.0, limits=None)
    reviews: list[weakref.ref[Result]] = []

    async def start() -> int:
        await asyncio.sleep(0)
        raise ApiError(503, "Unavailable", "later")

    async def ask(_: Result) -> None:
        await flight.do("key", start)

    async def answer() -> None:
        review = Result()
        reviews.append(weakref.ref(review))
        with contextlib.suppress(ApiError):
            await ask(review)

    gc.collect()
    gc.disable()
    try:
        await asyncio.gather(*[asyncio.create_task(answer()) for _ in range(3)])
        await asyncio.sleep(0)
        assert [review() for review in reviews] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize(("limits", "count"), [(None, 5), (RateLimits(Rate(1.0, 3)), 3)])
async def test_calls_are_limited_only_where_limits_are_given(limits: RateLimits | None, count: int):
    calls = Calls()
    read = calls.shared(0.0, limits)
    results = await asyncio.gather(
        *[_after(number, read) for number in range(5)], return_exceptions=True
    )
    assert calls.count == count
    assert sum(isinstance(one, RateLimitedError) for one in results) == 5 - count


async def _after(number: int, read: Callable[[], Awaitable[int]]) -> int:
    """Call once the calls before have ended."""
    for _ in range(5 * number):
        await asyncio.sleep(0)
    return await read()

"""Two ends of a pair of sockets: questions both ways, ends that fall silent or away."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from reprieve_webhooks.workers.channel import Answers, Channel


@asynccontextmanager
async def two_ends(one: Answers, other: Answers) -> AsyncIterator[tuple[Channel, Channel]]:
    sockets = socket.socketpair()
    ends = [
        await Channel.open(connection, answers)
        for connection, answers in zip(sockets, (one, other), strict=True)
    ]
    tasks = [asyncio.create_task(end.run()) for end in ends]
    try:
        yield ends[0], ends[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_both_ends_ask_at_once_and_an_answer_may_need_a_question() -> None:
    async def answer() -> list[object]:
        return [1, "two", {"three": float("inf")}, "x" * 1_000_000]

    async def ask_back() -> list[object]:
        found: list[object] = await one.ask("plain")
        return found

    answers = {"plain": answer, "asks back": ask_back}
    async with two_ends(answers, answers) as (one, other):
        questions = [other.ask("plain"), one.ask("plain"), other.ask("asks back")]
        async with asyncio.timeout(60):
            assert await asyncio.gather(*questions) == [await answer()] * 3


async def test_an_end_that_does_not_answer_in_time_is_given_up() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async with two_ends({}, {"never": never}) as (one, _):
        with pytest.raises(TimeoutError):
            await one.ask("never", timeout_seconds=0.01)


async def test_the_end_of_the_other_process_ends_all_questions() -> None:
    arrived = asyncio.Event()

    async def never() -> None:
        arrived.set()
        await asyncio.Event().wait()

    async with two_ends({}, {"never": never}) as (one, other):
        asking = asyncio.create_task(one.ask("never"))
        await arrived.wait()
        other._writer.close()
        with pytest.raises(ConnectionError):
            await asking
        assert one.is_closed
        with pytest.raises(ConnectionError):
            await one.ask("never")


async def test_an_answer_that_fails_is_logged_and_the_next_question_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)

    async def fail() -> None:
        raise ValueError("ours")

    async def answer() -> str:
        return "fine"

    async with two_ends({}, {"fail": fail, "fine": answer}) as (one, _):
        with pytest.raises(TimeoutError):
            await one.ask("fail", timeout_seconds=0.05)
        assert await one.ask("fine") == "fine"
    assert [record.getMessage() for record in caplog.records] == ["no answer to another worker"]

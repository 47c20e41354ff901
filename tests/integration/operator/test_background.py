"""Background tasks of a term: they end with the term only."""

import asyncio
import contextlib

import pytest

from reprieve_operator.background import background, run_until_one_ends
from reprieve_operator.cluster.leader_election import NotLeading
from reprieve_runtime import waiting


async def test_a_failed_task_is_restarted(caplog: pytest.LogCaptureFixture) -> None:
    begun, is_well = 0, asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise KeyError("an unexpected error")
        is_well.set()

    async with asyncio.timeout(60), background(work, restart_seconds=0.0):
        await is_well.wait()
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


async def test_a_failed_task_ends_neither_the_others_nor_the_body() -> None:
    is_tried, goes_on = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        is_tried.set()
        raise KeyError("again and again")

    async def wait() -> None:
        await is_tried.wait()
        goes_on.set()

    async with asyncio.timeout(60), background(fail, wait):
        await goes_on.wait()


async def test_a_task_that_meets_the_end_of_the_lease_is_not_restarted() -> None:
    begun, others_turn = 0, asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        raise NotLeading

    async def other() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        others_turn.set()

    async with asyncio.timeout(60), background(work, other, restart_seconds=0.0):
        await others_turn.wait()
    assert begun == 1


async def test_all_tasks_end_with_the_body() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(60), background(work):
        await begun.wait()
    assert ended.is_set()


async def test_a_task_that_fails_while_it_is_cancelled_is_not_restarted() -> None:
    started = asyncio.Event()
    starts = []

    async def fail_at_the_end() -> None:
        starts.append(1)
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError

    async with asyncio.timeout(60):
        async with background(fail_at_the_end, restart_seconds=0):
            await started.wait()
    assert len(starts) == 1


async def test_a_task_that_goes_on_after_its_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Libraries may take a cancellation for a time-out of theirs."""
    monkeypatch.setattr(waiting, "_CANCEL_AGAIN_SECONDS", 0.01)
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async with asyncio.timeout(60):
        async with background(work):
            await begun.wait()


async def test_a_task_of_a_task_is_cancelled_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer one cancels the task that waits for the inner one's end."""
    monkeypatch.setattr(waiting, "_CANCEL_AGAIN_SECONDS", 0.01)
    begun, inner = asyncio.Event(), list[asyncio.Task[None] | None]()

    async def work() -> None:
        inner.append(asyncio.current_task())
        begun.set()
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def controller() -> None:
        async with background(work):
            await asyncio.Event().wait()

    async with asyncio.timeout(60):
        async with background(controller):
            await begun.wait()
    assert [task is not None and task.done() for task in inner] == [True]


async def test_tasks_that_fail_while_they_are_cancelled_do_not_hide_the_cancellation() -> None:
    started = asyncio.Event()

    async def fail_at_the_end() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError

    running = asyncio.create_task(run_until_one_ends(fail_at_the_end, fail_at_the_end))
    await started.wait()
    running.cancel()
    await asyncio.wait({running}, timeout=60)
    assert running.cancelled()


async def test_the_error_of_one_task_ends_the_others_and_is_raised() -> None:
    ended = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await run_until_one_ends(wait, fail)
    assert ended.is_set()

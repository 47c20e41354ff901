"""Waits that end after a time, and the end of tasks."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

_CANCEL_AGAIN_SECONDS = 5.0
"""Enough for what tasks do as they end."""


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, or for so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def end_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait for their ends; how they ended is on them.

    One that goes on is cancelled again: libraries may take a cancellation for a time-out of theirs.
    So are they if the caller is cancelled meanwhile, which is raised once all have ended.
    """
    tasks = list(tasks)
    pending = {task for task in tasks if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            await asyncio.wait(pending, timeout=_CANCEL_AGAIN_SECONDS)
        except asyncio.CancelledError as error:
            cancelled = error
        pending = {task for task in pending if not task.done()}
    await asyncio.gather(*tasks, return_exceptions=True)
    if cancelled is not None:
        raise cancelled

"""Tasks that run in the background of a term: they end with it, and restart after errors."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from reprieve_runtime.waiting import end_tasks

from .cluster.leader_election import NotLeading

_log = logging.getLogger(__name__)

_RESTART_SECONDS = 5.0

BackgroundTask = Callable[[], Awaitable[None]]


@contextlib.asynccontextmanager
async def background(
    *work: BackgroundTask, restart_seconds: float = _RESTART_SECONDS
) -> AsyncIterator[None]:
    """Run the tasks until the body of the block ends."""
    is_ending = asyncio.Event()
    tasks = [
        asyncio.create_task(_restart_on_failure(one, restart_seconds, is_ending)) for one in work
    ]
    try:
        yield
    finally:
        is_ending.set()
        await end_tasks(tasks)


async def run_until_one_ends(*work: BackgroundTask) -> None:
    """Run the tasks side by side until one of them ends, or fails: its error is raised.

    Unlike `asyncio.TaskGroup`, which drops the caller's cancellation if a task fails while it is
    cancelled: a caller that then starts the group again would never end.
    """
    tasks = [asyncio.ensure_future(one()) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end_tasks(tasks)


async def _restart_on_failure(
    work: BackgroundTask, restart_seconds: float, is_ending: asyncio.Event
) -> None:
    """Restart a task that fails.

    Without this, one object that cannot be read would silently end the resync for the whole term.
    """
    while True:
        try:
            await work()
        except NotLeading:
            return
        except Exception:  # noqa: BLE001 - for the reason above
            if is_ending.is_set():
                # It failed while it ended. If it restarted, nothing would end it any more.
                _log.exception("background task failed while it ended")
                return
            _log.exception("background task failed; restarting")
        else:
            return
        await asyncio.sleep(restart_seconds)

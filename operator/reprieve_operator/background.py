"""Tasks that run in the background of a term: they end with it, and restart after errors."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from .cluster.leader_election import NotLeading

_log = logging.getLogger(__name__)

_RESTART_SECONDS = 5.0

BackgroundTask = Callable[[], Awaitable[None]]


@contextlib.asynccontextmanager
async def background(
    *work: BackgroundTask, restart_seconds: float = _RESTART_SECONDS
) -> AsyncIterator[None]:
    """Run the tasks until the body of the block ends."""
    tasks = [asyncio.create_task(_restart_on_failure(one, restart_seconds)) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _restart_on_failure(work: BackgroundTask, restart_seconds: float) -> None:
    """Restart a task that fails.

    Without this, one object that cannot be read would silently end the resync for the whole term.
    """
    while True:
        try:
            await work()
        except NotLeading:
            return
        except Exception:  # noqa: BLE001 - for the reason above
            if _is_cancelled():
                # It failed while it ended. If it restarted, nothing would end it any more.
                _log.exception("background task failed while it ended")
                return
            _log.exception("background task failed; restarting")
        else:
            return
        await asyncio.sleep(restart_seconds)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

"""Work that goes on beside a term, and ends with it. It ends in no other way: what nobody thought of, it survives."""

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
    """Run the work beside the body and end it with that."""
    tasks = [asyncio.create_task(_restart_on_failure(one, restart_seconds)) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _restart_on_failure(work: BackgroundTask, restart_seconds: float) -> None:
    """Begin anew what fails. Without this, one object that cannot be read would end sweeps for the rest of the term, unseen."""
    while True:
        try:
            await work()
        except NotLeading:
            return
        except Exception:  # noqa: BLE001 - for the reason above
            _log.exception("work of the term failed and begins anew")
        else:
            return
        await asyncio.sleep(restart_seconds)

"""Work that goes on beside a term, and ends with it. It ends in no other way: what nobody thought of, it survives."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from .cluster.leader_election import NotLeading

_log = logging.getLogger(__name__)

_ANEW_SECONDS = 5.0

Work = Callable[[], Awaitable[None]]


@contextlib.asynccontextmanager
async def beside(*work: Work, anew_seconds: float = _ANEW_SECONDS) -> AsyncIterator[None]:
    """Run the work beside the body and end it with that."""
    tasks = [asyncio.create_task(_keep_on(one, anew_seconds)) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_on(work: Work, anew_seconds: float) -> None:
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
        await asyncio.sleep(anew_seconds)

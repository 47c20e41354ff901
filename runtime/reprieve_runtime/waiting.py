"""Waits that end after a time."""

import asyncio
import contextlib


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, or for so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()

"""A call that is cancelled in the moment in which it times out."""

import asyncio
import time
from pathlib import Path

import pytest

from reprieve_testing.servers.stub_api import stub_api, until

TIMEOUT_SECONDS = 0.2


async def test_a_cancellation_at_the_moment_of_the_time_out_is_not_lost(tmp_path: Path) -> None:
    """As it was once, at the end of a term: the task went on, and the term never ended."""
    async with stub_api(tmp_path) as (stub, api):
        call = asyncio.create_task(
            api.request("GET", "/api/v1/pods", timeout_seconds=TIMEOUT_SECONDS)
        )
        await until(lambda: stub.calls["/api/v1/pods"] > 0)
        loop = asyncio.get_running_loop()
        # All timers are due in the same pass of the loop: it was busy for longer.
        loop.call_later(2 * TIMEOUT_SECONDS, call.cancel)
        time.sleep(3 * TIMEOUT_SECONDS)  # noqa: ASYNC251 - it is busy
        with pytest.raises(asyncio.CancelledError):
            await call

"""A connection of the test's own process to the cluster's API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from reprieve_runtime.client.api import Api

_CLOSING_SECONDS = 30.0
_PAUSE_SECONDS = 0.01


@asynccontextmanager
async def connected(kubeconfig: Path, user_agent: str = "test") -> AsyncIterator[Api]:
    """Connect for the block; return once all sockets are closed.

    TLS says goodbye in the background where a call was cancelled. Without the wait, the event loop
    could end before that, and a later test would fail for the open socket.
    """
    before = _open_sockets()
    api = await Api.connect(kubeconfig, user_agent=user_agent)
    try:
        yield api
    finally:
        await api.close()
        async with asyncio.timeout(_CLOSING_SECONDS):
            while _open_sockets() > before:  # noqa: ASYNC110 - no event says it
                await asyncio.sleep(_PAUSE_SECONDS)


def _open_sockets() -> int:
    loop = asyncio.get_running_loop()
    return len(loop._selector.get_map())  # type: ignore[attr-defined]

"""A process with a stub API server that keeps objects, and counts the operator's calls by kind.

Its first line on standard output is its port. `GET /counts` returns the calls so far.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from reprieve_testing.servers.busy_api import BusyApi, resource_of

COUNTS = "/counts"
_COUNTED_AGENT = "reprieve-operator"
_LEASES = "leases"


class CountingApi:
    """A stub API server, and the calls of one program."""

    def __init__(self) -> None:
        self._api = BusyApi()
        self._calls = Counter[str]()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a call."""
        if request.path == COUNTS:
            return web.json_response(self._calls)
        resource = resource_of(request.path)
        is_by_time = "watch" in request.query or resource == _LEASES
        if not is_by_time and request.headers.get("User-Agent", "").startswith(_COUNTED_AGENT):
            self._calls[f"{request.method} {resource}"] += 1
        return await self._api.handle(request)


@contextmanager
def running() -> Iterator[int]:
    """Run the process during the block; yield its port."""
    process = subprocess.Popen([sys.executable, "-m", __name__], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


async def _serve() -> None:
    runner = web.ServerRunner(web.Server(CountingApi().handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())

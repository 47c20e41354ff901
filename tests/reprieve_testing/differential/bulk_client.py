"""A client for the API server that creates thousands of objects, and reads one watch."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import aiohttp

from realcluster.state import ADMIN, Cluster

Json = Any
T = TypeVar("T")

_AT_ONCE = 24
_TRIES, _PAUSE_SECONDS = 40, 0.25
_AGAIN = (403, 429, 500, 503, 504)
"""403 too: admission learns of a new PriorityClass or ServiceAccount a moment after its
creation.
"""
_LONGEST_LINE = 1 << 20


class BulkClient:
    """One session with the API server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @classmethod
    @asynccontextmanager
    async def connect(cls, cluster: Cluster) -> AsyncIterator[Self]:
        """Connect as the administrator."""
        trust = ssl.create_default_context(cafile=cluster.ca_file)
        # The API server's self-signed certificate lacks extensions that Python 3.13 began to
        # require.
        trust.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        headers = {"Authorization": f"Bearer {cluster.token(ADMIN)}"}
        connector = aiohttp.TCPConnector(limit=_AT_ONCE + 1, ssl=trust)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            cluster.api_server,
            connector=connector,
            headers=headers,
            timeout=timeout,
            read_bufsize=_LONGEST_LINE,
        ) as session:
            yield cls(session)

    async def for_each(self, items: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
        """Call `do` with each item, several at once."""
        left = iter(items)

        async def work() -> None:
            for item in left:
                await do(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(work())

    async def create(self, path: str, document: Json, *, with_status: bool = False) -> None:
        """Create an object, and write its status, which a creation ignores."""
        await self._send("POST", path, document)
        if with_status:
            name = document["metadata"]["name"]
            await self._send("PATCH", f"{path}/{name}/status", {"status": document["status"]})

    async def delete(self, path: str) -> None:
        """Delete an object, with its own grace period."""
        await self._send("DELETE", path)

    async def watch(self, path: str) -> AsyncGenerator[Json, None]:
        """Yield the existing objects, then each change."""
        async with self._session.get(f"{path}&watch=1") as response:
            assert response.status == 200, await response.text()
            try:
                async for line in response.content:
                    yield json.loads(line)
            finally:
                # TLS would say goodbye first, which can take longer than the event loop runs.
                if response.connection and response.connection.transport:
                    response.connection.transport.abort()

    async def _send(self, method: str, path: str, document: Json = None) -> None:
        headers = {
            "Content-Type": "application/merge-patch+json"
            if method == "PATCH"
            else "application/json"
        }
        for left in reversed(range(_TRIES)):
            async with self._session.request(
                method, path, json=document, headers=headers
            ) as response:
                text = await response.text()
            if response.status < 300 or (method == "POST" and response.status == 409):
                return
            what = f"{method} {path}: {response.status} {text}"
            assert response.status in _AGAIN, what
            assert left, what
            await asyncio.sleep(_PAUSE_SECONDS)

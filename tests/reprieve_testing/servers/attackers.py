"""Clients without credentials that try to take a server's memory, connections or time."""

import asyncio
import json
import resource
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import cycle
from typing import Self

from reprieve_testing.servers.reviews import a_pod, a_review

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_PIECE = b"y" * 65536


async def is_closed(connection: Connection) -> bool:
    """Wait until the server closes a connection; `False` if it sends something."""
    async with asyncio.timeout(60):
        try:
            return await connection[0].read(1) == b""
        except ConnectionResetError:
            return True


@contextmanager
def many_files() -> Iterator[None]:
    """Let this process open more files than the program under attack, for the block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Attackers:
    """Connections to one port, from some addresses of loopback, until the block ends."""

    def __init__(
        self, port: int, *, addresses: int = 1, context: ssl.SSLContext | None = None
    ) -> None:
        self._port, self._context = port, context
        self._addresses = cycle([f"127.66.0.{number}" for number in range(1, addresses + 1)])
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.stalled = 0
        """The bodies so far that lack only their end."""
        self.asked = 0
        """The reviews so far that were sent at once."""

    @property
    def opened(self) -> int:
        """The connections so far."""
        return len(self._writers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()

    async def open_in_silence(self, connections: int) -> None:
        """Open connections on which nothing is ever sent, not even TLS."""
        for _ in range(connections):
            with suppress(OSError):
                await self._connect(None)

    async def send_half_a_head(self, connections: int) -> None:
        """Open connections, and send on each a head that does not end."""
        for _ in range(connections):
            with suppress(OSError):
                _, writer = await self._connect(self._context)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Half: ")

    def ask_at_once(self, connections: int, body: bytes) -> None:
        """Send a whole review on each of new connections, and keep these open."""
        self._tasks += [asyncio.create_task(self._ask(body)) for _ in range(connections)]

    def stall(self, connections: int, size: int, *, again: bool = False) -> None:
        """Send bodies without their last byte, as fast as they are taken.

        `again` opens a new connection for each one that the server closes.
        """
        self._tasks += [
            asyncio.create_task(self._stall(size, again=again)) for _ in range(connections)
        ]

    def flood(self, connections: int, size: int) -> None:
        """Send whole reviews on new connections, one after another on each."""
        empty = len(json.dumps(a_review(a_pod(annotations={"x": ""}))))
        body = json.dumps(a_review(a_pod(annotations={"x": "y" * (size - empty)}))).encode()
        self._tasks += [asyncio.create_task(self._flood(body)) for _ in range(connections)]

    async def ask_and_read_nothing(self, connections: int, body: bytes) -> None:
        """Send a whole review on each of new connections, and never read the response."""
        for _ in range(connections):
            with suppress(OSError):
                _, writer = await self._connect(self._context)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                head = "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                async with asyncio.timeout(60):
                    await writer.drain()

    async def _ask(self, body: bytes) -> None:
        with suppress(OSError):
            async with self._posting(len(body)) as (reader, writer):
                writer.write(body)
                await writer.drain()
                self.asked += 1
                await reader.readline()
                await asyncio.Event().wait()

    async def _stall(self, size: int, *, again: bool) -> None:
        is_first = True
        while is_first or again:
            is_first = False
            with suppress(OSError):
                async with self._posting(size) as (reader, writer):
                    for _ in range((size - 1) // len(_PIECE)):
                        writer.write(_PIECE)
                        await writer.drain()
                    self.stalled += 1
                    await reader.read()
            await asyncio.sleep(0)

    async def _flood(self, body: bytes) -> None:
        while True:
            with suppress(OSError):
                async with self._posting(len(body)) as (reader, writer):
                    for begin in range(0, len(body), len(_PIECE)):
                        writer.write(body[begin : begin + len(_PIECE)])
                        await writer.drain()
                    await reader.readline()
            await asyncio.sleep(0)

    @asynccontextmanager
    async def _posting(self, size: int) -> AsyncIterator[Connection]:
        reader, writer = await self._connect(self._context)
        head = "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {size}\r\n\r\n".encode())
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def _connect(self, context: ssl.SSLContext | None) -> Connection:
        connection = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=context, local_addr=(next(self._addresses), 0)
        )
        self._writers.append(connection[1])
        return connection

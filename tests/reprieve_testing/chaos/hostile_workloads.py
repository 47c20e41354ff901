"""Workloads with harmful answers, each under a path of its own; they accept every connection."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Self

_CHUNK = b"x" * 65536
_GIB = 1 << 30
_FOR_EVER = b'{"state":"saving","progress":0.99}'


async def _never_close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    await asyncio.Event().wait()


async def _drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a header that never ends, byte by byte: each byte shows life."""
    writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.1)


async def _stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"%x\r\n%s\r\n" % (len(_CHUNK), _CHUNK))
        await _drain(writer)


async def _announce(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Announce a response without end."""
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 2500)
        await _drain(writer)


async def _giant(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % _GIB)
    for _chunk in range(_GIB // len(_CHUNK)):
        writer.write(_CHUNK)
        await _drain(writer)


async def _lie(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    _say(writer, _FOR_EVER)


async def _defer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    _say(writer, b'{"state":"defer","deferSeconds":9007199254740992}')


async def _babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    _say(writer, b"[" * 16_000)


async def _drain(writer: asyncio.StreamWriter) -> None:
    """Drain, and let other tasks run: `drain` alone does not pause while the caller keeps up."""
    await writer.drain()
    await asyncio.sleep(0)


def _say(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
    )


@contextlib.contextmanager
def _aborting(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Abort the connection at the end of the block: the rest of a gibibyte is not awaited."""
    try:
        yield
    finally:
        writer.transport.abort()


BEHAVIOURS: Mapping[
    str, Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
] = {
    "never-closes": _never_close,
    "drips": _drip,
    "streams": _stream,
    "announces-for-ever": _announce,
    "answers-a-gibibyte": _giant,
    "lies": _lie,
    "defers": _defer,
    "babbles": _babble,
}
REDIRECTS = "redirects"


class HostileWorkloads:
    """One server for all; `reached` counts the callers that followed a redirect."""

    def __init__(self) -> None:
        self.reached = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._start_answer, "0.0.0.0", 0)
        self._port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Transports close in the loop's next iteration.
        await asyncio.sleep(0)

    def hint(self, behaviour: str) -> str:
        """Return the annotation of a pod with this behaviour of its workload."""
        return f"http://:{self._port}/{behaviour}"

    def _start_answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._answer(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _aborting(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode().strip("/")
            if path == REDIRECTS:
                location = b"Location: http://127.0.0.1:%d/stolen\r\n" % self._port
                writer.write(
                    b"HTTP/1.1 307 Temporary Redirect\r\n%sContent-Length: 0\r\n\r\n" % location
                )
            elif path in BEHAVIOURS:
                await BEHAVIOURS[path](reader, writer)
            else:
                self.reached += 1
            await writer.drain()
            writer.close()
            await writer.wait_closed()

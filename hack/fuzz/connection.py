"""A client's side of one connection. It takes nothing on trust: an answer that is no HTTP is an error."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass

_MAX_HEAD = 64 * 1024


class NoAnswer(Exception):  # noqa: N818 - what was found, not a fault of this program
    """The server closed the connection, or said what is no HTTP."""


@dataclass(frozen=True)
class Target:
    """Where the server is, and what its certificate is signed by."""

    port: int
    trust: ssl.SSLContext


@dataclass
class Connection:
    """One TLS connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def write(self, pieces: tuple[bytes, ...], pause_seconds: float) -> None:
        """Write all pieces; a server that has heard enough and closed is no error: its answer is still to be read."""
        try:
            for piece in pieces:
                self.writer.write(piece)
                await self.writer.drain()
                if pause_seconds:
                    await asyncio.sleep(pause_seconds)
        except ConnectionError:
            return

    async def read_answer(self) -> tuple[int, bytes]:
        """Return the status and the body of the next answer."""
        try:
            first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(b":") for line in lines)
            }
            body = await self.reader.readexactly(int(headers[b"content-length"]))
        except (
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            ConnectionError,
            KeyError,
            ValueError,
        ) as error:
            raise NoAnswer(f"no answer: {error!r}") from error
        version, status = first.split(b" ", 2)[:2]
        if not version.startswith(b"HTTP/"):
            raise NoAnswer(f"no HTTP: {first!r}")
        return int(status), body

    def abort(self) -> None:
        """End it at once, without a farewell."""
        self.writer.transport.abort()


async def connect(target: Target) -> Connection:
    """Open a connection and agree on TLS."""
    opened = asyncio.open_connection("127.0.0.1", target.port, ssl=target.trust, limit=_MAX_HEAD)
    return Connection(*await opened)


async def connect_without_tls(target: Target) -> Connection:
    """Open a connection on which TLS is yet to be spoken."""
    return Connection(*await asyncio.open_connection("127.0.0.1", target.port))

"""The client side of one connection. An answer that is not HTTP is an error."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass

_MAX_HEAD = 64 * 1024


class NoAnswer(Exception):  # noqa: N818 - what was found, not a fault of this program
    """The server closed the connection, or sent something other than HTTP."""


@dataclass(frozen=True)
class Target:
    """The server's address and the certificate authority."""

    port: int
    trust: ssl.SSLContext


@dataclass
class Connection:
    """One TLS connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_ending: bool = False
    """The server has announced that it closes the connection."""
    last_number: int | None = None
    """The case that was answered last on it."""

    async def write(self, pieces: tuple[bytes, ...], pause_seconds: float) -> None:
        """Write all pieces.

        Ignore that the server has closed, because its answer can still be read.
        """
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
            self.is_ending |= headers.get(b"connection", b"").lower() == b"close"
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
        """Close the connection at once, without TLS shutdown."""
        self.writer.transport.abort()


async def connect(target: Target) -> Connection:
    """Open a connection and agree on TLS."""
    opened = asyncio.open_connection("127.0.0.1", target.port, ssl=target.trust, limit=_MAX_HEAD)
    return Connection(*await opened)


async def connect_without_tls(target: Target) -> Connection:
    """Open a connection without TLS."""
    return Connection(*await asyncio.open_connection("127.0.0.1", target.port))

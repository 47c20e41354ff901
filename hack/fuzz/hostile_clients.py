"""Clients that send no review: slow, silent, half open, of another protocol, or disconnecting.

Each ends by itself within seconds and checks its answer, if it must get one. None of them may delay
other clients; the reviews that run beside them show this.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from random import Random

from . import oracle
from .connection import NoAnswer, Target, connect, connect_without_tls
from .framing import JSON, head

SECONDS = 2.0
"""Seconds that a client stays connected without completing its request."""

Intruder = Callable[[Random, Target], Awaitable[int | None]]
"""Returns the status of the answer, `None` if none was due.

Raises `AssertionError` if it is wrong.
"""


async def slow_head(rng: Random, target: Target) -> int | None:
    """Begin a header and never finish it, one line at a time."""
    connection = await connect(target)
    pieces = (
        b"POST /validate HTTP/1.1\r\n",
        *(b"X-%d: x\r\n" % rng.randrange(10**6) for _ in range(20)),
    )
    await connection.write(pieces, SECONDS / len(pieces))
    connection.abort()
    return None


async def slow_body(_: Random, target: Target) -> int | None:
    """Announce a body and send one byte of it now and then."""
    connection = await connect(target)
    writing = asyncio.ensure_future(
        connection.write(
            (head("/validate", JSON, "Content-Length: 500"), *([b" "] * 100)), SECONDS / 20
        )
    )
    try:
        status, _body = await connection.read_answer()
    finally:
        writing.cancel()
        connection.abort()
    assert status == oracle.LATE, f"a body that does not come was answered {status}"
    return status


async def slow_chunks(_: Random, target: Target) -> int | None:
    """Begin a chunk and leave out the rest."""
    connection = await connect(target)
    await connection.write((head("/mutate", JSON, "Transfer-Encoding: chunked") + b"ff\r\n{",), 0)
    try:
        status, _body = await connection.read_answer()
    finally:
        connection.abort()
    assert status == oracle.LATE, f"chunks that do not come were answered {status}"
    return status


async def silent(_: Random, target: Target) -> int | None:
    """Complete the TLS handshake and send nothing."""
    connection = await connect(target)
    await asyncio.sleep(SECONDS)
    connection.abort()
    return None


async def half_open(_: Random, target: Target) -> int | None:
    """Connect and never begin TLS."""
    connection = await connect_without_tls(target)
    await asyncio.sleep(SECONDS)
    connection.abort()
    return None


async def aborted_handshake(rng: Random, target: Target) -> int | None:
    """Disconnect in the middle of a handshake."""
    hello = _client_hello(target.trust)
    connection = await connect_without_tls(target)
    await connection.write((hello[: rng.randrange(1, len(hello) + 1)],), 0)
    connection.abort()
    return None


async def garbled_handshake(rng: Random, target: Target) -> int | None:
    """Send a ClientHello with some flipped bits, and wait for the end."""
    hello = bytearray(_client_hello(target.trust))
    for _ in range(5):
        hello[rng.randrange(len(hello))] ^= 1 << rng.randrange(8)
    await _until_closed(target, bytes(hello))
    return None


async def no_tls(rng: Random, target: Target) -> int | None:
    """Send another protocol instead of TLS."""
    said = rng.choice((head("/healthz"), b"\x00" * 1000, rng.randbytes(5000), b"SSH-2.0-x\r\n"))
    await _until_closed(target, said)
    return None


async def gone_in_the_body(rng: Random, target: Target) -> int | None:
    """Disconnect in the middle of a review."""
    connection = await connect(target)
    await connection.write(
        (head("/validate", JSON, "Content-Length: 100000") + b" " * rng.randrange(90_000),), 0
    )
    connection.abort()
    return None


async def gone_before_the_answer(_: Random, target: Target) -> int | None:
    """Send a review and do not wait for the answer."""
    connection = await connect(target)
    await connection.write((head("/validate", JSON, "Content-Length: 2") + b"{}",), 0)
    connection.abort()
    return None


async def never_listening(_: Random, target: Target) -> int | None:
    """Send a thousand reviews and read no answer."""
    connection = await connect(target)
    connection.writer.write((head("/validate", JSON, "Content-Length: 2") + b"{}") * 1000)
    await asyncio.sleep(SECONDS)
    connection.abort()
    return None


async def other_protocol(rng: Random, target: Target) -> int | None:
    """Send another protocol than HTTP/1.1 inside TLS."""
    connection = await connect(target)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 50
    said = rng.choice(
        (
            preface,
            b"\x00\x01\x02\r\n\r\n",
            b"GET /\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"POST\r\n\r\n",
        )
    )
    await connection.write((said,), 0)
    try:
        status, _body = await connection.read_answer()
    finally:
        connection.abort()
    # Without a version it is an HTTP/0.9 request, for a path that does not exist.
    assert status in (oracle.BAD_REQUEST, 404), f"what is no HTTP was answered {status}"
    return status


ALL: tuple[Intruder, ...] = (
    *(slow_head, slow_body, slow_chunks, silent, half_open, aborted_handshake, garbled_handshake),
    *(no_tls, gone_in_the_body, gone_before_the_answer, never_listening, other_protocol),
)


def _client_hello(trust: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    speaker = trust.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    try:
        speaker.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise NoAnswer("a handshake ended by itself")


async def _until_closed(target: Target, said: bytes) -> None:
    """Send `said`, and read until the server closes; what it sends is not plain HTTP."""
    connection = await connect_without_tls(target)
    await connection.write((said,), 0)
    try:
        async with asyncio.timeout(SECONDS):
            answered = await connection.reader.read()
    except (TimeoutError, ConnectionError):
        # A hello that announces more than it says is waited for; the server's own limit is longer
        # than this client's.
        answered = b""
    finally:
        connection.abort()
    assert not answered.startswith(b"HTTP/"), "HTTP was spoken without TLS"

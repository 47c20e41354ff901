"""Connections cost memory, and any pod may open them: the limit never shuts out a caller."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
import pytest_asyncio

from reprieve_runtime.serving.bounded_server import Bounds
from reprieve_testing.servers.attackers import Connection, is_closed
from reprieve_testing.servers.reviews import RunningServer, running_server, trusting
from reprieve_webhooks import listener

MOST = 3


class Port:
    """A second port of a running server, with room for few connections."""

    def __init__(self, server: RunningServer, number: int) -> None:
        self._server, self._number = server, number
        self._opened: list[asyncio.StreamWriter] = []

    async def connect(self) -> Connection:
        connection = await asyncio.open_connection(
            "127.0.0.1", self._number, ssl=trusting(self._server.ca), server_hostname="127.0.0.1"
        )
        self._opened.append(connection[1])
        return connection

    async def connect_in_silence(self) -> Connection:
        """Open a connection on which TLS is never spoken."""
        connection = await asyncio.open_connection("127.0.0.1", self._number)
        self._opened.append(connection[1])
        return connection

    async def status(self) -> int:
        connector = aiohttp.TCPConnector(ssl=trusting(self._server.ca))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"https://127.0.0.1:{self._number}/healthz") as reply,
        ):
            return reply.status

    def close(self) -> None:
        for writer in self._opened:
            writer.transport.abort()


@asynccontextmanager
async def listening_port(handshake_seconds: float = 60.0) -> AsyncIterator[Port]:
    async with running_server() as server:
        listening = await listener.listen(
            server.webhooks,
            server.serving.listener,
            address="127.0.0.1",
            port=0,
            bounds=Bounds(
                connections=MOST,
                per_peer=MOST,
                idle_seconds=60.0,
                handshake_seconds=handshake_seconds,
            ),
        )
        opened = Port(server, listening.port)
        try:
            yield opened
        finally:
            opened.close()
            await listening.close()


@pytest_asyncio.fixture
async def port() -> AsyncIterator[Port]:
    async with listening_port() as opened:
        yield opened


async def ask(connection: Connection) -> bytes:
    reader, writer = connection
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        return head + await reader.readexactly(3)


async def test_silent_connections_are_closed_for_new_ones(port: Port) -> None:
    silent = [await port.connect() for _ in range(MOST + 2)]
    assert [await is_closed(connection) for connection in silent[:2]] == [True, True]
    assert await port.status() == 200


async def test_connections_that_never_speak_tls_are_closed_for_new_ones(port: Port) -> None:
    silent = [await port.connect_in_silence() for _ in range(MOST + 2)]
    assert [await is_closed(connection) for connection in silent[:2]] == [True, True]
    assert await port.status() == 200


def test_api_servers_behind_one_address_may_have_all_connections() -> None:
    """As through a konnectivity tunnel: none of their reviews is cut off while there is room."""
    assert listener.BOUNDS.per_peer == listener.BOUNDS.connections


async def test_a_connection_in_use_is_kept_before_younger_silent_ones(port: Port) -> None:
    used, silent = await port.connect(), await port.connect()
    for _ in range(MOST):
        assert (await ask(used)).endswith(b"ok\n")
        await port.connect()
    assert await is_closed(silent)
    assert (await ask(used)).endswith(b"ok\n")


async def test_a_connection_with_half_a_request_head_counts_as_silent(port: Port) -> None:
    slow = await port.connect()
    slow[1].write(b"GET /healthz HTTP/1.1\r\n")
    for _ in range(MOST):
        slow[1].write(b"X-Half: x\r\n")
        await port.connect()
    assert await is_closed(slow)


async def test_a_connection_without_a_tls_handshake_times_out() -> None:
    async with listening_port(handshake_seconds=1.0) as port:
        assert await is_closed(await port.connect_in_silence())
        assert await port.status() == 200


UNREAD = {
    "of another type": b"POST /validate HTTP/1.1\r\nContent-Type: text/plain\r\n",
    "for a path that does not exist": b"POST /nowhere HTTP/1.1\r\nContent-Type: text/plain\r\n",
    "of another method": b"PUT /validate HTTP/1.1\r\nContent-Type: text/plain\r\n",
}


@pytest.mark.parametrize("head", UNREAD.values(), ids=UNREAD)
async def test_an_answer_before_the_whole_request_announces_the_end_of_the_connection(
    port: Port, head: bytes
) -> None:
    """The rest is awaited for half a second. Without this, a client would send its next request on
    a connection that closes at that moment, and get no answer.
    """
    reader, writer = await port.connect()
    writer.write(head + b"Host: x\r\nContent-Length: 100\r\n\r\nhalf")
    async with asyncio.timeout(60):
        answer = await reader.readuntil(b"\r\n\r\n")
    assert b"connection: close" in answer.lower()
    writer.close()


@pytest.mark.parametrize("head", UNREAD.values(), ids=UNREAD)
async def test_a_connection_is_kept_after_a_refusal_of_a_whole_request(
    port: Port, head: bytes
) -> None:
    reader, writer = await port.connect()
    writer.write(head + b"Host: x\r\nContent-Length: 4\r\n\r\nbody")
    async with asyncio.timeout(60):
        answer = await reader.readuntil(b"\r\n\r\n")
    assert b"connection: close" not in answer.lower()
    writer.close()

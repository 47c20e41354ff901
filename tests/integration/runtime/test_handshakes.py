"""A connection counts before TLS is spoken on it, with the loop of asyncio and with uvloop's."""

import asyncio
import errno
import logging
import socket
import tracemalloc
from typing import Any

import pytest
from aiohttp import web

from reprieve_runtime.serving import accept_loop
from reprieve_runtime.serving.bounded_server import Bounds, listen
from reprieve_testing.servers.attackers import is_closed
from reprieve_testing.servers.tls_port import MOST, NewLoop, on_both_loops, run, tls_port
from reprieve_testing.servers.webhook_program import any_certificate


@on_both_loops
def test_connections_that_never_speak_tls_make_room(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with tls_port() as port:
            silent = [await port.connect(speaks_tls=False) for _ in range(MOST + 2)]
            assert [await is_closed(each) for each in silent[:2]] == [True, True]
            assert await port.ask() == b"ok"

    run(new_loop, body)


@on_both_loops
def test_every_handshake_of_many_at_once_is_answered(new_loop: NewLoop) -> None:
    """Also where the first bytes come before the connection has been accepted."""

    async def body() -> None:
        async with tls_port(most=100) as port:
            answers = await asyncio.gather(*(port.ask() for _ in range(100)))
            assert answers == [b"ok"] * 100

    run(new_loop, body)


@on_both_loops
def test_what_is_no_tls_is_closed_and_counts_no_longer(
    new_loop: NewLoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def body() -> None:
        async with tls_port() as port:
            kept = await port.connect()
            for _ in range(2 * MOST):
                other = await port.connect(speaks_tls=False)
                other[1].write(b"GET / HTTP/1.1\r\n\r\n")
                async with asyncio.timeout(60):
                    await other[0].read()
            kept[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(60):
                assert (await kept[0].readline()).startswith(b"HTTP/1.1 200")

    run(new_loop, body)
    assert not caplog.records


@on_both_loops
def test_a_handshake_that_takes_too_long_is_given_up(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with tls_port(handshake_seconds=0.1) as port:
            assert await is_closed(await port.connect(speaks_tls=False))

    run(new_loop, body)


@on_both_loops
def test_a_port_that_closes_waits_for_no_handshake(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with tls_port() as port:
            silent = await port.connect(speaks_tls=False)
            await port.ask()  # so that the connection before has been accepted
            await port.opened.close()
            assert await is_closed(silent)
            with pytest.raises(ConnectionRefusedError):
                await port.connect()

    run(new_loop, body)


@pytest.mark.parametrize("address", ["127.0.0.2", "::1"])
async def test_a_port_without_an_address_listens_on_all(address: str) -> None:
    if address == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6")

    async def respond(_: web.BaseRequest) -> web.Response:
        return web.Response(text="ok")

    bounds = Bounds(connections=MOST, per_peer=MOST, idle_seconds=60.0)
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        number = reserved.getsockname()[1]
    opened = await listen(respond, bounds, address="", port=number)
    try:
        with pytest.raises(OSError, match="in use"):
            await listen(respond, bounds, address="", port=number)
        reader, writer = await asyncio.open_connection(address, number)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 200")
        writer.close()
    finally:
        await opened.close()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


class FullOnce(socket.socket):
    """A listening socket for whose first connection no file descriptor is free."""

    was_full = False

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.was_full:
            self.was_full = True
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_where_no_file_descriptor_is_free_connections_are_accepted_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accept_loop, "_PAUSE_SECONDS", 0.1)
    taken = asyncio.Queue[str]()

    def take(connection: socket.socket, peer: str) -> None:
        connection.close()
        taken.put_nowait(peer)

    with FullOnce() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(0)
        loop = accept_loop.AcceptLoop([listening], take)
        _, writer = await asyncio.open_connection(*listening.getsockname())
        async with asyncio.timeout(60):
            assert await taken.get() == "127.0.0.1"
        writer.close()
        loop.close()
    assert [record.message for record in caplog.records] == ["could not accept a connection"]


def bytes_for_one_more_request(port: int) -> int:
    """Return the most memory that a request takes on an open connection; for a thread."""
    with (
        socket.create_connection(("127.0.0.1", port), 60) as connection,
        any_certificate().wrap_socket(connection) as client,
    ):

        def ask() -> None:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(4096).endswith(b"ok")

        ask()
        tracemalloc.start()
        try:
            ask()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@on_both_loops
def test_a_small_request_takes_little_memory(new_loop: NewLoop) -> None:
    """Without this, each read would map and free 256 KB, which costs a tenth of a review."""

    async def body() -> None:
        async with tls_port() as port:
            most = await asyncio.to_thread(bytes_for_one_more_request, port.opened.port)
            assert most < 64 * 1024

    run(new_loop, body)

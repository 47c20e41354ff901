"""A port that closes: the last responses arrive, nothing stays open, and no client delays it."""

import asyncio
import gc
import os
import select
import socket
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar

import pytest
from aiohttp import web

from reprieve_runtime.serving import bounded_server
from reprieve_testing.servers.tls_port import MOST, NewLoop, on_both_loops, run, tls_port
from reprieve_testing.servers.webhook_program import any_certificate

SOME_BYTES, MANY_BYTES = 500_000, 4_000_000
"""The handler of a request is done with its response before, and only after, a client has read."""
TOO_LONG_SECONDS = 20
"""TLS waits half a minute for a client to answer its end."""
P = ParamSpec("P")
R = TypeVar("R")


class Client:
    """A client that blocks its thread, and that answers the end of TLS only where it says so."""

    def __init__(self, port: int) -> None:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(60)
        plain.connect(("127.0.0.1", port))
        self._tls = any_certificate().wrap_socket(plain, suppress_ragged_eofs=False)

    def ask(self, connection: str = "keep-alive") -> None:
        self._tls.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\n\r\n".encode())

    def read_ok(self) -> None:
        received = b""
        while not received.endswith(b"ok"):
            received += self._tls.recv(4096) or pytest.fail(f"ended after {received!r}")

    def read_to_the_end(self) -> int:
        """Return how many bytes come before the end of TLS; a cut connection is an error."""
        return sum(map(len, iter(partial(self._tls.recv, 65536), b"")))

    def read_and_answer_the_end(self) -> int:
        count = self.read_to_the_end()
        self._tls.unwrap()
        return count

    def wait_for_end_of_connection(self) -> None:
        """Wait until the server has closed the connection itself, not only TLS on it."""
        while select.select([self._tls], [], [], TOO_LONG_SECONDS)[0]:
            if not os.read(self._tls.fileno(), 65536):
                return
        pytest.fail("the server keeps the connection open")

    def close(self) -> None:
        self._tls.close()


class Clients:
    """Clients in threads of their own."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.threads = threads
        self.opened: list[Client] = []

    async def wait(self, do: Callable[P, R], *arguments: P.args, **more: P.kwargs) -> R:
        """Wait until a client has done something."""
        return await asyncio.wrap_future(self.threads.submit(do, *arguments, **more))

    async def connect(self, port: int) -> Client:
        opened = await self.wait(Client, port)
        self.opened.append(opened)
        return opened


@pytest.fixture
def clients() -> Iterator[Clients]:
    with ThreadPoolExecutor() as threads:
        found = Clients(threads)
        yield found
        for each in found.opened:
            each.close()


@contextmanager
def nothing_stays_open() -> Iterator[None]:
    """Fail where the loop of the block ends before one of its transports."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(each.message) for each in caught] == []


@on_both_loops
def test_the_last_response_arrives_although_the_program_ends(
    new_loop: NewLoop, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may take longer than clients are given.
    monkeypatch.setattr(bounded_server, "_CLOSING_SECONDS", 60.0)
    monkeypatch.setattr(bounded_server, "_LAST_BYTES_SECONDS", 60.0)
    reading: list[Future[int]] = []

    async def body() -> None:
        arrived = asyncio.Event()

        async def respond(_: web.BaseRequest) -> web.Response:
            arrived.set()
            return web.Response(body=bytes(MANY_BYTES))

        async with tls_port(respond) as port:
            client = await clients.connect(port.opened.port)
            client.ask()
            await arrived.wait()
            reading.append(clients.threads.submit(client.read_and_answer_the_end))

    with nothing_stays_open():
        run(new_loop, body)
    assert reading[0].result() > MANY_BYTES


@on_both_loops
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_a_client_that_never_answers_the_end_of_tls_delays_no_program(
    new_loop: NewLoop, clients: Clients, connection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_server, "_LAST_BYTES_SECONDS", 0.1)

    async def body() -> None:
        async with tls_port() as port:
            client = await clients.connect(port.opened.port)
            client.ask(connection)
            await clients.wait(client.read_ok)
            async with asyncio.timeout(TOO_LONG_SECONDS):
                await port.opened.close()

    with nothing_stays_open():
        run(new_loop, body)


@on_both_loops
@pytest.mark.parametrize("length", [SOME_BYTES, MANY_BYTES])
def test_a_client_that_never_reads_delays_no_program(
    new_loop: NewLoop, clients: Clients, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_server, "_CLOSING_SECONDS", 0.1)
    monkeypatch.setattr(bounded_server, "_LAST_BYTES_SECONDS", 0.1)

    async def body() -> None:
        arrived = asyncio.Event()

        async def respond(_: web.BaseRequest) -> web.Response:
            arrived.set()
            return web.Response(body=bytes(length))

        async with tls_port(respond) as port:
            (await clients.connect(port.opened.port)).ask()
            await arrived.wait()
            async with asyncio.timeout(TOO_LONG_SECONDS):
                await port.opened.close()

    with nothing_stays_open():
        run(new_loop, body)


@on_both_loops
def test_an_idle_connection_whose_client_never_answers_the_end_of_tls_makes_room(
    new_loop: NewLoop, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_server, "_LAST_BYTES_SECONDS", 0.1)

    async def body() -> None:
        async with tls_port(idle_seconds=0.1) as port:
            idle = await clients.connect(port.opened.port)
            assert await clients.wait(idle.read_to_the_end) == 0
            for _ in range(MOST):
                await port.connect(speaks_tls=False)
            await clients.wait(idle.wait_for_end_of_connection)

    run(new_loop, body)

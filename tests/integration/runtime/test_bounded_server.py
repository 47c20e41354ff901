"""Too many connections: unused ones make room, and requests under way are answered."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from reprieve_runtime.serving.bounded_server import (
    Bounds,
    IsTrusted,
    listen,
    peer_of,
    trusts_no_client,
)
from reprieve_testing.servers.attackers import Connection, is_closed
from reprieve_testing.servers.stub_api import until

CROWD, OTHER = "127.66.0.1", "127.66.0.2"


@dataclass
class Port:
    """A port with room for four connections, and for three of one peer."""

    number: int
    arrived: asyncio.Queue[None]
    """One item for each request to `/wait`."""
    go_on: asyncio.Event
    ended: asyncio.Queue[str]
    """One item for each request to `/wait` that has ended."""
    opened: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self, address: str) -> Connection:
        connection = await asyncio.open_connection(
            "127.0.0.1", self.number, local_addr=(address, 0)
        )
        self.opened.append(connection[1])
        return connection


@asynccontextmanager
async def port(
    is_trusted: IsTrusted = trusts_no_client, idle_seconds: float = 60.0
) -> AsyncIterator[Port]:
    arrived, go_on, ended = asyncio.Queue[None](), asyncio.Event(), asyncio.Queue[str]()

    async def respond(request: web.BaseRequest) -> web.Response:
        if request.path == "/wait":
            arrived.put_nowait(None)
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                ended.put_nowait("cancelled")
                raise
            ended.put_nowait("answered")
        await request.read()
        return web.Response(text="ok\n")

    bounds = Bounds(connections=4, per_peer=3, idle_seconds=idle_seconds)
    listening = await listen(respond, bounds, address="127.0.0.1", port=0, is_trusted=is_trusted)
    opened = Port(listening.port, arrived, go_on, ended)
    try:
        yield opened
    finally:
        for writer in opened.opened:
            writer.transport.abort()
        await listening.close()


async def ask(connection: Connection, path: str = "/") -> bytes:
    reader, writer = connection
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    async with asyncio.timeout(60):
        await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(3)


@pytest.mark.parametrize("target", ["/", "http://host/", "http://xn--a/"])
async def test_the_host_that_a_client_writes_before_the_path_is_not_read(
    target: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with port() as opened:
        assert await ask(await opened.connect(OTHER), target) == b"ok\n"
    assert caplog.records == []


async def test_a_peer_that_opens_too_many_closes_its_own() -> None:
    async with port() as opened:
        other = await opened.connect(OTHER)
        crowd = [await opened.connect(CROWD) for _ in range(5)]
        assert [await is_closed(connection) for connection in crowd[:2]] == [True, True]
        assert await ask(other) == b"ok\n"
        assert [await ask(connection) for connection in crowd[2:]] == [b"ok\n"] * 3


async def test_where_all_is_taken_the_peer_with_the_most_makes_room() -> None:
    async with port() as opened:
        crowd = [await opened.connect(CROWD) for _ in range(3)]
        others = [await opened.connect(OTHER) for _ in range(2)]
        assert await is_closed(crowd[0])
        assert [await ask(connection) for connection in others] == [b"ok\n"] * 2


async def test_a_request_under_way_is_answered_before_an_unused_connection_is_kept() -> None:
    async with port() as opened:
        busy = await opened.connect(CROWD)
        answering = asyncio.create_task(ask(busy, "/wait"))
        await opened.arrived.get()
        unused = [await opened.connect(CROWD) for _ in range(3)]
        assert await is_closed(unused[0])
        opened.go_on.set()
        assert await answering == b"ok\n"


async def test_many_addresses_close_no_request_under_way() -> None:
    """Also where one address, as that of an API server, has more connections than each of them."""
    async with port() as opened:
        busy = [await opened.connect(OTHER) for _ in range(3)]
        answers = [asyncio.create_task(ask(each, "/wait")) for each in busy]
        for _ in busy:
            await opened.arrived.get()
        crowd = [await opened.connect(f"127.66.1.{number}") for number in range(1, 4)]
        assert [await is_closed(each) for each in crowd[:2]] == [True, True]
        opened.go_on.set()
        assert await asyncio.gather(*answers) == [b"ok\n"] * 3


async def test_a_request_whose_body_does_not_come_makes_room() -> None:
    async with port() as opened:
        half = await opened.connect(OTHER)
        half[1].write(b"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf")
        await opened.arrived.get()
        unused = [await opened.connect(f"127.66.1.{number}") for number in range(1, 5)]
        assert await is_closed(half)
        assert [await ask(each) for each in unused] == [b"ok\n"] * 4
        opened.go_on.set()


@pytest.mark.parametrize(("body", "end"), [(b"half", "cancelled"), (b"whole....", "answered")])
async def test_a_client_that_leaves_ends_only_a_request_that_has_not_come(
    body: bytes, end: str
) -> None:
    async with port() as opened:
        _, writer = await opened.connect(CROWD)
        writer.write(b"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n" + body)
        await opened.arrived.get()
        writer.close()
        assert await ask(await opened.connect(OTHER)) == b"ok\n"  # it has seen the end by now
        if end == "answered":
            opened.go_on.set()
        assert await opened.ended.get() == end


async def test_a_body_that_is_cut_short_keeps_no_memory_until_a_garbage_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        async with port() as opened:
            _, writer = await opened.connect(CROWD)
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf")
            await until(lambda: requests_in_memory() == 1)
            writer.transport.abort()
            await until(lambda: requests_in_memory() == 0)
    finally:
        gc.enable()


def requests_in_memory() -> int:
    return sum(isinstance(each, web.BaseRequest) for each in gc.get_objects())


async def test_trusted_connections_are_neither_counted_nor_closed() -> None:
    is_other: Callable[[asyncio.BaseTransport], bool] = lambda each: peer_of(each) == OTHER  # noqa: E731
    async with port(is_other) as opened:
        trusted = [await opened.connect(OTHER) for _ in range(6)]
        crowd = [await opened.connect(CROWD) for _ in range(4)]
        assert await is_closed(crowd[0])
        assert [await ask(connection) for connection in trusted] == [b"ok\n"] * 6
        assert [await ask(connection) for connection in crowd[1:]] == [b"ok\n"] * 3


async def test_a_head_that_does_not_end_is_given_up() -> None:
    async with port(idle_seconds=0.1) as opened:
        half = await opened.connect(CROWD)
        half[1].write(b"GET / HTTP/1.1\r\nX-Half: ")
        assert await is_closed(half)

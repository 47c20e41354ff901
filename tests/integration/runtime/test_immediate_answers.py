"""What is known at once is answered without a task; all else as before, and in the same order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web, web_protocol
from aiohttp.http import RawRequestMessage

from reprieve_runtime.serving import immediate_answers
from reprieve_runtime.serving.bounded_server import Bounds, listen
from reprieve_runtime.serving.immediate_answers import ImmediateAnswers
from reprieve_testing.servers.attackers import Connection, is_closed
from reprieve_testing.servers.stub_api import until

ROOM = 3
LARGE = 32 * 1024 * 1024
"""Of an answer: far more than the kernel holds for a client that does not read."""


@dataclass
class Port:
    """A port that answers `/now` at once, and all else in a task."""

    number: int = 0
    now: list[bytes] = field(default_factory=list)
    """The bodies that were answered at once."""
    awaited: list[bytes] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """A request to `/wait` has come."""
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    opened: list[asyncio.StreamWriter] = field(default_factory=list)

    def answer_now(self, message: RawRequestMessage, body: bytes) -> bytes | None:
        if message.path not in ("/now", "/large"):
            return None
        self.now.append(body)
        answer = b"x" * LARGE if message.path == "/large" else b"now:" + body
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer)

    async def respond(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        self.awaited.append(body)
        if request.path == "/wait":
            self.arrived.set()
            await self.go_on.wait()
        return web.Response(body=b"task:" + body)

    async def connect(self) -> Connection:
        connection = await asyncio.open_connection("127.0.0.1", self.number, limit=2 * LARGE)
        self.opened.append(connection[1])
        return connection


@asynccontextmanager
async def open_port() -> AsyncIterator[Port]:
    port = Port()
    listening = await listen(
        port.respond,
        Bounds(connections=ROOM, per_peer=ROOM, idle_seconds=60.0),
        address="127.0.0.1",
        port=0,
        answer_now=port.answer_now,
    )
    port.number = listening.port
    try:
        yield port
    finally:
        for writer in port.opened:
            writer.transport.abort()
        await listening.close()


def request(path: str, body: bytes, *fields: str, version: str = "1.1") -> bytes:
    lines = (f"POST {path} HTTP/{version}", "Host: x", f"Content-Length: {len(body)}", *fields)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def answer(connection: Connection) -> bytes:
    reader, _ = connection
    async with asyncio.timeout(60):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        return await reader.readexactly(length)


async def test_a_whole_request_is_answered_at_once() -> None:
    async with open_port() as port:
        connection = await port.connect()
        for body in (b"a", b"b", b""):
            connection[1].write(request("/now", body))
            assert await answer(connection) == b"now:" + body
        assert (port.now, port.awaited) == ([b"a", b"b", b""], [])


async def test_what_is_not_known_is_awaited_with_its_whole_body() -> None:
    async with open_port() as port:
        connection = await port.connect()
        for path, expected in (("/other", b"task:a"), ("/now", b"now:a"), ("/other", b"task:a")):
            connection[1].write(request(path, b"a"))
            assert await answer(connection) == expected


async def test_requests_that_come_together_are_answered_in_their_order() -> None:
    async with open_port() as port:
        connection = await port.connect()
        connection[1].write(request("/other", b"a") + request("/now", b"b") + request("/now", b"c"))
        answers = [await answer(connection) for _ in range(3)]
        assert answers == [b"task:a", b"task:b", b"task:c"]
        connection[1].write(request("/now", b"d"))
        assert await answer(connection) == b"now:d"


async def test_no_answer_overtakes_that_of_an_earlier_request() -> None:
    async with open_port() as port:
        connection = await port.connect()
        connection[1].write(request("/wait", b"a"))
        await port.arrived.wait()
        connection[1].write(request("/now", b"b"))
        await connection[1].drain()
        port.go_on.set()
        assert [await answer(connection), await answer(connection)] == [b"task:a", b"task:b"]


@pytest.mark.parametrize("cut", [1, 30, -3])
async def test_a_request_in_pieces_is_answered(cut: int) -> None:
    async with open_port() as port:
        connection = await port.connect()
        whole = request("/now", b"body")
        for _ in range(2):
            connection[1].write(whole[:cut])
            await asyncio.sleep(0.01)
            connection[1].write(whole[cut:])
            assert (await answer(connection)).endswith(b":body")


async def test_the_start_of_a_further_request_is_kept() -> None:
    async with open_port() as port:
        connection = await port.connect()
        further = request("/now", b"b")
        connection[1].write(request("/now", b"a") + further[:20])
        assert await answer(connection) == b"now:a"
        connection[1].write(further[20:])
        assert await answer(connection) == b"now:b"


@pytest.mark.parametrize(
    "last", [request("/now", b"a", "Connection: close"), request("/now", b"a", version="1.0")]
)
async def test_a_client_that_wants_no_further_answer_is_disconnected(last: bytes) -> None:
    async with open_port() as port:
        connection = await port.connect()
        connection[1].write(last)
        assert await answer(connection) == b"task:a"
        assert await is_closed(connection)


async def test_for_a_client_that_does_not_read_only_one_answer_waits() -> None:
    async with open_port() as port:
        reader, writer = connection = await port.connect()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request("/large", b"a"))
        await until(lambda: bool(port.now))
        writer.write(request("/large", b"b"))
        other = await port.connect()
        other[1].write(request("/other", b"c"))
        assert await answer(other) == b"task:c"
        assert (port.now, port.awaited) == ([b"a"], [b"c"])
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await answer(connection)) == LARGE
        assert await answer(connection) == b"task:b"


async def test_the_answers_to_a_client_that_does_not_read_are_not_kept_without_end() -> None:
    async with open_port() as port:
        connection, other = await port.connect(), await port.connect()
        connection[0]._transport.pause_reading()  # type: ignore[attr-defined]
        body = b"x" * 20_000
        for _ in range(1000):
            connection[1].write(request("/other", body))
        await until(lambda: len(port.awaited) >= 2)
        for _ in range(20):
            other[1].write(request("/other", b"other"))
            assert await answer(other) == b"task:other"
        assert len(port.awaited) - 20 < 900
        connection[0]._transport.resume_reading()  # type: ignore[attr-defined]
        answers = [await answer(connection) for _ in range(1000)]
        assert answers == [b"task:" + body] * 1000


async def test_a_client_that_leaves_unread_answers_behind_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_port() as port:
        reader, writer = await port.connect()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request("/large", b"a") + request("/other", b"b"))
        await until(lambda: bool(port.now or port.awaited))
        writer.transport.abort()
        other = await port.connect()
        other[1].write(request("/other", b"c"))
        assert await answer(other) == b"task:c"
    assert not caplog.records


async def test_a_connection_whose_requests_are_answered_at_once_counts_as_used() -> None:
    async with open_port() as port:
        used, silent = await port.connect(), await port.connect()
        for _ in range(ROOM):
            used[1].write(request("/now", b"a"))
            assert await answer(used) == b"now:a"
            await port.connect()
        assert await is_closed(silent)
        used[1].write(request("/now", b"b"))
        assert await answer(used) == b"now:b"


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        """Nothing is open."""


async def test_the_time_of_an_idle_connection_starts_anew_at_each_answer() -> None:
    server, transport, used = web.Server(Port().respond, keepalive_timeout=60.0), Transport(), []
    handler = server()
    handler.connection_made(transport)
    await asyncio.sleep(0)
    before = handler._next_keepalive_close_time = handler._next_keepalive_close_time - 30.0
    handler._parser = ImmediateAnswers(  # type: ignore[assignment]
        handler, lambda _, body: b"answer to " + body, used.append
    )
    handler.data_received(request("/", b"a"))
    assert (transport.written, used) == ([b"answer to a"], [handler])
    assert handler._next_keepalive_close_time >= before + 30.0
    handler.connection_lost(None)


def test_the_installed_aiohttp_supports_immediate_answers() -> None:
    assert immediate_answers.are_supported()


@pytest.mark.parametrize("difference", ["a name", "a parser that holds requests back"])
async def test_with_another_aiohttp_all_requests_are_awaited_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, difference: str
) -> None:
    if difference == "a name":
        names = {web_protocol.RequestHandler: ("_of_another_version",)}
        monkeypatch.setattr(immediate_answers, "_PRIVATE_NAMES", names)
    else:
        monkeypatch.setattr(web_protocol, "MAX_MSG_QUEUE_SIZE", 1)
    async with open_port() as port:
        connection = await port.connect()
        connection[1].write(request("/now", b"a"))
        assert await answer(connection) == b"task:a"
    assert [record.levelname for record in caplog.records] == ["WARNING"]

"""One buffer for all connections: each protocol gets its own bytes, in their own size."""

import asyncio

from reprieve_runtime.serving.shared_read_buffer import READ_BYTES, SharedReadBuffer


class Protocol(asyncio.Protocol):
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(exc)

    def data_received(self, data: bytes) -> None:
        self.events.append(data)

    def eof_received(self) -> None:
        self.events.append("eof")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


def received(connection: SharedReadBuffer, content: bytes) -> None:
    """Read as the event loop does."""
    buffer = connection.get_buffer(-1)
    assert len(buffer) == READ_BYTES
    buffer[: len(content)] = content
    connection.buffer_updated(len(content))


def test_what_one_connection_got_stays_when_another_one_reads():
    buffer = memoryview(bytearray(READ_BYTES))
    first, second = Protocol(), Protocol()

    received(SharedReadBuffer(first, buffer), b"of the first")
    received(SharedReadBuffer(second, buffer), b"second")

    assert (first.events, second.events) == ([b"of the first"], [b"second"])


def test_every_other_event_reaches_the_protocol():
    protocol, transport, error = Protocol(), asyncio.BaseTransport(), OSError()
    connection = SharedReadBuffer(protocol, memoryview(bytearray(READ_BYTES)))

    connection.connection_made(transport)
    connection.pause_writing()
    connection.resume_writing()
    connection.eof_received()
    connection.connection_lost(error)

    assert protocol.events == [transport, "pause", "resume", "eof", error]

"""One unary gRPC call on its own connection to an untrusted peer (gRPC's "PROTOCOL-HTTP2").

Built on h2, which does no I/O, so that this module sets the bounds. grpc.aio has no bounds before
the peer has acknowledged its settings: a peer that never does makes it accept 16 MiB of headers,
which costs 200 MB of memory and 3 s of the event loop in a single call.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error

_CONNECT_SECONDS = 2.0
_CHUNK: Final = 4096
_MAX_BYTES: Final = 64 * 1024
"""Bytes received in one call: settings, headers, an answer of 16 KiB, trailers."""
_MAX_EVENTS: Final = 256
"""HTTP/2 events in one call. Without this, empty frames take half a second of the event loop."""
_MAX_HEADERS: Final = 8192
"""Bytes of decompressed headers; h2 counts them as it decodes, before any acknowledgement."""
_STREAM: Final = 1


class GrpcStatusCode(IntEnum):
    """gRPC's status codes (its document "statuscodes")."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class NotSent(Exception):  # noqa: N818 - an outcome of a call
    """The peer has certainly not begun to process this call."""


class ConnectionBroken(Exception):  # noqa: N818
    """The connection broke, or the response is not gRPC: the peer may have begun to process it."""


@dataclass(slots=True)
class _GrpcResponse:
    headers: dict[bytes, bytes] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    has_ended: bool = False


async def call(
    host: str, port: int, path: str, message: bytes, timeout_seconds: float
) -> bytes | GrpcStatusCode:
    """Return the response's message, or its status if it has none.

    Raises `NotSent` and `ConnectionBroken`.
    """
    is_sent = False
    try:
        async with asyncio.timeout(timeout_seconds), _connect(host, port) as connection:
            await connection.handshake()
            connection.send_headers(_headers(host, port, path))
            is_sent = True
            await connection.send_message(struct.pack(">BI", 0, len(message)) + message)
            return _parse_response(await connection.read_response())
    except (H2Error, OSError, EOFError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise (ConnectionBroken(reason) if is_sent else NotSent(reason)) from error


class _GrpcConnection:
    """One connection with one stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._h2.decoder.max_header_list_size = _MAX_HEADERS
        self._bytes_left, self._events_left = _MAX_BYTES, _MAX_EVENTS

    async def handshake(self) -> None:
        """Exchange the HTTP/2 settings; a peer without HTTP/2 is sent nothing more."""
        self._h2.initiate_connection()
        while not any(isinstance(event, RemoteSettingsChanged) for event in await self._receive()):
            pass

    def send_headers(self, headers: list[tuple[str, str]]) -> None:
        """Queue the request's headers; nothing is sent yet."""
        self._h2.send_headers(_STREAM, headers)

    async def send_message(self, body: bytes) -> None:
        """Send the request, once the peer's flow-control window has room for it."""
        while self._h2.local_flow_control_window(_STREAM) < len(body):
            await self._receive()
        self._h2.send_data(_STREAM, body, end_stream=True)

    async def read_response(self) -> _GrpcResponse:
        """Return the complete response."""
        response = _GrpcResponse()
        while not response.has_ended:
            for event in await self._receive():
                _apply_event(event, response)
        return response

    async def _receive(self) -> list[Event]:
        """Send pending data and return the next events; raises `EOFError` at the end or a bound."""
        self._writer.write(self._h2.data_to_send())
        await self._writer.drain()
        data = await self._reader.read(_CHUNK)
        if not data:
            raise EOFError("the connection was closed")
        events = self._h2.receive_data(data)
        self._bytes_left -= len(data)
        self._events_left -= len(events)
        if self._bytes_left < 0 or self._events_left < 0:
            raise EOFError("the response is larger than an answer may be")
        return events


@contextlib.asynccontextmanager
async def _connect(host: str, port: int) -> AsyncIterator[_GrpcConnection]:
    async with asyncio.timeout(_CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, limit=_CHUNK)
    try:
        yield _GrpcConnection(reader, writer)
    finally:
        # Close at once, without waiting for unsent data.
        writer.transport.abort()


def _headers(host: str, port: int, path: str) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "reprieve-operator"),
    ]


def _apply_event(event: Event, response: _GrpcResponse) -> None:
    if isinstance(event, ResponseReceived | TrailersReceived):
        response.headers.update((bytes(name), bytes(value)) for name, value in event.headers)
    elif isinstance(event, DataReceived):
        response.data += event.data
    elif isinstance(event, StreamEnded):
        response.has_ended = True
    elif isinstance(event, StreamReset):
        _raise_stream_error("the call was reset", event.error_code == ErrorCodes.REFUSED_STREAM)
    elif isinstance(event, ConnectionTerminated):
        _raise_stream_error("the workload is shutting down", event.last_stream_id == 0)


def _raise_stream_error(reason: str, is_unprocessed: bool) -> None:  # noqa: FBT001
    raise NotSent(reason) if is_unprocessed else ConnectionBroken(reason)


_HTTP_STATUSES = {
    b"400": GrpcStatusCode.INTERNAL,
    b"401": GrpcStatusCode.UNAUTHENTICATED,
    b"403": GrpcStatusCode.PERMISSION_DENIED,
    b"404": GrpcStatusCode.UNIMPLEMENTED,
}
"""The codes for a response without a gRPC status (gRPC's document "http-grpc-status-mapping")."""


def _parse_response(response: _GrpcResponse) -> bytes | GrpcStatusCode:
    if response.headers.get(b":status") != b"200":
        return _HTTP_STATUSES.get(response.headers.get(b":status", b""), GrpcStatusCode.UNKNOWN)
    status_text = response.headers.get(b"grpc-status", b"").decode("ascii", "replace")
    status = (
        GrpcStatusCode(int(status_text))
        if status_text in {str(known.value) for known in GrpcStatusCode}
        else GrpcStatusCode.UNKNOWN
    )
    return _parse_message(bytes(response.data)) if status is GrpcStatusCode.OK else status


def _parse_message(data: bytes) -> bytes:
    """Return the one message of a response.

    Compressed messages are rejected: a small message could expand to a large one.
    """
    if len(data) < 5 or data[0] != 0 or struct.unpack(">I", data[1:5])[0] != len(data) - 5:
        raise ConnectionBroken("the answer is not one message")
    return data[5:]

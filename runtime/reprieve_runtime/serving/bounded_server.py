"""An open port: aiohttp's low-level server with bounds on connections, in all and per peer.

Any pod that reaches the port may open connections and send nothing. Without bounds, they take all
memory or all file descriptors of the program.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from .accept_loop import AcceptLoop, open_sockets
from .connection_table import ConnectionTable
from .immediate_answers import AnswerNow, ImmediateAnswers, are_supported
from .shared_read_buffer import READ_BYTES, SharedReadBuffer

_LOG = logging.getLogger(__name__)
_LINGERING_SECONDS = 0.5
"""For the rest of a request that was refused half read. Without this, a client that still sends
would see a reset instead of the response."""
_CLOSING_SECONDS = 5.0
"""For the last responses, once the port is closed."""
_LAST_BYTES_SECONDS = 1.0
"""For what is written already: until the client has read it, and has answered the end of TLS."""
BUFFER_BYTES = 32 * 1024
"""What a connection may hold of a body that nothing reads yet: once in the kernel, once in TLS,
once in aiohttp."""
_MAX_HEADERS, _MAX_FIELD_BYTES = 32, 8190
"""API servers, agents and scrapers send ten or less; the largest is a token of 2 KB."""

Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
IsTrusted = Callable[[asyncio.BaseTransport], bool]
OnLost = Callable[[RequestHandler], None]
"""Called with each connection that is gone; its request may still be under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the clients of one port may take."""

    connections: int
    per_peer: int
    """Connections of one address."""
    idle_seconds: float
    """For a connection on which no whole request head comes."""
    handshake_seconds: float = 5.0
    """For the TLS handshake; the default is a minute."""


def trusts_no_client(_: asyncio.BaseTransport) -> bool:
    """Trust no connection."""
    return False


def peer_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the address of the client; empty where the connection is gone already."""
    name = None if transport is None else transport.get_extra_info("peername")
    return str(name[0]) if name else ""


def _is_not_client_error(record: logging.LogRecord) -> bool:
    """Return `False` for a client that does not send HTTP, which is no fault of this program.

    Without this, any client that can open a connection could fill the log, each time with a
    traceback at level error.
    """
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_LOG.addFilter(_is_not_client_error)


@dataclass(slots=True)
class _AcceptedConnection:
    """A connection from accept on, until it is gone."""

    socket: socket.socket
    transport: asyncio.Transport | None = None
    """`None` until TLS is spoken."""

    def abort(self) -> None:
        """End the connection; what the client has not read yet is lost."""
        if self.transport is not None:
            # Not `close`: TLS would wait half a minute for a close_notify that does not come.
            self.transport.abort()
        # Without this, a handshake would go on, and so would a TLS transport of asyncio that was
        # closed twice: it ignores `abort`.
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


def _request_of_path(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """Make a request without the host that a client may write before the path: nothing reads it.

    Without this, one that is no valid IDNA would end the connection's task with a logged error.
    """
    if message.url.absolute:
        message = message._replace(url=message.url.relative())
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop)


class _BoundedServer(web.Server):
    """Counts each connection from its first moment; `ConnectionTable` says which one makes room.

    Connections of trusted clients neither count nor are closed, once TLS has said whose they are.
    """

    def __init__(
        self,
        respond: Respond,
        bounds: Bounds,
        context: ssl.SSLContext | None,
        is_trusted: IsTrusted,
        answer_now: AnswerNow | None,
        on_lost: OnLost | None,
        **settings: Any,
    ) -> None:
        super().__init__(self._respond_counted, request_factory=_request_of_path, **settings)
        self._respond, self._context, self._is_trusted = respond, context, is_trusted
        self._on_lost = on_lost
        self._answer_now = answer_now if are_supported() else None
        self._handshake_seconds = None if context is None else bounds.handshake_seconds
        self._table = ConnectionTable[RequestHandler](
            most=bounds.connections,
            most_of_peer=bounds.per_peer,
            now=asyncio.get_running_loop().time,
        )
        self._open: dict[RequestHandler, _AcceptedConnection] = {}
        """Each connection until its transport is gone; aiohttp's own list ends with `shutdown`."""
        self._none_is_open = asyncio.Event()
        self._none_is_open.set()
        self._read_buffer = memoryview(bytearray(READ_BYTES))
        self._handshakes: set[asyncio.Task[None]] = set()
        self._receiving: dict[RequestHandler, asyncio.Task[Any]] = {}
        """The tasks of the requests whose body has not come yet."""

    def take(self, connection: socket.socket, peer: str) -> None:
        """Count a connection that was accepted, and begin to serve it."""
        handler = self()
        if self._answer_now is not None:
            immediate = ImmediateAnswers(handler, self._answer_now, self._table.end_request)
            handler._parser = immediate  # type: ignore[assignment] # noqa: SLF001
        self._open[handler] = _AcceptedConnection(connection)
        self._none_is_open.clear()
        task = asyncio.create_task(self._open_transport(handler, connection))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)
        surplus = self._table.add(handler, peer)
        if surplus is not None:
            self._open[surplus].abort()

    async def end_handshakes(self) -> None:
        """End the connections on which TLS is not spoken yet."""
        for connection in list(self._open.values()):
            if connection.transport is None:
                connection.abort()
        await asyncio.gather(*self._handshakes)

    async def end_connections(self) -> None:
        """Wait until the closed connections are gone, and abort those that take too long.

        Without this, an event loop that ends now would cut the last responses short, and leave
        open transports behind.
        """
        if not await self._is_empty_soon():
            for connection in list(self._open.values()):
                connection.abort()
            await self._is_empty_soon()

    async def _is_empty_soon(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_BYTES_SECONDS):
                await self._none_is_open.wait()
        return self._none_is_open.is_set()

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open[handler].transport = transport
        if self._context is not None:
            # TLS keeps what it has received until it is read, by default up to 256 KB.
            transport.set_read_buffer_limits(BUFFER_BYTES)  # type: ignore[attr-defined]
        if self._is_trusted(transport):
            self._table.discard(handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._discard(handler)
        receiving = self._receiving.pop(handler, None)
        if receiving is not None:
            # Without this, a body that waits for room would wait on, and keep what has come of it.
            receiving.cancel()
        if self._on_lost is not None:
            self._on_lost(handler)
        super().connection_lost(handler, exc)

    async def _open_transport(self, handler: RequestHandler, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: SharedReadBuffer(handler, self._read_buffer),
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_seconds,
            )
        except (OSError, RuntimeError):
            # Not TLS, too slow, or closed; uvloop raises the latter where it was closed before.
            self._discard(handler)

    def _discard(self, handler: RequestHandler) -> None:
        self._table.discard(handler)
        self._open.pop(handler, None)
        if not self._open:
            self._none_is_open.set()

    async def _respond_counted(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = request.protocol
        if handler.writing_paused:
            # The client does not read. Without this, the responses to all its further requests
            # would be kept in memory.
            try:
                await request.writer.drain()
            except ConnectionError:
                return web.Response()  # the client is gone
        is_whole = request.content.is_eof()
        self._table.begin_request(handler, is_whole=is_whole)
        try:
            return await (self._respond(request) if is_whole else self._respond_receiving(request))
        finally:
            self._table.end_request(handler)

    async def _respond_receiving(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request whose body has not come yet."""
        handler, task = request.protocol, asyncio.current_task()
        assert task is not None
        self._receiving[handler] = task
        request.content.on_eof(partial(self._note_whole_request, handler))
        try:
            return await self._respond(request)
        finally:
            self._receiving.pop(handler, None)
            failure = request.content.exception()
            if isinstance(failure, BaseException):
                # Its traceback refers to the request, which refers to it. Without this, a body that
                # was cut short would keep its memory until the next garbage collection.
                failure.__traceback__ = None

    def _note_whole_request(self, handler: RequestHandler) -> None:
        self._table.has_whole_request(handler)
        self._receiving.pop(handler, None)


class OpenPort:
    """A port on which a server listens."""

    def __init__(self, server: _BoundedServer, sockets: Sequence[socket.socket]) -> None:
        self._server, self._accept_loop = server, AcceptLoop(sockets, server.take)
        self.port: int = sockets[0].getsockname()[1]
        """The number of the port, also where the system chose it."""

    async def close(self) -> None:
        """Accept no more connections, send the last responses, and close the connections."""
        self._accept_loop.close()
        await self._server.end_handshakes()
        # Lets the tasks of requests that have just come in start, so that they count as under way.
        await asyncio.sleep(0)
        self._server.pre_shutdown()
        await self._server.shutdown(_CLOSING_SECONDS)
        await self._server.end_connections()


async def listen(
    respond: Respond,
    bounds: Bounds,
    *,
    address: str,
    port: int,
    context: ssl.SSLContext | None = None,
    is_trusted: IsTrusted = trusts_no_client,
    is_shared: bool = False,
    answer_now: AnswerNow | None = None,
    on_lost: OnLost | None = None,
) -> OpenPort:
    """Open a port, with TLS where there is a context; raises `OSError` where it is taken.

    `answer_now`: asked before `respond` about a request that has come whole, where no other one is
    ahead of it on its connection.

    `is_shared`: other processes of the same user open it too, if they also say so. The system gives
    each new connection to one of them.
    """
    # Compressed bodies stay compressed and so fail to decode: only a decompression bomb uses them.
    server = _BoundedServer(
        respond,
        bounds,
        context,
        is_trusted,
        answer_now,
        on_lost,
        access_log=None,
        logger=_LOG,
        auto_decompress=False,
        lingering_time=_LINGERING_SECONDS,
        keepalive_timeout=bounds.idle_seconds,
        read_bufsize=BUFFER_BYTES,
        max_headers=_MAX_HEADERS,
        max_field_size=_MAX_FIELD_BYTES,
    )
    return OpenPort(server, await open_sockets(address, port, BUFFER_BYTES, is_shared=is_shared))

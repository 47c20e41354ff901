"""An open port: aiohttp's low-level server with bounds on connections, in all and per peer.

Any pod that reaches the port may open connections and send nothing. Without bounds, they take all
memory or all file descriptors of the program.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

_LOG = logging.getLogger(__name__)
_LINGERING_SECONDS = 0.5
"""For the rest of a request that was refused half read. Without this, a client that still sends
would see a reset instead of the response."""
_CLOSING_SECONDS = 5.0
"""For the last responses, once the port is closed."""
BUFFER_BYTES = 32 * 1024
"""What a connection may hold of a body that nothing reads yet: once in the kernel, once in TLS,
once in aiohttp."""
_MAX_HEADERS, _MAX_FIELD_BYTES = 32, 8190
"""API servers, agents and scrapers send ten or less; the largest is a token of 2 KB."""

Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
IsTrusted = Callable[[asyncio.BaseTransport], bool]


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


def nobody(_: asyncio.BaseTransport) -> bool:
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


class _BoundedServer(web.Server):
    """Where there are too many connections, the peer with the most loses one of its own.

    So a client that opens many connections closes its own, and never those of another client. The
    peer loses the connection that was unused for longest; one with a request under way only where
    it has no other. Connections of trusted clients are neither counted nor closed.
    """

    def __init__(
        self, respond: Respond, bounds: Bounds, is_trusted: IsTrusted, **settings: Any
    ) -> None:
        super().__init__(self._respond_busy, request_factory=self._make_used, **settings)
        self._respond, self._bounds, self._is_trusted = respond, bounds, is_trusted
        self._peers: dict[RequestHandler, str] = {}
        """By last use: the first was unused for longest."""
        self._counts: Counter[str] = Counter()
        self._busy: set[RequestHandler] = set()
        self._shaking_hands: dict[RequestHandler, asyncio.BaseTransport] = {}
        """The connections below TLS, until the handshake ends."""

    def begin_handshake(self, handler: RequestHandler, transport: asyncio.BaseTransport) -> None:
        """Count a connection that is open, and does not speak TLS yet."""
        self._shaking_hands[handler] = transport
        self._count(handler, transport)

    def fail_handshake(self, handler: RequestHandler) -> None:
        """Forget a connection on which TLS is not spoken."""
        self._shaking_hands.pop(handler, None)
        self._forget(handler)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        is_counted = self._shaking_hands.pop(handler, None) is not None
        if transport.get_extra_info("ssl_object") is not None:
            # TLS keeps what it has received until it is read, by default up to 256 KB.
            transport.set_read_buffer_limits(BUFFER_BYTES)  # type: ignore[attr-defined]
        if self._is_trusted(transport):
            self._forget(handler)
        elif not is_counted:
            self._count(handler, transport)

    def _count(self, handler: RequestHandler, transport: asyncio.BaseTransport) -> None:
        peer = peer_of(transport)
        self._peers[handler] = peer
        self._counts[peer] += 1
        if self._counts[peer] > self._bounds.per_peer:
            self._close_one_of(peer)
        elif len(self._peers) > self._bounds.connections:
            self._close_one_of(max(self._counts, key=self._counts.__getitem__))

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._forget(handler)
        super().connection_lost(handler, exc)

    def _close_one_of(self, peer: str) -> None:
        own = [handler for handler, of in self._peers.items() if of == peer]
        chosen = next((handler for handler in own if handler not in self._busy), own[0])
        self._forget(chosen)
        transport = self._shaking_hands.get(chosen, chosen.transport)
        if transport is not None:
            # Not `close`: TLS would wait half a minute for a close_notify that does not come.
            transport.abort()  # type: ignore[attr-defined]  # streams have it

    def _forget(self, handler: RequestHandler) -> None:
        peer = self._peers.pop(handler, None)
        if peer is not None:
            self._counts[peer] -= 1
            if not self._counts[peer]:
                del self._counts[peer]

    def _make_used(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        peer = self._peers.pop(protocol, None)
        if peer is not None:
            self._peers[protocol] = peer
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop)

    async def _respond_busy(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = request.protocol
        self._busy.add(handler)
        try:
            return await self._respond(request)
        finally:
            self._busy.discard(handler)


class _Handshake(asyncio.Protocol):
    """A connection until TLS is spoken on it.

    Without this, asyncio would tell of a connection only after its handshake. A client that opens
    thousands and says nothing would then take all memory before any of them is counted.
    """

    def __init__(self, server: _BoundedServer, context: ssl.SSLContext, seconds: float) -> None:
        self._server, self._context, self._seconds = server, context, seconds
        self._handler = server()
        self._received = bytearray()
        self._has_ended = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        self._server.begin_handshake(self._handler, transport)
        self._task = asyncio.get_running_loop().create_task(self._run(transport))

    def data_received(self, data: bytes) -> None:
        # A request may come with the end of the handshake, before this program is told of the end.
        self._received += data

    def eof_received(self) -> None:
        self._has_ended = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._has_ended = True

    async def _run(self, transport: asyncio.Transport) -> None:
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._seconds,
            )
        except (OSError, RuntimeError):
            # Not TLS, too slow, or closed; uvloop raises the latter where it was closed before.
            secured = None
        if secured is None or self._has_ended or secured.is_closing():
            self._server.fail_handshake(self._handler)
            transport.abort()
            return
        secured.set_protocol(self._handler)
        self._handler.connection_made(secured)
        if self._received:
            self._handler.data_received(bytes(self._received))


class OpenPort:
    """A port on which a server listens."""

    def __init__(self, server: web.Server, listening: asyncio.Server) -> None:
        self._server, self._listening = server, listening

    @property
    def port(self) -> int:
        """The number of the port, also where the system chose it."""
        number: int = self._listening.sockets[0].getsockname()[1]
        return number

    async def close(self) -> None:
        """Accept no more connections, send the last responses, and close the connections."""
        self._listening.close()
        # Lets the tasks of requests that have just come in start, so that they count as under way.
        await asyncio.sleep(0)
        self._server.pre_shutdown()
        await self._server.shutdown(_CLOSING_SECONDS)


async def listen(
    respond: Respond,
    bounds: Bounds,
    *,
    address: str,
    port: int,
    context: ssl.SSLContext | None = None,
    is_trusted: IsTrusted = nobody,
) -> OpenPort:
    """Open a port, with TLS where there is a context; raises `OSError` where it is taken."""
    # Compressed bodies stay compressed and so fail to decode: only a decompression bomb uses them.
    server = _BoundedServer(
        respond,
        bounds,
        is_trusted,
        access_log=None,
        logger=_LOG,
        auto_decompress=False,
        lingering_time=_LINGERING_SECONDS,
        keepalive_timeout=bounds.idle_seconds,
        read_bufsize=BUFFER_BYTES,
        max_headers=_MAX_HEADERS,
        max_field_size=_MAX_FIELD_BYTES,
    )

    def accept() -> asyncio.Protocol:
        if context is None:
            return server()
        return _Handshake(server, context, bounds.handshake_seconds)

    listening = await asyncio.get_running_loop().create_server(
        accept, address or None, port, backlog=1024
    )
    for opened in listening.sockets:
        # Connections inherit it. Without this, the kernel keeps up to some MB for each one, which
        # count against the memory limit of the pod.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return OpenPort(server, listening)

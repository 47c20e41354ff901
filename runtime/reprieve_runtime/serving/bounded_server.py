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
    """For the TLS handshake. Until it ends, a connection is not counted, and the default is a
    minute."""


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

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if transport.get_extra_info("ssl_object") is not None:
            # TLS keeps what it has received until it is read, by default up to 256 KB.
            transport.set_read_buffer_limits(BUFFER_BYTES)  # type: ignore[attr-defined]
        if self._is_trusted(transport):
            return
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
        if chosen.transport is not None:
            # Not `close`: TLS would wait half a minute for a close_notify that does not come.
            chosen.transport.abort()

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
    is_trusted: IsTrusted = trusts_no_client,
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
    # Not `web.TCPSite`, which has no option for the timeout of the handshake.
    listening = await asyncio.get_running_loop().create_server(
        server,
        address or None,
        port,
        ssl=context,
        backlog=1024,
        ssl_handshake_timeout=None if context is None else bounds.handshake_seconds,
    )
    for opened in listening.sockets:
        # Connections inherit it. Without this, the kernel keeps up to some MB for each one, which
        # count against the memory limit of the pod.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return OpenPort(server, listening)

"""The open port: aiohttp's low-level server over TLS, without router, middleware and access log.

There are a few fixed paths: a lookup in a dictionary instead of an `Application` saves 15 to 25 %
of the time of a 4 KB review.
"""

import asyncio
import logging
import ssl
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from .server import Webhooks

_LOG = logging.getLogger(__name__)
_LINGERING_SECONDS = 0.5
"""For the rest of a request that was refused half read. Without this, a client that still sends
would see a reset instead of the response."""
_CLOSING_SECONDS = 5.0
"""For the last responses, once the port is closed."""
_IDLE_SECONDS = 120.0
"""For a connection on which no whole request head comes. API servers close theirs after 90 s, and
so never reach this."""
_HANDSHAKE_SECONDS = 5.0
"""For the TLS handshake. Until it ends, a connection is not among those counted below, and the
default is a minute."""
MAX_CONNECTIONS = 1000
"""Each takes some 45 KB, idle or not: 45 MB in all. API servers need a few."""


def _is_not_client_error(record: logging.LogRecord) -> bool:
    """Return `False` for a client that does not send HTTP, which is no fault of this program.

    Without this, any client that can open a connection could fill the log, each time with a
    traceback at level error.
    """
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_LOG.addFilter(_is_not_client_error)


class _BoundedServer(web.Server):
    """Closes the connection that was unused for longest when there are too many.

    Without this, any pod that opens connections and sends nothing could take all memory, and while
    no webhook answers, objects are admitted unchecked.
    """

    def __init__(self, *args: Any, max_connections: int, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._max_connections = max_connections
        self._by_last_use: dict[RequestHandler, None] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._by_last_use[handler] = None
        if len(self._by_last_use) > self._max_connections:
            longest_unused = next(iter(self._by_last_use))
            del self._by_last_use[longest_unused]
            if longest_unused.transport is not None:
                # Not `close`: TLS would wait half a minute for a close_notify that does not come.
                longest_unused.transport.abort()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._by_last_use.pop(handler, None)
        super().connection_lost(handler, exc)

    def mark_used(self, handler: RequestHandler) -> None:
        """Record a request on a connection."""
        if self._by_last_use.pop(handler, handler) is None:
            self._by_last_use[handler] = None


class Listener:
    """An open port."""

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
    webhooks: Webhooks,
    context: ssl.SSLContext,
    *,
    address: str,
    port: int,
    max_connections: int = MAX_CONNECTIONS,
    handshake_seconds: float = _HANDSHAKE_SECONDS,
) -> Listener:
    """Open the port."""

    def make_request(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        server.mark_used(protocol)
        return web.BaseRequest(message, payload, protocol, writer, task, loop)

    # Compressed bodies stay compressed and so fail to decode: only a decompression bomb uses them.
    server = _BoundedServer(
        webhooks.respond,
        request_factory=make_request,
        access_log=None,
        logger=_LOG,
        auto_decompress=False,
        lingering_time=_LINGERING_SECONDS,
        keepalive_timeout=_IDLE_SECONDS,
        max_connections=max_connections,
    )
    # Not `web.TCPSite`, which has no option for the timeout of the handshake.
    listening = await asyncio.get_running_loop().create_server(
        server,
        address or None,
        port,
        ssl=context,
        backlog=1024,
        ssl_handshake_timeout=handshake_seconds,
    )
    return Listener(server, listening)

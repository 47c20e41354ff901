"""The open port: aiohttp's low-level server over TLS, without its router, middleware and access log.

There are five fixed paths: looking them up in a dictionary instead of an `Application` saves 15 to 25 % of the time of a
4 KB review.
"""

import asyncio
import ssl

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from .server import Webhooks

_LINGERING_SECONDS = 0.5
"""For the rest of a request that was refused half read: a client that still sends would see a reset, not the answer."""
_CLOSING_SECONDS = 5.0
"""For the last answers under way, once the port is closed."""


async def listen(
    webhooks: Webhooks, context: ssl.SSLContext, *, address: str, port: int, max_review_bytes: int
) -> web.ServerRunner:
    """Open the port; `cleanup()` of the result closes it after the last answer."""

    def make_request(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=max_review_bytes)

    # Compressed bodies stay compressed, and so are no JSON: nobody sends them but as a bomb.
    server = web.Server(
        webhooks.respond,
        request_factory=make_request,
        access_log=None,
        auto_decompress=False,
        lingering_time=_LINGERING_SECONDS,
    )
    runner = web.ServerRunner(server, shutdown_timeout=_CLOSING_SECONDS)
    await runner.setup()
    await web.TCPSite(runner, address or None, port, ssl_context=context, backlog=1024).start()
    return runner

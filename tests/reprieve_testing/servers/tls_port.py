"""A port with TLS in the test's own process, on the loop of asyncio and on uvloop's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import uvloop
from aiohttp import web

from reprieve_certs import issue
from reprieve_certs.serving import ServingContext
from reprieve_runtime.serving.bounded_server import Bounds, OpenPort, Respond, listen
from reprieve_testing.objects.builders import NOW
from reprieve_testing.servers.attackers import Connection
from reprieve_testing.servers.webhook_program import any_certificate

MOST = 3
"""Connections for which a port has room by default."""
NewLoop = Callable[[], asyncio.AbstractEventLoop]
on_both_loops = pytest.mark.parametrize(
    "new_loop",
    [
        pytest.param(asyncio.new_event_loop, id="asyncio"),
        pytest.param(uvloop.new_event_loop, id="uvloop"),
    ],
)


def run(new_loop: NewLoop, body: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run the body of a test on a loop of its own."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(body())


@dataclass
class Port:
    """An open port, and connections to it."""

    opened: OpenPort
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self, *, speaks_tls: bool = True) -> Connection:
        """Open a connection."""
        context = any_certificate() if speaks_tls else None
        connection = await asyncio.open_connection("127.0.0.1", self.opened.port, ssl=context)
        self.writers.append(connection[1])
        return connection

    async def ask(self) -> bytes:
        """Send a request on a connection of its own, and return the last line of the response."""
        reader, writer = await self.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(60):
            return (await reader.read()).splitlines()[-1]


async def respond_ok(_: web.BaseRequest) -> web.Response:
    """Respond with `ok`."""
    return web.Response(text="ok")


@asynccontextmanager
async def tls_port(
    respond: Respond = respond_ok,
    *,
    most: int = MOST,
    handshake_seconds: float = 60.0,
    idle_seconds: float = 60.0,
) -> AsyncIterator[Port]:
    """Open a port with a certificate that no client can verify; close it after the block."""
    serving = ServingContext()
    pair = issue.issue_serving(issue.issue_ca(NOW), issue.ServingNames(("localhost",)), NOW)
    serving.load(pair.certificate_pem, pair.key_pem)
    bounds = Bounds(
        connections=most,
        per_peer=most,
        idle_seconds=idle_seconds,
        handshake_seconds=handshake_seconds,
    )
    port = Port(
        await listen(respond, bounds, address="127.0.0.1", port=0, context=serving.listener)
    )
    try:
        yield port
    finally:
        await port.opened.close()
        for writer in port.writers:
            writer.transport.abort()

"""Counts the bytes between a program and the API server, by call.

A port with a certificate of its own forwards all requests with the program's own token, and all
answers as they come, compressed or not. It has a turn of its own, because forwarding takes time.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from ipaddress import IPv4Address

import aiohttp
from aiohttp import web

from reprieve_certs import issue
from reprieve_certs.serving import ServingContext

_OF_ONE_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "host"})
_FINALIZERS_ONLY = {"finalizers", "uid", "resourceVersion"}


@dataclass
class Relay:
    """The relay's address and its CA, and the bytes so far: bodies and heads, without TLS."""

    authority: bytes = b""
    """As PEM."""
    url: str = ""
    sent: int = 0
    received: Counter[str] = field(default_factory=Counter)
    """By call; a watch is one call."""
    answers: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        """Begin to count anew."""
        self.sent = 0
        self.received.clear()
        self.answers.clear()


@contextmanager
def to(port: int) -> Iterator[Relay]:
    """Forward to an API server on a port of this machine during the block."""
    relay, loop, stop = Relay(), asyncio.new_event_loop(), asyncio.Event()
    ready = threading.Event()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(_serve(relay, port, ready, stop),)
    )
    thread.start()
    ready.wait()
    try:
        yield relay
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _serve(relay: Relay, port: int, ready: threading.Event, stop: asyncio.Event) -> None:
    # The answers are forwarded as they are, and those of a watch take as long as they take.
    async with aiohttp.ClientSession(
        f"https://127.0.0.1:{port}",
        connector=aiohttp.TCPConnector(limit=0, ssl=False),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await _forward(relay, session, request)

        # A watch ends with the connection of the program that watches.
        server = web.Server(handle, handler_cancellation=True)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        now = datetime.now(UTC)
        ca = issue.issue_ca(now)
        names = issue.ServingNames(ips=(IPv4Address("127.0.0.1"),))
        own, serving = issue.issue_serving(ca, names, now), ServingContext()
        serving.load(own.certificate_pem, own.key_pem)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving.listener).start()
        relay.authority = ca.certificate_pem
        relay.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await stop.wait()
        await runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


async def _forward(
    relay: Relay, session: aiohttp.ClientSession, request: web.BaseRequest
) -> web.StreamResponse:
    body = await request.read()
    relay.sent += _head_bytes(request.raw_path, request.headers) + len(body)
    async with session.request(
        request.method, request.raw_path, data=body or None, headers=_end_to_end(request.headers)
    ) as upstream:
        call = name_of(request.method, request.path, request.query, body, upstream.status)
        relay.answers[call] += 1
        relay.received[call] += _head_bytes(upstream.reason or "", upstream.headers)
        response = web.StreamResponse(status=upstream.status, headers=_end_to_end(upstream.headers))
        await response.prepare(request)
        with suppress(ConnectionError):
            async for chunk in upstream.content.iter_any():
                relay.received[call] += len(chunk)
                await response.write(chunk)
    return response


def name_of(method: str, path: str, query: Mapping[str, str], body: bytes, status: int) -> str:
    """Return what a call does: its method, resource and subresource, and its status if refused."""
    parts = path.split("/")[3 if path.startswith("/api/") else 4 :]
    below = parts[2:] if parts[:1] == ["namespaces"] and len(parts) > 2 else parts
    resource = "/".join([*below[:1], *below[2:]])
    if "watch" in query:
        return f"watch {resource}"
    what = f"{method} {resource}"
    if method == "PATCH" and set(json.loads(body).get("metadata", {})) == _FINALIZERS_ONLY:
        what += ", finalizer removed"
    return what if status < HTTPStatus.BAD_REQUEST else f"{what}, {status}"


def _end_to_end(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        (name, value) for name, value in headers.items() if name.lower() not in _OF_ONE_CONNECTION
    ]


def _head_bytes(first_line: str, headers: Mapping[str, str]) -> int:
    """Return the size of a message's head, by what HTTP/1.1 adds to its parts."""
    fields = sum(len(f"{name}: {value}\r\n") for name, value in headers.items())
    return len(first_line) + len("HTTP/1.1 200 \r\n") + fields + len("\r\n")

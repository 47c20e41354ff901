"""A proxy between an operator and the API server, with hooks before and after each call.

A hook may hold a call for any time: killing the operator meanwhile is a crash just before, or just
after, a write took effect. Watches can be cut, and kept from reconnecting. The operator does not
know of the proxy.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web

Json = Any

_EXPIRED = b'"code":410'
_HOP_BY_HOP = {
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "transfer-encoding",
    "content-encoding",
}


class Dropped(Exception):  # noqa: N818 - an instruction, not an error
    """Raised by a hook: the caller gets no answer, and a call that was not forwarded never is."""


class Refused(Exception):  # noqa: N818 - an instruction, not an error
    """Raised by a hook before a call: the caller gets this status; the call is not forwarded."""

    def __init__(self, status: int, retry_after_seconds: int | None = None) -> None:
        super().__init__(status)
        self.status, self.retry_after_seconds = status, retry_after_seconds


@dataclass(frozen=True, slots=True)
class ProxiedCall:
    """One call of the operator."""

    method: str
    path: str
    body: Json

    @property
    def is_write(self) -> bool:
        return self.method in ("PATCH", "DELETE", "POST", "PUT")


@dataclass(frozen=True, slots=True)
class ProxiedResponse:
    """The API server's answer to a call."""

    status: int
    document: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


async def _nothing_before(call: ProxiedCall) -> None:
    del call


async def _nothing_after(call: ProxiedCall, answer: ProxiedResponse) -> None:
    del call, answer


@dataclass
class ApiProxy:
    """Forwards to one API server, with the caller's own credentials."""

    api_server: str
    ca_file: Path
    before: Callable[[ProxiedCall], Awaitable[None]] = _nothing_before
    after: Callable[[ProxiedCall, ProxiedResponse], Awaitable[None]] = _nothing_after
    watches_allowed: asyncio.Event = field(default_factory=asyncio.Event)
    watches: set[asyncio.Task[Any]] = field(default_factory=set)
    gone: int = 0
    """Watches that the API server rejected: it no longer has the version that they start from."""

    def __post_init__(self) -> None:
        self.watches_allowed.set()
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cafile=str(self.ca_file))
        # The API server's self-signed certificate lacks extensions that Python 3.13 began to
        # require.
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, trust_env=False
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut_watches()
        await self._runner.cleanup()
        await self._session.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def kubeconfig(self, other: Path, path: Path) -> Path:
        """Write a kubeconfig with the credentials of another one that leads to this proxy."""
        config = json.loads(other.read_text())
        config["clusters"][0]["cluster"] = {"server": self.url}
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def cut_watches(self) -> int:
        """Cut all watches in the middle; return how many there were."""
        for watch in self.watches:
            watch.cancel()
        return len(self.watches)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        text = await request.read()
        call = ProxiedCall(request.method, request.path, json.loads(text) if text else None)
        try:
            await self.before(call)
            async with self._forward(request, text) as upstream:
                answer = ProxiedResponse(upstream.status, await upstream.read())
                headers = _headers(upstream)
            await self.after(call, answer)
        except Dropped:
            return self._hang_up(request)
        except Refused as refusal:
            return _refusal(refusal)
        except aiohttp.ClientError:
            return self._hang_up(request)
        return web.Response(status=answer.status, headers=headers, body=answer.document)

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self.watches_allowed.is_set():
            return self._hang_up(request)
        task = asyncio.current_task()
        assert task is not None
        self.watches.add(task)
        response: web.StreamResponse = web.Response(status=502)
        with suppress(asyncio.CancelledError, aiohttp.ClientError, ConnectionError):
            async with self._forward(request, b"") as upstream:
                response = web.StreamResponse(status=upstream.status, headers=_headers(upstream))
                await response.prepare(request)
                async for chunk in upstream.content.iter_any():
                    self.gone += _EXPIRED in chunk
                    await response.write(chunk)
        self.watches.discard(task)
        return self._hang_up(request) if response.prepared else response

    @asynccontextmanager
    async def _forward(
        self, request: web.BaseRequest, body: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _HOP_BY_HOP
        }
        headers["Accept-Encoding"] = "identity"
        url = self.api_server + request.raw_path
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method,
            url,
            data=body or None,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        ) as upstream:
            yield upstream

    def _hang_up(self, request: web.BaseRequest) -> web.Response:
        """Close the connection in the middle, as a network fault does."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)


def _refusal(refusal: Refused) -> web.Response:
    """Return an answer as the API server gives it, or a proxy before it."""
    after = refusal.retry_after_seconds
    document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "refused by the proxy of a test",
        "code": refusal.status,
    }
    headers = {} if after is None else {"Retry-After": str(after)}
    return web.json_response(document, status=refusal.status, headers=headers)


def _headers(upstream: aiohttp.ClientResponse) -> dict[str, str]:
    return {
        name: value for name, value in upstream.headers.items() if name.lower() not in _HOP_BY_HOP
    }

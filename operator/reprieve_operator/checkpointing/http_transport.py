"""The HTTP transport: one POST requests a checkpoint, GETs poll its progress.

It follows no redirects and uses no proxies and no cookies. It also bounds how much of a response
is read, because the peer is not trusted. aiohttp bounds the size and the number of headers, but
not what comes before the response: endless "102 Processing" responses take the whole event loop
until the call times out, and sixty such peers together delay all others by 15 s.
"""

import asyncio
import functools
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import CheckpointRequest
from reprieve_policy.verdict import Violation

from .endpoints import HttpEndpoint
from .transport import ReplyKind, WorkloadReply, reply_to_poll, reply_to_request

_CONNECT_SECONDS = 2.0
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "reprieve-operator",
}
_MAX_BYTES: Final = 64 * 1024
"""Bytes of one response: headers, and an answer of 16 KiB in chunks of any size."""
_MAX_HEADS: Final = 8
"""Response heads in one call: the final one and interim (1xx) ones."""
_PARSE_CHUNK_BYTES: Final = 1024
"""Bytes that are parsed before the bounds are checked again: up to 40 heads."""


class HttpTransport:
    """Calls workloads that serve HTTP."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=_BoundedConnector(),
            headers=_HEADERS,
            trust_env=False,
            auto_decompress=False,
            cookie_jar=_no_cookies(),
        )

    async def request_checkpoint(
        self, endpoint: HttpEndpoint, request: CheckpointRequest, timeout_seconds: float
    ) -> WorkloadReply:
        """Send a checkpoint request."""
        body = contract.render_request(request)
        reply = await self._call("POST", endpoint.url, body, timeout_seconds)
        if isinstance(reply, WorkloadReply):
            return reply
        status, text = reply
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=f"answered {status}")
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            return WorkloadReply(ReplyKind.NOT_RECEIVED, detail=f"answered {status}")
        answer = contract.parse_answer(text, "answer")
        if isinstance(answer, Violation):
            return WorkloadReply(
                ReplyKind.ANSWER,
                contract.ACCEPTED_WITHOUT_DOCUMENT,
                answer_error=_answer_error(text, answer),
            )
        return reply_to_request(answer, request)

    async def poll(
        self, endpoint: HttpEndpoint, eviction_id: str, timeout_seconds: float
    ) -> WorkloadReply:
        """Ask for the progress of the checkpoint; has no effect on the workload."""
        reply = await self._call("GET", endpoint.url, None, timeout_seconds)
        if isinstance(reply, WorkloadReply):
            return reply
        status, text = reply
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED:
            return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=f"answered {status}")
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            return WorkloadReply(ReplyKind.UNSUPPORTED, detail=f"answered {status}")
        answer = contract.parse_answer(text, "answer")
        if isinstance(answer, Violation):
            return WorkloadReply(ReplyKind.UNSUPPORTED, answer_error=_answer_error(text, answer))
        return reply_to_poll(answer, eviction_id)

    async def cancel(
        self, endpoint: HttpEndpoint, eviction_id: str, timeout_seconds: float
    ) -> None:
        """Cancel the request; the reply is ignored, as a handler need not implement DELETE."""
        await self._call(
            "DELETE", endpoint.url, contract.render_cancelled(eviction_id), timeout_seconds
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _call(
        self, method: str, url: URL, body: str | None, timeout_seconds: float
    ) -> WorkloadReply | tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(
            total=timeout_seconds, sock_connect=min(_CONNECT_SECONDS, timeout_seconds)
        )
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return response.status, await _read_body(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return WorkloadReply(ReplyKind.NOT_RECEIVED, detail=_describe_error(error))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=_describe_error(error))


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    """Read at most one byte more than the limit, so that an answer that is too long is detected."""
    text = bytearray()
    while len(text) <= contract.MAX_ANSWER:
        chunk = await response.content.read(contract.MAX_ANSWER + 1 - len(text))
        if not chunk:
            break
        text += chunk
    return bytes(text)


def _answer_error(text: bytes, violation: Violation) -> str:
    """Describe an invalid answer; empty for text that is not JSON, such as a handler's `ok`."""
    return f"{violation.path}: {violation.detail}" if text.lstrip().startswith(b"{") else ""


def _no_cookies() -> aiohttp.DummyCookieJar:
    return aiohttp.DummyCookieJar()


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__


class _BoundedConnector(aiohttp.TCPConnector):
    """Makes connections that serve one call each, within the bounds."""

    def __init__(self) -> None:
        # Without `force_close`, a poll on a connection that the workload has just closed looks
        # like a lost hint.
        super().__init__(limit=0, force_close=True)
        # aiohttp has no public way to set the protocol; a test fails if this name changes.
        self._factory = functools.partial(_make_handler, loop=self._loop)


class _BoundedHandler(ResponseHandler):
    """Stops reading at a bound: the data read so far is used, and the call may then time out."""

    _bytes_left = _MAX_BYTES
    _heads_left = _MAX_HEADS

    def data_received(self, data: bytes) -> None:
        """Process the received data up to the bounds."""
        for start in range(0, len(data), _PARSE_CHUNK_BYTES):
            if self._bytes_left <= 0 or self._heads_left <= 0:
                self._stop_reading()
                return
            piece = data[start : start + _PARSE_CHUNK_BYTES]
            self._bytes_left -= len(piece)
            super().data_received(piece)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Process one parsed head with its body stream."""
        self._heads_left -= 1
        super().feed_data(data, size)

    def _stop_reading(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()


def _make_handler(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _BoundedHandler(loop)

"""Reads request bodies within limits of size and time, so that no client can hold up the others."""

import asyncio
from http import HTTPStatus

from aiohttp import web

from reprieve_runtime.serving.bounded_server import IsTrusted, peer_of, trusts_no_client

from .body_budget import HURRIED_SECONDS, SMALL_BYTES, BodyBudget, Client

JSON = "application/json"


class RequestBodyReader:
    """Reads the bodies of one path."""

    def __init__(
        self,
        noun: str,
        *,
        max_bytes: int,
        timeout_seconds: float,
        budget: BodyBudget | None = None,
        is_trusted: IsTrusted = trusts_no_client,
    ) -> None:
        """`noun` names one body in the messages that refuse it.

        With a budget, the caller releases the connection after the response.
        """
        self._noun, self._max_bytes, self._timeout_seconds = noun, max_bytes, timeout_seconds
        self._budget, self._is_trusted = budget, is_trusted

    def read_now(self, request: web.BaseRequest) -> bytes | web.Response | None:
        """Return a body that has come, or the response that refuses it; `None` if it is to come.

        The usual case: the whole review came with its head.
        """
        content_type = request.headers.get("Content-Type", "")
        if content_type != JSON and media_type(content_type) != JSON:
            return text_response(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type must be {JSON}")
        content = request.content
        if content.is_eof():
            return self.check(content.read_nowait())
        return self._too_large() if (request.content_length or 0) > self._max_bytes else None

    async def read(self, request: web.BaseRequest) -> bytes | web.Response:
        """Return a whole body, or the response that refuses it."""
        body = self.read_now(request)
        return await self.read_coming(request) if body is None else body

    async def read_coming(self, request: web.BaseRequest) -> bytes | web.Response:
        """Return a body that is still to come, or the response that refuses it."""
        is_waiting = True
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                await self._reserve(request, limit)
                is_waiting = False
                return await self._read_chunks(request)
        except TimeoutError:
            is_hurried = (limit.when() or deadline) < deadline
            return with_connection_close(
                self._no_room(request, self._budget, "read")
                if is_waiting
                else self._late(is_hurried=is_hurried)
            )
        except (web.RequestPayloadError, ConnectionError):
            return with_connection_close(
                text_response(HTTPStatus.BAD_REQUEST, f"the {self._noun} was cut short")
            )

    async def wait_for_decoding(
        self, request: web.BaseRequest, budget: BodyBudget, size: int
    ) -> web.Response | None:
        """Wait until what a body decodes to fits; return the response that refuses it, or `None`.

        The caller releases the connection after the response.
        """
        client = self._client(request)
        if budget.try_reserve(client, size):
            return None
        if request.protocol.transport is None:
            return web.Response()  # the client is gone
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await budget.reserve(client, size)
        except TimeoutError:
            return self._no_room(request, budget, "decoded")
        return None

    async def _reserve(self, request: web.BaseRequest, limit: asyncio.Timeout) -> None:
        # Without a length, in chunks, a body may become as large as any.
        size = self._max_bytes if request.content_length is None else request.content_length
        if self._budget is not None and size > SMALL_BYTES:
            await self._budget.reserve(self._client(request), size, limit)

    def _client(self, request: web.BaseRequest) -> Client:
        transport = request.protocol.transport
        is_trusted = transport is not None and self._is_trusted(transport)
        return Client(request.protocol, peer_of(transport), is_trusted)

    async def _read_chunks(self, request: web.BaseRequest) -> bytes | web.Response:
        body = bytearray()
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > self._max_bytes:
                return self._too_large()
        if self._budget is not None:
            self._budget.finish_reading(request.protocol)
        return self.check(bytes(body))

    def check(self, body: bytes) -> bytes | web.Response:
        """Return a body that is within the limits, or the response that refuses it."""
        if len(body) > self._max_bytes:
            return self._too_large()
        return body

    def _too_large(self) -> web.Response:
        return with_connection_close(
            text_response(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a {self._noun} must not be larger than {self._max_bytes} bytes",
            )
        )

    def _late(self, *, is_hurried: bool) -> web.Response:
        seconds, why = (
            (HURRIED_SECONDS, ", and other large ones wait")
            if is_hurried
            else (self._timeout_seconds, "")
        )
        return text_response(
            HTTPStatus.REQUEST_TIMEOUT, f"the {self._noun} did not come within {seconds:g} s{why}"
        )

    def _no_room(
        self, request: web.BaseRequest, budget: BodyBudget | None, what: str
    ) -> web.Response:
        assert budget is not None
        if budget.is_used_by(peer_of(request.protocol.transport)):
            status, others = HTTPStatus.TOO_MANY_REQUESTS, "other large ones of your address"
        else:
            status, others = HTTPStatus.SERVICE_UNAVAILABLE, "too many large ones of other clients"
        response = text_response(
            status,
            f"the {self._noun} was not {what} within {self._timeout_seconds:g} s: {others} are "
            "under way; try again",
        )
        response.headers["Retry-After"] = "1"
        return response


def media_type(content_type: str) -> str:
    """Return the media type that a `Content-Type` names, in lower case, without its parameters.

    Not aiohttp's `content_type`: it parses parameters with the library for mail, which takes a
    second for 8 KB of semicolons, and raises errors for other values.
    """
    return content_type.partition(";")[0].strip().lower()


def text_response(status: HTTPStatus, sentence: str) -> web.Response:
    """Return a response of one sentence."""
    return web.Response(status=status, text=sentence + "\n")


def with_connection_close(response: web.Response) -> web.Response:
    """Close the connection after this response, without waiting for the rest of the request."""
    response.force_close()
    return response

"""Reads request bodies within limits of size and time, so that no client can hold up the others."""

import asyncio
from http import HTTPStatus

from aiohttp import web

_JSON = "application/json"


class RequestBodyReader:
    """Reads the bodies of one path."""

    def __init__(self, noun: str, *, max_bytes: int, timeout_seconds: float) -> None:
        """`noun` names one body in the messages that refuse it."""
        self._noun, self._max_bytes, self._timeout_seconds = noun, max_bytes, timeout_seconds

    async def read(self, request: web.BaseRequest) -> bytes | web.Response:
        """Return a whole body, or the response that refuses it."""
        if request.headers.get("Content-Type") != _JSON and request.content_type != _JSON:
            return text_response(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type must be {_JSON}")
        if request.content.is_eof():
            # The usual case: the whole review came with its head. This needs no timer and no
            # switch of tasks.
            body = request.content.read_nowait()
            return self._too_large() if len(body) > self._max_bytes else body
        if (request.content_length or 0) > self._max_bytes:
            return self._too_large()
        return await self._read_chunks(request)

    async def _read_chunks(self, request: web.BaseRequest) -> bytes | web.Response:
        body = bytearray()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                async for chunk in request.content.iter_any():
                    body += chunk
                    if len(body) > self._max_bytes:
                        return self._too_large()
        except TimeoutError:
            return with_connection_close(
                text_response(
                    HTTPStatus.REQUEST_TIMEOUT,
                    f"the {self._noun} did not come within {self._timeout_seconds:g} s",
                )
            )
        except (web.RequestPayloadError, ConnectionError):
            return with_connection_close(
                text_response(HTTPStatus.BAD_REQUEST, f"the {self._noun} was cut short")
            )
        return bytes(body)

    def _too_large(self) -> web.Response:
        return with_connection_close(
            text_response(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a {self._noun} must not be larger than {self._max_bytes} bytes",
            )
        )


def text_response(status: HTTPStatus, sentence: str) -> web.Response:
    """Return a response of one sentence."""
    return web.Response(status=status, text=sentence + "\n")


def with_connection_close(response: web.Response) -> web.Response:
    """Close the connection after this response, without waiting for the rest of the request."""
    response.force_close()
    return response

"""Request bodies, within bounds of size and time: nothing larger or slower than what a caller of ours sends is read."""

import asyncio

from aiohttp import web

_JSON = "application/json"


class RequestBodyReader:
    """The bodies of one path."""

    def __init__(self, what: str, *, max_bytes: int, timeout_seconds: float) -> None:
        """`what` is the word for one body in the sentences that refuse it."""
        self._noun, self._max_bytes, self._timeout_seconds = what, max_bytes, timeout_seconds

    async def read(self, request: web.BaseRequest) -> bytes | web.Response:
        """Return a whole body, or the answer to what is none."""
        if request.headers.get("Content-Type") != _JSON and request.content_type != _JSON:
            return text_response(415, f"Content-Type must be {_JSON}")
        if request.content.is_eof():
            # Nearly always: the whole review came with its head, and is taken without a timer or a task switch.
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
                    408, f"the {self._noun} did not come within {self._timeout_seconds:g} s"
                )
            )
        except (web.RequestPayloadError, ConnectionError):
            return with_connection_close(text_response(400, f"the {self._noun} was cut short"))
        return bytes(body)

    def _too_large(self) -> web.Response:
        return with_connection_close(
            text_response(413, f"a {self._noun} must not be larger than {self._max_bytes} bytes")
        )


def text_response(status: int, sentence: str) -> web.Response:
    """Answer with one sentence."""
    return web.Response(status=status, text=sentence + "\n")


def with_connection_close(response: web.Response) -> web.Response:
    """End the connection after this response: the rest of the request is not waited for."""
    response.force_close()
    return response

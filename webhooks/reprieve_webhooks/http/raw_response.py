"""The response to a review, with head and body written in one piece.

aiohttp renders each head from a map of headers, which costs as much as all the rules together.
The heads of these responses differ only in length and date.
"""

import time
from email.utils import formatdate
from functools import lru_cache

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

_HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: {date}\r\n"
    "{connection}Content-Length: "
)
_CLOSE = "Connection: close\r\n"


def render(content: bytes, *, stays_open: bool = True) -> bytes:
    """Return a whole response of HTTP/1.1."""
    head = _head(int(time.time()), stays_open)
    return b"%b%d\r\n\r\n%b" % (head, len(content), content)


class RawResponse(web.StreamResponse):
    """A 200 with a JSON body of known length."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = content
        self._stays_open = True

    @property
    def keep_alive(self) -> bool:
        """True where the connection serves another request."""
        return self._stays_open

    def force_close(self) -> None:
        """Close the connection after this response."""
        self._stays_open = False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Write head and body."""
        # An HTTP/1.0 client needs a header to know that the connection stays open. Closing it is
        # always correct.
        self._stays_open = (
            self._stays_open and request.keep_alive and request.version == HttpVersion11
        )
        await request.writer.write(render(self._content, stays_open=self._stays_open))
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Write nothing: `prepare` wrote the whole response."""


@lru_cache(maxsize=2)
def _head(second: int, stays_open: bool) -> bytes:  # noqa: FBT001 - cached by position is faster
    return _HEAD.format(
        date=formatdate(second, usegmt=True), connection="" if stays_open else _CLOSE
    ).encode("ascii")

"""How much of a peer's HTTP is read at all, because the peer is not trusted.

aiohttp bounds a header, and the number of headers, but not how much may come before the response: "102 Processing" without
end takes all of the event loop until the call times out, and sixty peers that do so together keep everybody waiting for 15 s.
"""

import asyncio
import functools
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

_MAX_BYTES: Final = 64 * 1024
"""Of a whole response: headers, and an answer of 16 KiB however it is cut into chunks."""
_MAX_HEADS: Final = 8
"""Of the response, and of those that only announce one."""
_PARSE_CHUNK_BYTES: Final = 1024
"""Bytes that are parsed before the bounds are looked at again: up to 40 heads."""


class BoundedConnector(aiohttp.TCPConnector):
    """Makes connections of which each serves one call, within the bounds."""

    def __init__(self) -> None:
        # Without closing each connection, a poll on one that the workload had just closed would look like a lost hint.
        super().__init__(limit=0, force_close=True)
        # Nothing public says which protocol to use; a test notices where this name no longer does.
        self._factory = functools.partial(_make_handler, loop=self._loop)


class _BoundedHandler(ResponseHandler):
    """Reads no more once a bound is reached: what was read is answered, the rest is waited for until the call's time is over."""

    _bytes_left = _MAX_BYTES
    _heads_left = _MAX_HEADS

    def data_received(self, data: bytes) -> None:
        """Take in what the peer sends."""
        for start in range(0, len(data), _PARSE_CHUNK_BYTES):
            if self._bytes_left <= 0 or self._heads_left <= 0:
                self._stop_reading()
                return
            piece = data[start : start + _PARSE_CHUNK_BYTES]
            self._bytes_left -= len(piece)
            super().data_received(piece)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take in one head, with what will be its body."""
        self._heads_left -= 1
        super().feed_data(data, size)

    def _stop_reading(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()


def _make_handler(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _BoundedHandler(loop)

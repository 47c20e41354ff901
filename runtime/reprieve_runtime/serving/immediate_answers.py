"""Answers to requests that are known at once, given while the request is received.

For each request, aiohttp wakes a task, starts another one, and makes a request, a writer and a
response. For a review whose answer is remembered, that is a third of all its time. A request that
has come whole, on a connection that waits for one, is therefore offered to a function first; all
others, and those that it does not answer, take aiohttp's way.
"""

from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.web_protocol import RequestHandler

AnswerNow = Callable[[RawRequestMessage, bytes], bytes | None]
"""Returns the whole response to a request and its body, which keeps the connection open; `None` if
it has to be awaited. Must not raise."""
_Parsed = tuple[Sequence[tuple[RawRequestMessage, StreamReader]], bool, bytes]
_USED = frozenset({"_loop", "_messages", "_next_keepalive_close_time", "_parser", "_waiter"})
"""What aiohttp does not promise to keep."""


def are_supported() -> bool:
    """Return whether this version of aiohttp is built as those known here."""
    slots = {*RequestHandler.__slots__, *BaseProtocol.__slots__}
    return slots >= _USED and hasattr(HttpRequestParser, "message_consumed")


class ImmediateAnswers:
    """Stands before the parser of one connection, and has its methods."""

    def __init__(
        self,
        handler: RequestHandler,
        answer_now: AnswerNow,
        note_use: Callable[[RequestHandler], None],
        now: Callable[[], float],
    ) -> None:
        self._handler, self._answer_now, self._note_use = handler, answer_now, note_use
        self._now, self._idle_seconds = now, handler.keepalive_timeout
        self._parser: Any = handler._parser  # noqa: SLF001

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> _Parsed:
        """Return the requests that are still to be answered."""
        parsed: _Parsed = self._parser.feed_data(data)
        messages, is_upgraded, tail = parsed
        if len(messages) != 1 or is_upgraded or not self._is_waiting():
            return parsed
        message, content = messages[0]
        if message.should_close or not content.is_eof():
            return parsed
        body = content.read_nowait()
        response = self._answer_now(message, body)
        if response is None:
            return [(message, _unread(self._handler, body))], False, tail
        self._send(response)
        return (), False, tail

    def _is_waiting(self) -> bool:
        """Return whether all earlier requests on this connection are answered, and read."""
        handler = self._handler
        waiter = handler._waiter  # noqa: SLF001
        return (
            waiter is not None
            and not waiter.done()
            and not handler._messages  # noqa: SLF001
            and not handler.writing_paused
        )

    def _send(self, response: bytes) -> None:
        handler = self._handler
        assert handler.transport is not None
        self._parser.message_consumed()
        handler.transport.write(response)
        handler._next_keepalive_close_time = self._now() + self._idle_seconds  # noqa: SLF001
        self._note_use(handler)


def _unread(handler: RequestHandler, body: bytes) -> StreamReader:
    content = StreamReader(handler, max(1, len(body)), loop=handler._loop)  # noqa: SLF001
    content.feed_data(body)
    content.feed_eof()
    return content

"""Answers to requests that are known at once, given while the request is received.

For each request, aiohttp wakes a task, starts another one, and makes a request, a writer and a
response. For a review whose answer is remembered, that is a third of all its time. A request that
has come whole, on a connection that waits for one, is therefore offered to a function first; all
others, and those that it does not answer, take aiohttp's way.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import StreamReader, web_protocol
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.web_protocol import RequestHandler

_LOG = logging.getLogger(__name__)

AnswerNow = Callable[[RawRequestMessage, bytes], bytes | None]
"""Returns the whole response to a request and its body, which keeps the connection open; `None` if
it has to be awaited. Must not raise."""
_Parsed = tuple[Sequence[tuple[RawRequestMessage, StreamReader]], bool, bytes]
_PRIVATE_NAMES = {
    RequestHandler: ("_messages", "_next_keepalive_close_time", "_waiter"),
    BaseProtocol: ("_loop", "_parser", "_reading_paused"),
    StreamReader: ("_buffer",),
}
"""Attributes of aiohttp that are not its public interface."""


def are_supported() -> bool:
    """Return whether this version of aiohttp has all that is used here, and log if it has not.

    A parser that holds back a request while one is under way would not be asked for it.
    """
    is_supported = (
        all(set(names) <= set(getattr(of, "__slots__", ())) for of, names in _PRIVATE_NAMES.items())
        and hasattr(HttpRequestParser, "message_consumed")
        and getattr(web_protocol, "MAX_MSG_QUEUE_SIZE", 0) > 1
    )
    if not is_supported:
        _LOG.warning("this version of aiohttp is not known: remembered answers take longer")
    return is_supported


class ImmediateAnswers:
    """Wraps the parser of one connection: aiohttp calls `feed_data` here; all else goes through."""

    __slots__ = ("_answer_now", "_handler", "_note_use", "_parser")

    def __init__(
        self,
        handler: RequestHandler,
        answer_now: AnswerNow,
        note_use: Callable[[RequestHandler], None],
    ) -> None:
        self._handler, self._answer_now, self._note_use = handler, answer_now, note_use
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
        # A request without a body has a reader without a buffer.
        response = self._answer_now(message, b"".join(getattr(content, "_buffer", ())))
        if response is None:
            return parsed
        self._send(response)
        return (), False, tail

    def _is_waiting(self) -> bool:
        """Return whether the connection waits for a request, and holds nothing back."""
        handler = self._handler
        waiter = handler._waiter  # noqa: SLF001
        return (
            waiter is not None
            and not waiter.done()
            and not handler._messages  # noqa: SLF001
            and not handler._reading_paused  # noqa: SLF001
            and not handler.writing_paused
        )

    def _send(self, response: bytes) -> None:
        handler = self._handler
        assert handler.transport is not None
        self._parser.message_consumed()
        handler.transport.write(response)
        until = handler._loop.time() + handler.keepalive_timeout  # noqa: SLF001
        handler._next_keepalive_close_time = until  # noqa: SLF001
        self._note_use(handler)

"""Questions and answers between two processes of this program, over a pair of sockets.

Either end may ask. A message has the length of its MessagePack in four bytes before it.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

import msgspec

_LOG = logging.getLogger(__name__)
_LENGTH_BYTES = 4

Answers = Mapping[str, Callable[[], Awaitable[Any]]]
"""What answers each question."""


class _Message(msgspec.Struct):
    number: int
    """Of the question: each end counts its own."""
    question: str = ""
    """Empty in an answer."""
    value: Any = None


class Channel:
    """One end."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers
    ) -> None:
        self._reader, self._writer, self._answers = reader, writer, answers
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.is_closed = False

    @classmethod
    async def open(cls, connection: socket.socket, answers: Answers) -> "Channel":
        """Return the end of this socket; the other one gets no answer before `run`."""
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        return cls(reader, writer, answers)

    async def run(self) -> None:
        """Answer and receive answers until the other end is closed, as by the end of its process.

        Cancel it to close this end.
        """
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES))
                self._take(
                    msgspec.msgpack.decode(await self._reader.readexactly(length), type=_Message)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.is_closed = True
            for asked in self._asked.values():
                asked.cancel()
            for task in self._answering:
                task.cancel()
            self._writer.close()

    async def ask(self, question: str, *, timeout_seconds: float | None = None) -> Any:
        """Return the answer.

        Raises `TimeoutError` if none comes in time, and `ConnectionError` if the other end is
        closed; both are an `OSError`.
        """
        if self.is_closed:
            raise ConnectionResetError
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._send(_Message(number, question))
            async with asyncio.timeout(timeout_seconds):
                await asyncio.wait((answer,))
        finally:
            del self._asked[number]
        if answer.cancelled():
            raise ConnectionResetError
        return answer.result()

    def _take(self, message: _Message) -> None:
        if message.question:
            task = asyncio.create_task(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif (asked := self._asked.get(message.number)) is not None and not asked.done():
            asked.set_result(message.value)

    async def _answer(self, message: _Message) -> None:
        try:
            value = await self._answers[message.question]()
        except Exception:  # noqa: BLE001 - our own fault, after which others are still answered
            _LOG.exception("no answer to another worker", extra={"question": message.question})
            return
        self._send(_Message(message.number, value=value))

    def _send(self, message: _Message) -> None:
        if not self.is_closed:
            encoded = msgspec.msgpack.encode(message)
            self._writer.write(len(encoded).to_bytes(_LENGTH_BYTES) + encoded)

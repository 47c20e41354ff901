"""One run: workers that send cases, hostile clients beside them, and the first finding."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from . import bodies, corpus, framing, hostile_clients, oracle
from .connection import Connection, NoAnswer, Target, connect
from .framing import Exchange
from .oracle import Oracle

WORKERS = 8
ANSWER_SECONDS = 20.0
"""The bound of every answer: 10 MB need most of a second, and several on a busy machine."""
READ_TIMEOUT_SECONDS = 3.0
"""The server's limit for receiving a review.

Shorter than the default, so that slow clients are quick.
"""
_ATTEMPTS = 3
"""For a connection.

On a busy machine, this program may need longer for a handshake than the server allows.
"""
INTRUDERS_SHARE = 1 / 250
_PIPELINED = 4


class Finding(Exception):  # noqa: N818 - what was looked for, not a fault of this program
    """Something that must not happen; `sent` holds what was sent."""

    def __init__(self, number: int, what: str, sent: bytes = b"") -> None:
        super().__init__(what)
        self.number, self.sent = number, sent


@dataclass
class Counts:
    """What has happened so far."""

    statuses: Counter[int] = field(default_factory=Counter)
    hostile_clients: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0

    @property
    def reviews(self) -> int:
        """The number of answered reviews."""
        return self.statuses.total()


@dataclass
class Campaign:
    """One run: its seed, its target, and its end."""

    seed: int
    target: Target
    oracle: Oracle
    is_over: Callable[[Counts], bool]
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._recorded = corpus.load()
        self._numbers = itertools.count()

    async def run(self, on_progress: Callable[[Counts], None]) -> None:
        """Send until the run is over; raises the first `Finding`."""
        async with _first_finding(), self.oracle.watching(), asyncio.TaskGroup() as self._tasks:
            running = [self._tasks.create_task(self._work()) for _ in range(WORKERS)]
            while not all(worker.done() for worker in running):
                on_progress(self.counts)
                await asyncio.wait(running, timeout=0.2)

    async def send(self, number: int) -> None:
        """Send one case alone, by its number."""
        async with _first_finding(), self.oracle.watching(), asyncio.TaskGroup() as self._tasks:
            connection = await self._one(number, None)
            if connection is not None:
                connection.abort()

    async def _work(self) -> None:
        connection: Connection | None = None
        try:
            while not self.is_over(self.counts):
                connection = await self._one(next(self._numbers), connection)
        finally:
            if connection is not None:
                connection.abort()

    async def _one(self, number: int, connection: Connection | None) -> Connection | None:
        rng = Random(f"{self.seed}/{number}")  # noqa: S311 - to be repeated, not to be secret
        if rng.random() < INTRUDERS_SHARE:
            self._tasks.create_task(self._visit(number))
        exchange = await self._exchange(rng, number)
        # Before the handshake: where this program is slow in it, the server may give up after the
        # client's part of it has ended, and the first answer is missing.
        started = time.monotonic()
        connection = connection or await self._connect(number)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._talk(number, exchange, connection)
        except TimeoutError:
            raise Finding(
                number,
                f"{exchange.description}: no answer within {ANSWER_SECONDS:g} s",
                _sent(exchange),
            ) from None
        except NoAnswer as error:
            # On a busy machine, this program is a slow client: it still sends when the server gives
            # up, and so loses the answer.
            if time.monotonic() - started < READ_TIMEOUT_SECONDS:
                before = connection.last_number
                where = "a new connection" if before is None else f"the connection of {before}"
                raise Finding(
                    number, f"{exchange.description}: {error} on {where}", _sent(exchange)
                ) from error
            connection.abort()
            return None
        connection.last_number = number
        if exchange.keeps_connection and not connection.is_ending:
            return connection
        connection.abort()
        return None

    async def _exchange(self, rng: Random, number: int) -> Exchange:
        path = rng.choice((oracle.VALIDATE, oracle.VALIDATE, oracle.MUTATE))
        made = [bodies.make(rng, self._recorded, f"{self.seed}-{number}")]
        if len(made[0].content) < bodies.MEBIBYTE:
            more = (
                bodies.make(rng, self._recorded, f"{self.seed}-{number}-{n}")
                for n in range(1, _PIPELINED)
            )
            made += (
                [body for body in more if len(body.content) < bodies.MEBIBYTE]
                if rng.random() < 0.1
                else []
            )
        try:
            return await framing.make(rng, path, made, self.oracle)
        except Exception as error:
            sent = b"\n".join(body.content for body in made)
            raise Finding(number, f"reading or evaluating it raises {error!r}", sent) from error

    async def _talk(self, number: int, exchange: Exchange, connection: Connection) -> None:
        started = time.monotonic()
        writing = asyncio.ensure_future(connection.write(exchange.pieces, exchange.pause_seconds))
        try:
            for turn, expected in enumerate(exchange.expected):
                status, body = await connection.read_answer()
                complaint = expected.complaint(status, body)
                if complaint is None and status == oracle.OK and exchange.bodies:
                    complaint = oracle.check_form(exchange.bodies[turn], body)
                if complaint is not None:
                    raise Finding(number, f"{exchange.description}: {complaint}", _sent(exchange))
                self.counts.statuses[status] += 1
        finally:
            writing.cancel()
        self.counts.slowest_seconds = max(self.counts.slowest_seconds, time.monotonic() - started)

    async def _connect(self, number: int) -> Connection:
        error: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await connect(self.target)
            except (OSError, TimeoutError) as failed:
                error = failed
        raise Finding(number, f"no connection: {error!r}") from error

    async def _visit(self, number: int) -> None:
        rng = Random(f"{self.seed}/{number}/intruder")  # noqa: S311
        hostile_client = rng.choice(hostile_clients.ALL)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status = await hostile_client(rng, self.target)
        except (AssertionError, NoAnswer, OSError, TimeoutError) as error:
            raise Finding(
                number, f"{hostile_client.__name__.replace('_', ' ')}: {error!r}"
            ) from error
        self.counts.hostile_clients[hostile_client.__name__] += 1
        if status is not None:
            self.counts.statuses[status] += 1


@asynccontextmanager
async def _first_finding() -> AsyncIterator[None]:
    """Raise the first `Finding` of a group alone: the others happened at the same moment."""
    try:
        yield
    except BaseExceptionGroup as group:
        found = group.subgroup(Finding)
        if found is None:
            raise
        raise next(error for error in found.exceptions if isinstance(error, Finding)) from None


def _sent(exchange: Exchange) -> bytes:
    return b"".join(exchange.pieces)

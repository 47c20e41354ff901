"""The run itself: workers that send one case after the other, intruders beside them, and the first thing that is wrong."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from . import bodies, corpus, framing, intruders, oracle
from .connection import Connection, NoAnswer, Target, connect
from .framing import Exchange
from .oracle import Oracle

WORKERS = 8
ANSWER_SECONDS = 20.0
"""The bound of every answer; 10 MB need most of a second, and on a machine that is busy with other things several."""
READ_TIMEOUT_SECONDS = 3.0
"""What the server gives a client to send its review. Shorter than the default, so that slow clients cost the run less."""
_ATTEMPTS = 3
"""At a connection: on such a machine this program itself may take longer for a handshake than the server waits."""
INTRUDERS_SHARE = 1 / 250
_PIPELINED = 4


class Wrong(Exception):  # noqa: N818 - what was looked for, not a fault of this program
    """Something that must not be; what was sent is in `sent`."""

    def __init__(self, number: int, what: str, sent: bytes = b"") -> None:
        super().__init__(what)
        self.number, self.sent = number, sent


@dataclass
class Tally:
    """What has happened so far."""

    statuses: Counter[int] = field(default_factory=Counter)
    intruders: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0

    @property
    def reviews(self) -> int:
        """How many were answered."""
        return self.statuses.total()


@dataclass
class Campaign:
    """One run: its seed, where it goes, and when it is over."""

    seed: int
    target: Target
    judge: Oracle
    is_over: Callable[[Tally], bool]
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._recorded = corpus.load()
        self._numbers = itertools.count()

    async def run(self, on_progress: Callable[[Tally], None]) -> None:
        """Send until it is over; raises `Wrong` at the first thing that is."""
        async with _first_wrong(), self.judge.watching(), asyncio.TaskGroup() as self._tasks:
            running = [self._tasks.create_task(self._work()) for _ in range(WORKERS)]
            while not all(worker.done() for worker in running):
                on_progress(self.tally)
                await asyncio.wait(running, timeout=0.2)

    async def send(self, number: int) -> None:
        """Send one case by itself, by its number."""
        async with _first_wrong(), self.judge.watching(), asyncio.TaskGroup() as self._tasks:
            connection = await self._one(number, None)
            if connection is not None:
                connection.abort()

    async def _work(self) -> None:
        connection: Connection | None = None
        try:
            while not self.is_over(self.tally):
                connection = await self._one(next(self._numbers), connection)
        finally:
            if connection is not None:
                connection.abort()

    async def _one(self, number: int, connection: Connection | None) -> Connection | None:
        rng = Random(f"{self.seed}/{number}")  # noqa: S311 - to be repeated, not to be secret
        if rng.random() < INTRUDERS_SHARE:
            self._tasks.create_task(self._visit(number))
        exchange = await self._exchange(rng, number)
        connection = connection or await self._connect(number)
        started = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._talk(number, exchange, connection)
        except TimeoutError:
            raise Wrong(
                number, f"{exchange.story}: no answer within {ANSWER_SECONDS:g} s", _sent(exchange)
            ) from None
        except NoAnswer as error:
            # On a busy machine this program is a slow client, which still sends when it is told so: that undoes the answer.
            if not exchange.is_patient or time.monotonic() - started < READ_TIMEOUT_SECONDS:
                raise Wrong(number, f"{exchange.story}: {error}", _sent(exchange)) from error
        if exchange.keeps_connection:
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
            return await framing.make(rng, path, made, self.judge)
        except Exception as error:
            sent = b"\n".join(body.content for body in made)
            raise Wrong(number, f"reading or judging it raises {error!r}", sent) from error

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
                    raise Wrong(number, f"{exchange.story}: {complaint}", _sent(exchange))
                self.tally.statuses[status] += 1
        finally:
            writing.cancel()
        self.tally.slowest_seconds = max(self.tally.slowest_seconds, time.monotonic() - started)

    async def _connect(self, number: int) -> Connection:
        error: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await connect(self.target)
            except (OSError, TimeoutError) as failed:
                error = failed
        raise Wrong(number, f"no connection: {error!r}") from error

    async def _visit(self, number: int) -> None:
        rng = Random(f"{self.seed}/{number}/intruder")  # noqa: S311
        intruder = rng.choice(intruders.ALL)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status = await intruder(rng, self.target)
        except (AssertionError, NoAnswer, OSError, TimeoutError) as error:
            raise Wrong(number, f"{intruder.__name__.replace('_', ' ')}: {error!r}") from error
        self.tally.intruders[intruder.__name__] += 1
        if status is not None:
            self.tally.statuses[status] += 1


@asynccontextmanager
async def _first_wrong() -> AsyncIterator[None]:
    """Raise the first `Wrong` of a group by itself: the others are of the same moment."""
    try:
        yield
    except BaseExceptionGroup as group:
        found = group.subgroup(Wrong)
        if found is None:
            raise
        raise next(error for error in found.exceptions if isinstance(error, Wrong)) from None


def _sent(exchange: Exchange) -> bytes:
    return b"".join(exchange.pieces)

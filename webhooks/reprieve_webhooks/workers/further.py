"""Starts the further workers, starts those again that end, and asks all of them."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec

from reprieve_runtime.backoff import Backoff
from reprieve_runtime.waiting import wait_at_most

from .channel import Answers, Channel
from .summed_metrics import Family, summed

_LOG = logging.getLogger(__name__)

ANSWER_SECONDS = 0.5
"""For a worker to answer: less than the second that a kubelet gives a probe."""
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.2, 30.0
_LASTING_SECONDS = 60.0
"""A worker that ran for as long is started again without a longer delay than the first."""
_ENDING_SECONDS = 10.0
"""From the end of the drain to the end of a worker: its last responses take up to 7 s."""


class FurtherWorker:
    """One further worker: its process, if it runs now, and what is kept when it ends."""

    def __init__(self, number: int, command: Sequence[str], answers: Answers) -> None:
        """`number`: the first worker is 1."""
        self.number = number
        self._command, self._answers = command, answers
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._has_answered = False
        self._shown: Sequence[Family] = ()
        """The metrics of this process when they were read last."""
        self._past: Sequence[Family] = ()
        """What earlier processes have counted. Without this, a counter that becomes less would look
        as if it had begun anew, and all that the other workers have counted like new events."""

    @property
    def name(self) -> str:
        """What probes and logs call it."""
        return f"worker {self.number}"

    async def run(self) -> int:
        """Run the process until it ends; return its exit status. Raises `OSError`."""
        own, its = socket.socketpair()
        try:
            with its:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, str(self.number), stdin=its.fileno()
                )
            self._channel = await Channel.open(own, self._answers)
            await self._channel.run()
            return await self._process.wait()
        finally:
            own.close()
            self._channel = self._process = None
            self._has_answered = False
            self._past = summed([*self._past, *(each for each in self._shown if each.is_counted)])
            self._shown = ()

    def terminate(self) -> None:
        """Have the process drain and end, or end now if it drains already."""
        self._signal(asyncio.subprocess.Process.terminate)

    def kill(self) -> None:
        """End the process at once."""
        self._signal(asyncio.subprocess.Process.kill)

    async def missing(self) -> Sequence[str]:
        """Return what is missing until it answers reviews correctly; empty once it does."""
        try:
            found: Sequence[str] = await self._ask("missing")
        except OSError:
            return (self.name,)
        return [f"{self.name}: {missing}" for missing in found]

    async def is_silent(self) -> bool:
        """Return whether it no longer answers, though its process runs."""
        try:
            await self._ask("missing")
        except TimeoutError:
            # Without this, a worker that has just been started would count as one that hangs.
            return self._has_answered
        except ConnectionError:
            pass
        return False

    async def metrics(self) -> Sequence[Family]:
        """Return its metrics, or those that it had last."""
        channel = self._channel
        with contextlib.suppress(OSError):
            shown = msgspec.convert(await self._ask("metrics"), Sequence[Family])
            if channel is self._channel:
                self._shown = shown
        return [*self._past, *self._shown]

    async def _ask(self, question: str) -> Any:
        if self._channel is None:
            raise ConnectionResetError
        answer = await self._channel.ask(question, timeout_seconds=ANSWER_SECONDS)
        self._has_answered = True
        return answer

    def _signal(self, send: Callable[[asyncio.subprocess.Process], None]) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                send(self._process)


class FurtherWorkers:
    """All further workers."""

    def __init__(
        self,
        count: int,
        command: Sequence[str],
        *,
        settings: Any,
        first_missing: Callable[[], Sequence[str]],
    ) -> None:
        """`command` gets the number of the worker as its last word, and asks for `settings`.

        `first_missing` returns what the first worker lacks.
        """
        self._settings, self._first_missing = settings, first_missing
        answers = {
            "settings": self._tell_settings,
            "missing": self._missing_of_all,
            "silent": self.silent,
        }
        self._workers = [FurtherWorker(2 + index, command, answers) for index in range(count)]
        self._is_ending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start all, and those again that end, until `terminate`."""
        self._tasks = [tasks.create_task(self._keep(worker)) for worker in self._workers]

    async def missing(self) -> Sequence[str]:
        """Return what is missing until all answer reviews correctly."""
        found = await asyncio.gather(*(worker.missing() for worker in self._workers))
        return tuple(chain.from_iterable(found))

    async def silent(self) -> Sequence[str]:
        """Return the names of those that run and do not answer."""
        found = await asyncio.gather(*(worker.is_silent() for worker in self._workers))
        return [
            each.name for each, is_silent in zip(self._workers, found, strict=True) if is_silent
        ]

    async def metrics(self) -> Sequence[Family]:
        """Return the metrics of all."""
        found = await asyncio.gather(*(worker.metrics() for worker in self._workers))
        return tuple(chain.from_iterable(found))

    def terminate(self) -> None:
        """Have all drain and end; a second call does not wait for their drain."""
        self._is_ending.set()
        for worker in self._workers:
            worker.terminate()

    async def end(self) -> None:
        """Wait until all that drain have ended, and end at once those that take too long."""
        self.terminate()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_ENDING_SECONDS)
            for worker in self._workers if late else ():
                worker.kill()
            await asyncio.wait(self._tasks)

    async def _tell_settings(self) -> Any:
        return self._settings

    async def _missing_of_all(self) -> Sequence[str]:
        return (*self._first_missing(), *await self.missing())

    async def _keep(self, worker: FurtherWorker) -> None:
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        while not self._is_ending.is_set():
            started = time.monotonic()
            extra: dict[str, object] = {"worker": worker.number}
            try:
                extra["exit_status"] = await worker.run()
            except OSError as error:
                extra["error"] = str(error)
            if self._is_ending.is_set():
                return
            if time.monotonic() - started > _LASTING_SECONDS:
                backoff.reset()
            extra["retry_seconds"] = delay = backoff.next_delay()
            _LOG.warning("a worker ended; starting it again", extra=extra)
            await wait_at_most(self._is_ending, delay)

"""The program of a further worker, which `reprieve-webhooks --workers` starts.

It opens the shared port only once its first answer is correct. The first worker is at the other end
of its standard input; where that one has ended, this one ends too.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence

import uvloop

from reprieve_runtime import logs
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.serving.bounded_server import OpenPort
from reprieve_runtime.serving.memory import return_freed_buffers

from .main import PROGRAM, Program, drain, serving_names, stop_signal, until_ready
from .settings import Settings, from_message
from .workers.channel import Channel
from .workers.first import FirstWorker
from .workers.summed_metrics import Family, families_of

_LOG = logging.getLogger("reprieve_webhooks.worker")
"""`__name__` is `__main__` here."""


def main() -> None:
    """Run until SIGTERM, or until the first worker has ended; the argument is its number."""
    # A terminal sends SIGINT to all processes. The first worker then sends SIGTERM to the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return_freed_buffers()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_Worker(int(sys.argv[1])).run())
    except (ApiError, OSError) as error:
        _LOG.critical("cannot run", extra={"error": str(error)})
        raise SystemExit(1) from error


class _Worker:
    """The parts of a program that is started from the first worker's settings."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._program: Program | None = None
        self._port: OpenPort | None = None

    async def run(self) -> None:
        """Answer reviews once ready, and drain after SIGTERM."""
        stopped = stop_signal(signal.SIGTERM)
        channel = await Channel.open(
            socket.socket(fileno=os.dup(sys.stdin.fileno())),
            {"missing": self._missing, "metrics": self._metrics},
        )
        answering = asyncio.create_task(channel.run())
        answering.add_done_callback(lambda _: stopped.set())
        try:
            settings = from_message(await channel.ask("settings"))
        except ConnectionError:  # the first worker has ended
            return
        logs.configure(settings.log_format, settings.log_level, worker=self._number)
        await self._serve(settings, channel, stopped)
        answering.cancel()

    async def _serve(self, settings: Settings, channel: Channel, stopped: asyncio.Event) -> None:
        api = await Api.connect(settings.kubeconfig, user_agent=PROGRAM)
        try:
            program = self._program = Program(settings, serving_names(settings), api)
            program.webhooks.others = FirstWorker(channel)
            async with asyncio.TaskGroup() as tasks:
                background = [
                    *map(tasks.create_task, program.background_tasks(settings)),
                    tasks.create_task(self._listen_when_ready(settings, program)),
                ]
                await stopped.wait()
                if self._port is not None:
                    if not channel.is_closed:
                        await drain(program.webhooks, stopped, settings.drain_seconds)
                    await self._port.close()
                for task in background:
                    task.cancel()
        finally:
            await api.close()

    async def _listen_when_ready(self, settings: Settings, program: Program) -> None:
        await until_ready(program)
        self._port = await program.listen(settings)
        _LOG.info("ready")

    async def _missing(self) -> Sequence[str]:
        """Tell what is missing until this worker answers reviews correctly."""
        if self._program is None or self._port is None:
            return ("start",)
        return ("draining",) if self._program.webhooks.is_draining else self._program.missing()

    async def _metrics(self) -> Sequence[Family]:
        """Tell the metrics, but not those of a worker that does not answer reviews yet."""
        if self._program is None or self._port is None:
            return ()
        return families_of(self._program.metrics.registry)


if __name__ == "__main__":
    main()

"""Workers that cannot be started, and workers that do not end."""

import asyncio
import logging
import signal
from pathlib import Path

import pytest

from reprieve_testing.servers.stub_api import until
from reprieve_webhooks.workers import further
from reprieve_webhooks.workers.further import FurtherWorker, FurtherWorkers

DEAF = "trap '' TERM; exec sleep 600"
"""A program that ignores SIGTERM, also after `exec`."""


def workers_of(*command: str, count: int = 1) -> FurtherWorkers:
    return FurtherWorkers(count, command, settings={}, first_missing=lambda: ("certificates",))


def is_deaf(worker: FurtherWorker) -> bool:
    """Return whether the process runs and ignores SIGTERM already."""
    if worker._process is None:
        return False
    status = Path(f"/proc/{worker._process.pid}/status").read_text(encoding="ascii")
    (ignored,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored, 16) & 1 << (signal.SIGTERM - 1))


async def test_a_worker_that_cannot_be_started_is_tried_again_ever_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(further, "_FIRST_RETRY_SECONDS", 0.001)
    workers = workers_of("/no/such/program")
    async with asyncio.TaskGroup() as tasks:
        workers.start(tasks)
        await until(lambda: len(caplog.records) >= 4)
        assert await workers.missing() == ("worker 2",)
        assert await workers.silent() == []
        assert await workers.metrics() == ()
        await workers.end()
    lines = [vars(record) for record in caplog.records[:4]]
    assert {line["message"] for line in lines} == {"a worker ended; starting it again"}
    assert {line["worker"] for line in lines} == {2}
    assert all("/no/such/program" in line["error"] for line in lines)
    # Each delay is drawn from the upper half of one that doubles.
    assert lines[3]["retry_seconds"] > 2 * lines[0]["retry_seconds"]


async def test_a_worker_that_never_answers_counts_as_starting_and_is_killed_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(further, "_ENDING_SECONDS", 0.1)
    monkeypatch.setattr(further, "ANSWER_SECONDS", 0.01)
    workers = workers_of("/bin/sh", "-c", DEAF)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        workers.start(tasks)
        await until(lambda: is_deaf(workers._workers[0]))
        assert await workers.missing() == ("worker 2",)
        # Without this, a liveness probe would fail while a worker starts.
        assert await workers.silent() == []
        await workers.end()
        assert workers._workers[0]._process is None


async def test_without_further_workers_none_is_missing_and_nothing_is_waited_for() -> None:
    workers = workers_of("/no/such/program", count=0)
    async with asyncio.TaskGroup() as tasks:
        workers.start(tasks)
        assert await workers.missing() == ()
        assert await workers.silent() == []
        await workers.end()

"""`reprieve-webhooks --workers 2`: two processes that answer, count and end as one program."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reprieve_testing.servers.reviews import a_pod, a_review
from reprieve_testing.servers.stub_api import StubApi, stub_api, until
from reprieve_testing.servers.webhook_program import (
    DEADLINE_SECONDS,
    RunningWebhooks,
    any_certificate,
    running_webhooks,
    write_certificate,
)

pytestmark = pytest.mark.heavy  # several processes of the program in each test

CONNECTIONS = 24
"""The system chooses a worker for each. That it chooses the same one for all happens once in eight
million runs, and all but one hardly more often."""


@dataclass
class Connection:
    """A kept connection to one of the workers."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        self.writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        async with asyncio.timeout(DEADLINE_SECONDS):
            status, *fields = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            (length,) = (each[15:] for each in fields if each.lower().startswith("content-length:"))
            return int(status.split()[1]), await self.reader.readexactly(int(length))

    async def get(self, path: str) -> tuple[int, str]:
        status, body = await self.ask("GET", path)
        return status, body.decode()

    async def review(self) -> bool:
        """Return whether a pod without a fault is allowed."""
        status, answer = await self.ask("POST", "/validate", json.dumps(a_review(a_pod())).encode())
        assert status == 200
        return bool(json.loads(answer)["response"]["allowed"])


@asynccontextmanager
async def starting_workers(
    directory: Path, *flags: str
) -> AsyncIterator[tuple[StubApi, RunningWebhooks]]:
    """Run two workers, which are not ready before the stub releases its lists."""
    write_certificate(directory)
    options = ("--workers", "2", "--cert-dir", str(directory), *flags)
    async with (
        stub_api(directory) as (stub, _),
        running_webhooks(directory, *options) as program,
    ):
        yield stub, program


@asynccontextmanager
async def two_workers(directory: Path, *flags: str) -> AsyncIterator[RunningWebhooks]:
    """Run two workers that are ready."""
    async with starting_workers(directory, *flags) as (stub, program):
        stub.lists_released.set()
        await until_answered(program, "/readyz")
        yield program


async def until_answered(program: RunningWebhooks | Connection, path: str) -> None:
    """Ask until the answer is 200: on a busy machine, a worker may be late to answer the other."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (await program.get(path))[0] != 200:  # noqa: ASYNC110 - it is in other processes
            await asyncio.sleep(0.05)


@asynccontextmanager
async def connections(
    program: RunningWebhooks,
) -> AsyncIterator[tuple[Sequence[Connection], Sequence[Connection]]]:
    """Open many connections; yield those to the first worker, and those to the second one."""
    port = urlsplit(program.url).port
    assert port is not None
    async with AsyncExitStack() as stack:
        opened = {}
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=any_certificate())
            stack.callback(writer.transport.abort)
            opened[writer.get_extra_info("sockname")[1]] = Connection(reader, writer)
        of_first, of_second = (
            [opened[number] for number in client_ports(pid, port) & opened.keys()]
            for pid in (program.process.pid, second_worker(program))
        )
        assert len(of_first) + len(of_second) == CONNECTIONS
        assert of_first
        assert of_second
        yield of_first, of_second


def client_ports(pid: int, port: int) -> set[int]:
    """Return the ports of the clients whose connections to `port` a process has."""
    folder = Path(f"/proc/{pid}/fd")
    own = {str(link.readlink()) for link in folder.iterdir()}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    return {
        int(remote.partition(":")[2], 16)
        for _, local, remote, *rest in lines
        if int(local.partition(":")[2], 16) == port and f"socket:[{rest[6]}]" in own
    }


def second_worker(program: RunningWebhooks) -> int:
    """Return the only child of the process."""
    pid = program.process.pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(child)


def runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def counted(program: RunningWebhooks) -> float:
    _, metrics = await program.get("/metrics")
    name = 'reprieve_admission_reviews_total{kind="Pod",outcome="allowed",webhook="validate"} '
    (line,) = (line for line in metrics.splitlines() if line.startswith(name))
    return float(line[len(name) :])


async def test_both_workers_answer_and_a_killed_one_comes_back_without_a_failure_of_the_other(
    tmp_path: Path,
) -> None:
    async with two_workers(tmp_path) as program:
        killed = second_worker(program)
        async with connections(program) as (of_first, of_second):
            assert all([await each.review() for each in (*of_first, *of_second)])
            assert await counted(program) == CONNECTIONS

            os.kill(killed, signal.SIGKILL)
            assert all([await each.review() for each in of_first])
        ended = await program.wait_for_log("a worker ended; starting it again")
        assert (ended["worker"], ended["exit_status"]) == (2, -signal.SIGKILL)
        # What the killed worker has counted still counts.
        assert await counted(program) == CONNECTIONS + len(of_first)

        await until_answered(program, "/readyz")
        assert second_worker(program) != killed
        async with connections(program) as (_, of_second):
            assert all([await each.review() for each in of_second])
        assert await counted(program) == CONNECTIONS + len(of_first) + len(of_second)


async def test_the_second_worker_opens_the_port_once_it_is_ready_and_readiness_waits_for_it(
    tmp_path: Path,
) -> None:
    async with starting_workers(tmp_path) as (stub, program):
        status, text = await program.get("/readyz")
        assert status == 503
        assert "namespaces" in text
        assert "worker 2" in text
        # Without this, a liveness probe would end the program while the API server is away.
        await until_answered(program, "/healthz")
        assert (await program.get("/readyz"))[0] == 503
        stub.lists_released.set()
        ready = [await program.wait_for_log("ready") for _ in range(2)]
        assert [each.get("worker") for each in ready].count(2) == 1
        await until_answered(program, "/readyz")


async def test_each_worker_reports_the_other_one_that_hangs(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as program, connections(program) as both:
        first, second = program.process.pid, second_worker(program)
        for asked, hanging, name in (
            (both[0][0], second, "worker 2"),
            (both[1][0], first, "worker 1"),
        ):
            os.kill(hanging, signal.SIGSTOP)
            assert await asked.get("/healthz") == (503, f"no answer from {name}\n")
            assert await asked.get("/readyz") == (503, f"not ready: {name}\n")
            os.kill(hanging, signal.SIGCONT)
            await until_answered(asked, "/healthz")


async def test_both_workers_drain_and_a_second_signal_ends_both(tmp_path: Path) -> None:
    async with two_workers(tmp_path, "--drain-seconds", "600") as program:
        second = second_worker(program)
        async with connections(program) as (of_first, of_second):
            program.process.send_signal(signal.SIGTERM)
            draining = [await program.wait_for_log("draining") for _ in range(2)]
            assert [each.get("worker") for each in draining].count(2) == 1
            for one in (of_first[0], of_second[0]):
                assert await one.get("/readyz") == (503, "not ready: draining\n")
            assert await of_second[1].review()
        program.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await program.process.wait() == 0
        assert not runs(second)


async def test_the_second_worker_ends_with_the_first_also_if_that_one_is_killed(
    tmp_path: Path,
) -> None:
    async with two_workers(tmp_path) as program:
        second = second_worker(program)
        program.process.kill()
        await until(lambda: not runs(second))

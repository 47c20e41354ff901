"""The measured servers as local processes: started on a core, observed, and ended."""

from __future__ import annotations

import http.client
import os
import platform
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from realcluster.binaries import pins
from realcluster.errors import ClusterError

READY_SECONDS = 30.0
STOP_SECONDS = 5.0
LOOPBACK = "127.0.0.1"
_OK, _NOT_FOUND = 200, 404


@dataclass(frozen=True)
class Command:
    """How to start a server, and the URL of its readiness (a 404 there also shows an open port)."""

    name: str
    port: int
    words: Sequence[str]
    ready_path: str = "/"
    address: str = LOOPBACK


@dataclass(frozen=True)
class Server:
    """A running server."""

    name: str
    port: int
    pid: int
    address: str = LOOPBACK

    def cpu_seconds(self) -> float:
        """Return the processor time of all its threads, and of its workers."""
        return sum(map(cpu_seconds, self._pids()))

    def cpu_nanoseconds(self) -> int:
        """Return the same, of the threads that still run, finely enough for one request."""
        return sum(
            int(path.read_text().split()[0])
            for path in Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        )

    def peak_mib(self) -> float:
        """Return the most resident memory that it had."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def rss_mib(self) -> float:
        """Return its resident memory, and that of its workers."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._pids())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def _pids(self) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]


def cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_address() -> str:
    """Return this machine's own address, or loopback if it has none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # An address for documentation: its route is the default one.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return LOOPBACK
        address: str = probe.getsockname()[0]
        return address


def two_cores() -> tuple[int, int]:
    """Return a core for the servers and another one for the load."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise ClusterError(
            "this machine has only one usable core: the server would share it with its load"
        )
    return cores[0], cores[-1]


@contextmanager
def pinned_to(core: int) -> Iterator[None]:
    """Run the block on one core; processes that it starts inherit this from the beginning."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running(
    command: Command,
    core: int | None,
    log: Path,
    trust: ssl.SSLContext,
    *,
    ready_seconds: float = READY_SECONDS,
) -> Iterator[Server]:
    """Start a server on `core`, or on any core, wait until it is ready, and end it after the block.

    Its output goes to `log`.
    """
    with log.open("wb") as output, nullcontext() if core is None else pinned_to(core):
        environment: Mapping[str, str] = (
            os.environ if core is None else {**os.environ, "GOMAXPROCS": "1"}
        )
        process = subprocess.Popen(
            command.words, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    try:
        _wait_ready(command, process, log, trust, ready_seconds)
        yield Server(command.name, command.port, process.pid, command.address)
    finally:
        _stop(process)


def _wait_ready(
    command: Command,
    process: subprocess.Popen[bytes],
    log: Path,
    trust: ssl.SSLContext,
    seconds: float,
) -> None:
    deadline = time.monotonic() + seconds
    while not _is_ready(command, trust):
        if process.poll() is not None or time.monotonic() > deadline:
            said = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise ClusterError(f"{said}\n{command.name} did not become ready")
        time.sleep(0.1)


def _is_ready(command: Command, trust: ssl.SSLContext) -> bool:
    connection = http.client.HTTPSConnection(
        command.address, command.port, timeout=2, context=trust
    )
    try:
        connection.request("GET", command.ready_path)
        return connection.getresponse().status in (_OK, _NOT_FOUND)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End it without waiting: a second SIGTERM interrupts its drain, and SIGKILL ends the rest."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS / 2)
        except subprocess.TimeoutExpired:
            continue
        return
    process.wait()


def read_machine() -> dict[str, object]:
    """Return what every benchmark reports about its machine and time."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load average before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "controller-runtime": pins.version(pins.BINARIES["bench-controller-runtime"]),
    }

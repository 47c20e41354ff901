"""Processes that outlive the command which started them, identified by pid *and* start time.

A pid alone is no identity: after a crash or a reboot, another program may have it, and `down` must
never end a foreign process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

TERM_SECONDS = 10.0  # between TERM and KILL: etcd and the API server need about one


@dataclass(frozen=True)
class Identity:
    """One process.

    The kernel never reuses a pid within a clock tick, so both together are unique.
    """

    pid: int
    started: int  # clock ticks after boot: field 22 of /proc/PID/stat
    boot: str

    def is_alive(self) -> bool:
        """Return whether this same process still runs."""
        return identify(self.pid) == self


def identify(pid: int) -> Identity | None:
    """Return the identity of `pid`, or None if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[
        2
    ].split()  # the name before ")" may contain any character
    return None if state in "ZX" else Identity(pid, int(fields[18]), boot)


def memory_mib(pid: int) -> int:
    """Return the resident memory of a process in MiB; 0 if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        return (
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            >> 20
        )
    return 0


class Processes:
    """A cluster's processes: `pids/NAME.json` has the identity, `logs/NAME.log` the output."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def log(self, name: str) -> Path:
        """Return the file with the component's output, over all its starts."""
        return self._home / "logs" / f"{name}.log"

    def names(self) -> list[str]:
        """Return the names of all that were started and not stopped, dead or alive."""
        return sorted(file.stem for file in (self._home / "pids").glob("*.json"))

    def running(self, name: str) -> Identity | None:
        """Return the live process of that name."""
        recorded = self._recorded(name)
        return recorded if recorded and recorded.is_alive() else None

    def start(
        self, name: str, command: Sequence[object], env: Mapping[str, str] | None = None
    ) -> Identity:
        """Start `command`, unless the name already runs, in a session that outlives this one."""
        if alive := self.running(name):
            return alive
        self.log(name).parent.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                env=env,
                start_new_session=True,
            )
        identity = self.adopt(name, child.pid)
        child.returncode = 0  # never waited for: without this, Python warns that it still runs
        return identity

    def adopt(self, name: str, pid: int) -> Identity:
        """Record a process that another program started, so that `down` ends it too."""
        # Already dead: this identity is never alive.
        identity = identify(pid) or Identity(pid, 0, "")
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(identity)))
        part.replace(file)
        return identity

    def stop(self, names: Iterable[str], *, kill: bool = False) -> None:
        """End these processes with TERM, later with KILL (at once if `kill`), and forget them."""
        wanted = list(names)
        alive = [identity for name in wanted if (identity := self.running(name))]
        self._signal(alive, signal.SIGKILL if kill else signal.SIGTERM)
        if left := _wait_until_gone(alive, TERM_SECONDS):
            self._signal(left, signal.SIGKILL)
            _wait_until_gone(left, TERM_SECONDS)
        for name in wanted:
            self._file(name).unlink(missing_ok=True)

    def last_lines(self, name: str, count: int = 15) -> str:
        """Return the end of a component's log, for the message about its failure."""
        with contextlib.suppress(OSError), self.log(name).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 16_384))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-count:])
        return ""

    @staticmethod
    def _signal(processes: Iterable[Identity], number: signal.Signals) -> None:
        for process in processes:
            if process.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def _recorded(self, name: str) -> Identity | None:
        try:
            return Identity(**json.loads(self._file(name).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _file(self, name: str) -> Path:
        return self._home / "pids" / f"{name}.json"


def _wait_until_gone(processes: Iterable[Identity], seconds: float) -> list[Identity]:
    """Return the processes that still run after `seconds`."""
    deadline = time.monotonic() + seconds
    left = [process for process in processes if process.is_alive()]
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [process for process in left if process.is_alive()]
    return left

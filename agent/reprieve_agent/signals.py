"""A signal to the first process of one container, in a pod whose containers share their process namespace.

That container is known by its volume: the agent's own is mounted into it, at the same place, and into no other. It shows in
`/proc/PID/mountinfo` for every process, readable by all, and needs neither a right nor the workload's help. Its first process is
the oldest whose parent is outside of the pod; a shell that somebody started there by `kubectl exec` is younger. Never PID 1 (the
pod's sandbox, which mounts nothing), never another container, and never a program that does not handle the signal: it would be
ended by it.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class UndeliverableError(Exception):
    """The signal was not sent; one sentence says why."""


class _Mount(NamedTuple):
    """A mount as `mountinfo` shows it (proc(5))."""

    id: str
    device: str
    root: str
    mount_point: str


class _Process(NamedTuple):
    pid: int
    parent: int
    started_at: int


class SignalSender:
    """Sends one signal to the container that mounts `folder` too."""

    def __init__(self, name: str, folder: str, proc: Path = Path("/proc")) -> None:
        self._number = signal.Signals[f"SIG{name}"]
        self._folder = folder
        self._proc = proc

    def send(self) -> int:
        """Send the signal; return the process that has it. `UndeliverableError` where it was certainly not sent."""
        found = self._find()
        try:
            descriptor = os.pidfd_open(found.pid)
        except OSError as error:
            raise UndeliverableError(
                f"process {found.pid} cannot be held: {error.strerror}"
            ) from error
        try:
            # From here on the number cannot be another process's; it may have become one's before.
            if self._process(found.pid) != found:
                raise UndeliverableError(f"process {found.pid} ended")
            self._require_handler(found.pid)
            signal.pidfd_send_signal(descriptor, self._number)
        except PermissionError as error:
            raise UndeliverableError(
                f"process {found.pid} is another user's than {os.getuid()}"
            ) from error
        except ProcessLookupError as error:
            raise UndeliverableError(f"process {found.pid} ended") from error
        finally:
            os.close(descriptor)
        return found.pid

    def _find(self) -> _Process:
        own = self._mount("self")
        if own is None:
            raise UndeliverableError(f"nothing is mounted at {self._folder}")
        containers: dict[str, list[_Process]] = {}
        for process in self._processes():
            mount = self._mount(process.pid)
            if (
                mount is not None
                and mount.id != own.id
                and (mount.device, mount.root) == (own.device, own.root)
            ):
                containers.setdefault(mount.id, []).append(process)
        if len(containers) != 1:
            count = "no" if not containers else "more than one"
            raise UndeliverableError(f"{count} container with the volume at {self._folder} runs")
        (processes,) = containers.values()
        return min(processes, key=lambda process: process.started_at)

    def _require_handler(self, pid: int) -> None:
        """A signal that is blocked is one that a program waits for."""
        lines = (self._proc / str(pid) / "status").read_text(errors="replace").splitlines()
        masks = dict(line.split(":", 1) for line in lines if line.startswith(("SigBlk", "SigCgt")))
        handled = int(masks["SigCgt"], 16) | int(masks["SigBlk"], 16)
        if not handled & 1 << (self._number - 1):
            raise UndeliverableError(f"process {pid} does not handle {self._number.name}")

    def _processes(self) -> Iterator[_Process]:
        """Yield those that were started from outside of the pod."""
        for entry in self._proc.iterdir():
            process = self._process(int(entry.name)) if entry.name.isdigit() else None
            if process is not None and process.parent == 0:
                yield process

    def _process(self, pid: int) -> _Process | None:
        try:
            text = (self._proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        # The program's name, in brackets, may hold anything.
        fields = text.rpartition(")")[2].split()
        return _Process(pid, int(fields[1]), int(fields[19]))

    def _mount(self, pid: int | str) -> _Mount | None:
        try:
            text = (self._proc / str(pid) / "mountinfo").read_text(errors="replace")
        except OSError:
            return None
        rows = (line.split(" ") for line in text.splitlines())
        mounts = [_Mount(row[0], row[2], row[3], row[4]) for row in rows if len(row) > 4]
        return next(
            (mount for mount in reversed(mounts) if mount.mount_point == self._folder), None
        )

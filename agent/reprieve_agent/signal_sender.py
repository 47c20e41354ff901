"""Sends a signal to the first process of one container, in a pod with a shared process namespace.

The container is identified by its volume: it mounts the agent's volume at the same path, and no
other container does. `/proc/PID/mountinfo` shows this for every process, is readable for all users,
and needs neither permissions nor the workload's help. The container's first process is the oldest
one whose parent is outside of the pod; a shell from `kubectl exec` is younger. The signal is never
sent to PID 1 (the pod's sandbox, which mounts nothing), to another container, or to a program that
does not handle it: that program would be ended.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class UndeliverableError(Exception):
    """The signal was not sent; the message tells why."""


class _Mount(NamedTuple):
    """A mount in `mountinfo` (see proc(5))."""

    id: str
    device: str
    root: str
    mount_point: str


class _Process(NamedTuple):
    pid: int
    parent: int
    started_at: int


class SignalSender:
    """Sends one signal to the container that also mounts `folder`."""

    def __init__(self, name: str, folder: str, proc: Path = Path("/proc")) -> None:
        self._number = signal.Signals[f"SIG{name}"]
        self._folder = folder
        self._proc = proc

    def send(self) -> int:
        """Send the signal; return the process id. `UndeliverableError` if it was not sent."""
        process = self._find()
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError as error:
            raise UndeliverableError(
                f"process {process.pid} cannot be opened: {error.strerror}"
            ) from error
        try:
            # From here on, the id cannot be reused; it may have been reused before.
            if self._process(process.pid) != process:
                raise UndeliverableError(f"process {process.pid} ended")
            self._require_handler(process.pid)
            signal.pidfd_send_signal(descriptor, self._number)
        except PermissionError as error:
            raise UndeliverableError(
                f"process {process.pid} belongs to another user than {os.getuid()}"
            ) from error
        except ProcessLookupError as error:
            raise UndeliverableError(f"process {process.pid} ended") from error
        finally:
            os.close(descriptor)
        return process.pid

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
            raise UndeliverableError(f"{count} running container has the volume at {self._folder}")
        (processes,) = containers.values()
        return min(processes, key=lambda process: process.started_at)

    def _require_handler(self, pid: int) -> None:
        """Raise if the process ignores the signal; a program may wait for a blocked signal."""
        lines = (self._proc / str(pid) / "status").read_text(errors="replace").splitlines()
        masks = dict(line.split(":", 1) for line in lines if line.startswith(("SigBlk", "SigCgt")))
        handled = int(masks["SigCgt"], 16) | int(masks["SigBlk"], 16)
        if not handled & 1 << (self._number - 1):
            raise UndeliverableError(f"process {pid} does not handle {self._number.name}")

    def _processes(self) -> Iterator[_Process]:
        """Yield the processes whose parent is outside of the pod."""
        for entry in self._proc.iterdir():
            process = self._process(int(entry.name)) if entry.name.isdigit() else None
            if process is not None and process.parent == 0:
                yield process

    def _process(self, pid: int) -> _Process | None:
        try:
            text = (self._proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        # The program's name, in brackets, may contain any characters.
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

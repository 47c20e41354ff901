"""A workload that is asked by a file, as a local process; the test is its agent."""

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from reprieve_testing import manifests


class HintedProgram:
    """A command in a folder of its own. Its output is in the file `log`.

    Args:
        folder: Where it runs; the request and its answer are there, too.
        command: The program and its arguments.
        seconds: How long the test waits for it.
    """

    def __init__(self, folder: Path, command: Sequence[str | Path], seconds: float = 60.0) -> None:
        self.request = folder / "request"
        self._log = folder / "log"
        self._seconds = seconds
        environment = {
            **os.environ,
            "PYTHONPATH": str(manifests.ROOT / "client"),
            "PYTHONUNBUFFERED": "1",
            "REPRIEVE_CHECKPOINT_HINT": self.request.as_uri(),
            "TEST_RUN": uuid.uuid4().hex,
        }
        self._mark = f"TEST_RUN={environment['TEST_RUN']}".encode()
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    def write_request(self, eviction_id: str, attempt: int = 1, **fields: object) -> None:
        """Ask, as the agent does."""
        document = {"version": 1, "id": eviction_id, "attempt": attempt, **fields}
        new = self.request.with_suffix(".written")
        new.write_text(json.dumps(document, separators=(",", ":")) + "\n")
        new.rename(self.request)

    def ask(self, eviction_id: str) -> dict[str, Any]:
        """Ask for a save; return the answer once it is saved."""
        self.write_request(eviction_id)
        self.wait_for(lambda: self.answer().get("id") == eviction_id)
        self.wait_for(lambda: self.answer()["state"] == "saved")
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return what the program has answered last."""
        file = self.request.with_name("request.answer")
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def lines(self, start: str) -> list[str]:
        """Return the lines of the program's output that begin so."""
        return [line for line in self.log.splitlines() if line.startswith(start)]

    @property
    def log(self) -> str:
        """The output of all programs that ran in the folder."""
        return self._log.read_text()

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while the program runs."""
        deadline = time.monotonic() + self._seconds
        while not condition():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the program a signal; return its exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Return the exit status once the program has ended."""
        return self.process.wait(self._seconds)

    def kill(self) -> None:
        """Kill the program and all that it started, as the end of a pod does.

        A launcher's workers may be in process groups of their own.
        """
        for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
            with contextlib.suppress(OSError):
                if self._mark in Path("/proc", str(pid), "environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def running(folder: Path, *command: str | Path, seconds: float = 60.0) -> Iterator[HintedProgram]:
    """Run a command for the block."""
    program = HintedProgram(folder, command, seconds)
    try:
        yield program
    finally:
        program.kill()

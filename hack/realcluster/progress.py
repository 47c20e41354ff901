"""Progress for a waiting user.

One live line on a terminal, else a line every 15 seconds (a CI log).
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

QUIET_SECONDS = 15.0  # between two lines of a task if lines cannot be overwritten


class Task:
    """A task that takes time. Call `tick` often: it decides what to show."""

    def __init__(self, stream: TextIO, what: str) -> None:
        self._stream = stream
        self._what = what
        self._live = stream.isatty()
        self._started = self._shown = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._started

    def tick(self, detail: str = "") -> None:
        """Show that the task goes on, and with which detail."""
        now = time.monotonic()
        if now - self._shown < (0.2 if self._live else QUIET_SECONDS):
            return
        self._shown = now
        self._write(
            f"{self._what} … {self.seconds:.0f} s" + (f"  {detail}" if detail else ""), last=False
        )

    def end(self, outcome: str) -> None:
        """Write the last line."""
        self._write(f"{self._what}: {outcome}", last=True)

    def _write(self, text: str, *, last: bool) -> None:
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\033[K{text if last else text[:width]}" + ("\n" if last else ""))
        else:
            self._stream.write(text + "\n")
        self._stream.flush()


class Progress:
    """Lines for a person, on standard error: standard output carries only results."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def say(self, text: str) -> None:
        """Write one line."""
        self._stream.write(text + "\n")
        self._stream.flush()

    @contextmanager
    def task(self, what: str) -> Iterator[Task]:
        """Show `what` while the block runs, and then its duration; "failed" if it raises."""
        task = Task(self._stream, what)
        try:
            yield task
        except BaseException:
            task.end(f"failed after {task.seconds:.1f} s")
            raise
        task.end(f"{task.seconds:.1f} s")

"""The demo's output: sentences, commands with their real output, and progress during waits."""

import sys
import textwrap
import time
from collections.abc import Callable
from typing import TextIO, TypeVar

from .promise import BrokenPromiseError

T = TypeVar("T")

COLUMNS = 100
QUIET_SECONDS = 2.0
"""Seconds before a wait is mentioned."""
REPEAT_SECONDS = 15.0
"""Seconds between two lines about the same wait if lines cannot be overwritten."""
POLL_SECONDS = 0.1

BOLD, GREEN, RED, CYAN, DIM = "1", "32", "31", "36", "2"


class Narrator:
    """Writes to one stream. Uses colours and rewrites lines only on a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._began = time.monotonic()

    def headline(self, text: str) -> None:
        """Begin a chapter."""
        self._write(f"\n{self._painted(text, BOLD, CYAN)}\n")

    def say(self, text: str) -> None:
        """Write a sentence or two, wrapped."""
        self._write("\n" + textwrap.fill(" ".join(text.split()), COLUMNS) + "\n")

    def show_file(self, name: str, text: str) -> None:
        """Write a file's text under its name."""
        self._write(f"\n  {self._painted(name, DIM)}\n{textwrap.indent(text.rstrip(), '  │ ')}\n")

    def show(self, command: str, output: str) -> None:
        """Write a command and its output."""
        self._write(f"\n  {self._painted('$ ' + command, BOLD)}\n")
        if output.strip():
            self._write(textwrap.indent(output.rstrip(), "    ") + "\n")

    def ok(self, number: int, sentence: str) -> None:
        """Write the line that says that a chapter kept its promise."""
        self._write(f"\n{self._painted('ok', BOLD, GREEN)} {number} {sentence}\n")

    def fail(self, sentence: str) -> None:
        """Write the sentence that says what went wrong."""
        self._write(f"\n{self._painted('not ok', BOLD, RED)} {sentence}\n")

    def wait(self, what: str, seconds: float, condition: Callable[[], T | None]) -> T:
        """Wait until `condition` returns a true value, and return it. Shows long waits.

        Raises:
            BrokenPromiseError: the condition does not hold within `seconds`.
        """
        began, mentioned = time.monotonic(), 0.0
        while not (found := condition()):
            waited = time.monotonic() - began
            if waited > seconds:
                self._clear()
                raise BrokenPromiseError(f"no {what} within {seconds:.0f} s")
            if waited > QUIET_SECONDS:
                mentioned = self._mention(what, waited, mentioned)
            time.sleep(POLL_SECONDS)
        self._clear()
        return found

    @property
    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def _mention(self, what: str, waited: float, mentioned: float) -> float:
        if self._is_terminal:
            self._write(f"\r\033[K  … waiting for {what}, {waited:.0f} s"[: COLUMNS + 4])
        elif not mentioned or waited - mentioned > REPEAT_SECONDS:
            self._write(f"  … waiting for {what}\n")
            return waited
        return mentioned

    def _clear(self) -> None:
        if self._is_terminal:
            self._write("\r\033[K")

    def _painted(self, text: str, *codes: str) -> str:
        return f"\033[{';'.join(codes)}m{text}\033[0m" if self._is_terminal else text

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

"""SIGTERM: note it, or exit with a status that tells a Job that work is left."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

UNFINISHED = 128 + signal.SIGTERM
"""The exit status of a program that was stopped. To a Job, 0 would mean that no work is left."""


class TerminationHandler:
    """Handles SIGTERM from `install` to `remove`.

    Args:
        may_exit: Whether nothing is to be saved first; the handler then exits at once.
    """

    def __init__(self, may_exit: Callable[[], bool]) -> None:
        self.is_received = False
        self._may_exit = may_exit
        self._pid = 0
        self._earlier: Any = None
        self._is_installed = False

    def install(self) -> None:
        """Handle SIGTERM; without effect outside of the main thread, where Python forbids it."""
        if threading.current_thread() is threading.main_thread():
            self._pid = os.getpid()
            self._earlier = signal.signal(signal.SIGTERM, self._handle)
            self._is_installed = True

    def remove(self) -> None:
        """Put back the handler from before."""
        if self._is_installed:
            # None: a handler from before that Python did not install.
            signal.signal(signal.SIGTERM, self._earlier or signal.SIG_DFL)
            self._is_installed = False

    def _handle(self, *_: object) -> None:
        if os.getpid() != self._pid:
            # A forked process, such as a worker that loads data, ends as it would without this.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self.is_received = True
        if self._may_exit():
            raise SystemExit(UNFINISHED)

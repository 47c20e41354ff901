"""A pytest plugin that prints one line a minute: how far the run is, and which tests run now.

It works with and without pytest-xdist. A run on a real cluster takes minutes, and pytest's dots
show neither what is slow nor how much is left. It names a failed test at once: pytest gives the
reason at the end.
"""

import os
import threading
import time
from dataclasses import dataclass, field

import pytest

INTERVAL_SECONDS = 60.0
_SHOWN_TESTS = 6


@dataclass
class Progress:
    """The finished and the running tests.

    Workers report to the controller, so the controller alone counts.
    """

    began: float
    total: int = 0
    finished: int = 0
    failed: int = 0
    running: dict[str, float] = field(default_factory=dict)
    """When each test began, by its node id."""

    def start(self, nodeid: str, now: float) -> None:
        """Count a test as running."""
        self.running[nodeid] = now

    def finish(self, nodeid: str) -> None:
        """Count a test as finished."""
        if self.running.pop(nodeid, None) is not None:
            self.finished += 1

    def line(self, now: float, clock: str) -> str:
        """Return the line for this moment; `clock` is the time of day."""
        share = f" ({100 * self.finished // self.total} %)" if self.total else ""
        failed = f", {self.failed} failed" if self.failed else ""
        longest = sorted(self.running.items(), key=lambda entry: entry[1])
        shown = [f"{nodeid} ({now - since:.0f} s)" for nodeid, since in longest[:_SHOWN_TESTS]]
        more = [f"{len(longest) - _SHOWN_TESTS} more"] if len(longest) > _SHOWN_TESTS else []
        doing = ", ".join(shown + more) or "no test runs"
        minutes = int(now - self.began) // 60
        count = f"{self.finished} of {self.total} tests{share}{failed}"
        return f"[{clock}] {minutes} min: {count}; now: {doing}"


class ProgressPlugin:
    """Feeds `Progress` from pytest's hooks.

    A thread prints it, so that a test of ten minutes does not silence it.
    """

    def __init__(self, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._interval = interval_seconds
        self._progress = Progress(time.monotonic())
        self._lock = threading.Lock()
        self._stop = threading.Event()
        # pytest captures file descriptor 1 while a test runs; the copy still leads to the terminal
        # or log.
        self._output = os.dup(1)
        self._thread = threading.Thread(target=self._print_lines, name="progress", daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        with self._lock:
            self._progress.total = self._progress.total or len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Each worker collects all tests."""
        with self._lock:
            self._progress.total = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        with self._lock:
            self._progress.start(nodeid, time.monotonic())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        with self._lock:
            self._progress.failed += report.failed
        if report.failed:
            self._write(f"FAILED {report.nodeid} ({report.when})")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        with self._lock:
            self._progress.finish(nodeid)

    def pytest_sessionfinish(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._output)

    def _print_lines(self) -> None:
        while not self._stop.wait(self._interval):
            with self._lock:
                line = self._progress.line(time.monotonic(), time.strftime("%H:%M:%S"))
            self._write(line)

    def _write(self, line: str) -> None:
        os.write(self._output, f"\n{line}\n".encode())


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin in the process that prints, not in the workers of pytest-xdist."""
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(ProgressPlugin(), "reprieve-progress")

"""Reports to Reprieve when the workload saved at a time of its own choice.

The workload writes or touches a file; nothing of its content is read. What goes wrong here is
logged once and tried again. It never affects requests.
"""

import os
import time
from collections.abc import Callable
from typing import Protocol

from .report_call import ReportCall, ReportResult, ReportTarget
from .report_schedule import ReportSchedule
from .request_files import RequestFiles

POLL_SECONDS = 2.0
"""Between two looks at the file: one `stat`."""

Log = Callable[..., None]


class RunningCall(Protocol):
    """A call that runs."""

    def poll(self) -> ReportResult | None:
        """Return the result; `None` while the call runs."""


class SaveReporter:
    """Watches the file, and makes one call at a time."""

    def __init__(
        self,
        files: RequestFiles,
        target: ReportTarget,
        log: Log,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        random_share: Callable[[], float] = lambda: os.urandom(1)[0] / 255,
        start: Callable[[ReportTarget, int], RunningCall] = ReportCall,
    ) -> None:
        self._files, self._target, self._log = files, target, log
        self._monotonic, self._start = monotonic, start
        self._schedule = ReportSchedule(random_share)
        self._call: RunningCall | None = None
        self._saved_at = 0
        """The save that is being reported."""
        self._is_failing = False

    def tick(self) -> None:
        """Look once: end a call that has its answer, or start one that is due. Never waits."""
        try:
            if self._call is not None:
                self._end_call(self._call)
                return
            saved_at = self._files.last_saved_at()
            if saved_at is not None and self._schedule.is_due(saved_at, self._monotonic()):
                self._saved_at = saved_at
                self._call = self._start(self._target, saved_at)
        except (OSError, ValueError) as error:
            self._call = None
            self._fail(ReportResult(0, str(error)))

    def _end_call(self, call: RunningCall) -> None:
        result = call.poll()
        if result is None:
            return
        self._call = None
        if not result.is_success:
            self._fail(result)
            return
        self._schedule.succeeded(self._saved_at, self._monotonic())
        if self._is_failing:
            self._log("saves are reported again")
        self._is_failing = False

    def _fail(self, result: ReportResult) -> None:
        self._schedule.failed(self._monotonic(), result.retry_after_seconds)
        if not self._is_failing:
            status = result.status or None
            self._log("could not report a save", status=status, error=result.message)
        self._is_failing = True

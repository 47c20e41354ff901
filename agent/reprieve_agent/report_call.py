"""One report in a process of its own, so that nothing in it can delay a request.

A name that does not resolve or a peer that does not answer takes seconds. What the call takes of
memory, most of it for TLS, is free again when the process ends.
"""

import json
import os
import signal
from typing import NamedTuple

CALL_SECONDS = 15
"""A call that takes longer is ended."""
_MAX_RESULT = 4096
_MAX_DESCRIPTORS = 1024


class ReportTarget(NamedTuple):
    """Where to report, and with what."""

    url: str
    ca: str
    """The CAs to trust, and no others: PEM as base64."""
    token_file: str
    """Read at each call: a token is valid for an hour, and the kubelet replaces it."""


class ReportResult(NamedTuple):
    """The response."""

    status: int
    """0 if there was none."""
    message: str
    retry_after_seconds: int = 0

    @property
    def is_success(self) -> bool:
        """True if the report was taken."""
        return self.status == 200


class ReportCall:
    """A call that runs."""

    def __init__(self, target: ReportTarget, saved_at: int) -> None:
        """Start it; raises `OSError`."""
        self._result, unread = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(self._result)
            os.close(unread)
            raise
        if not self._pid:
            _run(target, saved_at, unread)
        os.close(unread)

    def poll(self) -> ReportResult | None:
        """Return the result; `None` while the call runs."""
        pid, _ = os.waitpid(self._pid, os.WNOHANG)
        if not pid:
            return None
        try:
            written = os.read(self._result, _MAX_RESULT)
        finally:
            os.close(self._result)
        if not written:
            return ReportResult(0, f"no answer within {CALL_SECONDS} s")
        return ReportResult(*json.loads(written))


def _run(target: ReportTarget, saved_at: int, output: int) -> None:
    """Make the call, write its result and end; never returns."""
    try:
        signal.alarm(CALL_SECONDS)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # Without this, clients of the agent would wait for this process to close the connection.
        os.closerange(3, output)
        os.closerange(output + 1, _MAX_DESCRIPTORS)
        from .report_client import send  # noqa: PLC0415 - takes memory

        result = send(target, saved_at)
    except BaseException as error:  # noqa: BLE001 - reported; this process must not go on
        # Errors of sockets, TLS and files never have the token in their text.
        result = ReportResult(0, f"{type(error).__name__}: {error}"[:200])
    try:
        os.write(output, json.dumps(result).encode())
    finally:
        os._exit(0)

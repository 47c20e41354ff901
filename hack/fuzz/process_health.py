"""Checks of the server's process: it must not grow, keep descriptors, or log errors."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.servers import Server

GROWTH_MIB = 24.0
"""MiB between the first and the last quarter.

Bodies of 8 MiB make the heap vary by a few of them.
"""
SETTLE_SECONDS = 30.0
"""Seconds until the last connections close.

Idle ones to the API server close after half of that.
"""


@dataclass
class ProcessHealth:
    """Samples of a running process."""

    server: Server
    log: Path
    descriptors_before: int = 0
    _rss_mib: list[tuple[float, float]] = field(default_factory=list)

    def begin(self) -> None:
        """Record the open descriptors before anything is sent."""
        self.descriptors_before = self.descriptors()

    def sample(self, progress: float) -> None:
        """Record the memory; `progress` is the share of the reviews that were sent."""
        self._rss_mib.append((progress, self.server.rss_mib()))

    def descriptors(self) -> int:
        """Return the number of open files and sockets."""
        return len(list(Path(f"/proc/{self.server.pid}/fd").iterdir()))

    def memory(self) -> tuple[float, float]:
        """Return the median memory in the first and in the last quarter [MiB]."""
        first = [rss for progress, rss in self._rss_mib if progress <= 0.25] or [
            rss for _, rss in self._rss_mib[:1]
        ]
        last = [rss for progress, rss in self._rss_mib if progress >= 0.75] or [
            rss for _, rss in self._rss_mib[-1:]
        ]
        return statistics.median(first), statistics.median(last)

    def complaints(self) -> Iterator[str]:
        """Yield what is wrong after all clients have disconnected."""
        first, last = self.memory()
        if last - first > GROWTH_MIB:
            yield (
                f"its memory grew from {first:.0f} to {last:.0f} MiB, by more than {GROWTH_MIB:.0f}"
            )
        if not self._settles():
            yield (
                f"{self.descriptors()} descriptors are open; before, there were "
                f"{self.descriptors_before} before"
            )
        yield from (
            f"its log says: {line[:2000]}"
            for line in self.log.read_text(errors="replace").splitlines()
            if is_fault(line)
        )

    def _settles(self) -> bool:
        deadline = time.monotonic() + SETTLE_SECONDS
        while self.descriptors() > self.descriptors_before:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True


def is_fault(line: str) -> bool:
    """Return whether a log line reports an internal error.

    A line that is not JSON is a traceback.
    """
    try:
        return json.loads(line)["level"] not in ("debug", "info", "warning")
    except (ValueError, KeyError, TypeError):
        return True

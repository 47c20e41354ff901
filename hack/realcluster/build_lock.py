"""One build at a time, also across programs; whoever waits sees for what."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .progress import Progress

_PAUSE_SECONDS = 0.2


@contextmanager
def build_lock(file: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock `file` for the block; the kernel releases it when the process ends."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.task("another build is running; waiting for it") as task:
                _wait(held.fileno(), task.tick)
        yield


def _wait(descriptor: int, tick: Callable[[], None]) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tick()
            time.sleep(_PAUSE_SECONDS)

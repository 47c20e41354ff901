"""The progress of a long command: on standard error, on a terminal only, after two seconds."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

_QUIET_SECONDS = 2.0
_EVERY = 100


class ProgressCounter:
    """A context manager that shows a running count."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._number = 0
        self._is_terminal = sys.stderr.isatty()
        self._started = time.monotonic()
        self._shown = ExitStack()
        self._update: Callable[[str], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        patch: TracebackType | None,
    ) -> None:
        self._shown.close()

    def count(self, more: int = 1) -> None:
        """Add `more` to the count."""
        before, self._number = self._number, self._number + more
        if not self._is_terminal or before // _EVERY == self._number // _EVERY:
            return
        text = f"{self._number} {self._what}"
        if self._update is not None:
            self._update(text)
        elif time.monotonic() - self._started > _QUIET_SECONDS:
            # Imported here: the import takes longer than a short command.
            from rich.console import Console  # noqa: PLC0415

            self._update = self._shown.enter_context(Console(stderr=True).status(text)).update


def track(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items and show their number."""
    with ProgressCounter(what) as counter:
        for item in items:
            yield item
            counter.count()

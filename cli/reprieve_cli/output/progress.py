"""How far a long command is: on a terminal only, on standard error, and only once it takes longer than two seconds."""

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
    """Says how many there were so far. To be entered, and left once all have been counted."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._number = 0
        self._is_watched = sys.stderr.isatty()
        self._begun = time.monotonic()
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
        """Take in `more` of them."""
        before, self._number = self._number, self._number + more
        if not self._is_watched or before // _EVERY == self._number // _EVERY:
            return
        text = f"{self._number} {self._what}"
        if self._update is not None:
            self._update(text)
        elif time.monotonic() - self._begun > _QUIET_SECONDS:
            from rich.console import Console  # noqa: PLC0415 - costs more than a short command's whole work

            self._update = self._shown.enter_context(Console(stderr=True).status(text)).update


def track(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items, and say how many there were."""
    with ProgressCounter(what) as counter:
        for item in items:
            yield item
            counter.count()

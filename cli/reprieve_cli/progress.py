"""How far a long command is: on a terminal only, on standard error, and only once it takes longer than two seconds."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TypeVar

T = TypeVar("T")

_QUIET_SECONDS = 2.0
_EVERY = 100


def track(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items, and say how many there were."""
    if not sys.stderr.isatty():
        yield from items
        return
    begun = time.monotonic()
    with ExitStack() as shown:
        update = None
        for number, item in enumerate(items, 1):
            yield item
            if number % _EVERY:
                continue
            if update is not None:
                update(f"{number} {what}")
            elif time.monotonic() - begun > _QUIET_SECONDS:
                from rich.console import Console  # noqa: PLC0415 - costs more than a short command's whole work

                update = shown.enter_context(Console(stderr=True).status(f"{number} {what}")).update

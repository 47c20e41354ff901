"""Counts what the threads of a program do: calls of functions, and memory at its peak.

Counts are the same on a fast and on a slow machine, and on a busy and on a quiet one.
"""

from __future__ import annotations

import gc
import statistics
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import NamedTuple

from .decoding import DECODED

_COUNTED = ("call", "c_call")
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")
"""Python 3.11 calls a function for each, later versions do not."""
_POOL_PREFIXES = ("asyncio_", "uvloop_")
"""The names of the threads of an event loop's pool begin so."""
_STILL_SECONDS = 0.025
_PATIENCE_SECONDS = 600.0


class CallCounter:
    """Counts the calls of Python functions, and the calls of C functions from Python.

    It counts in the thread that installs it, and in the thread pool of an event loop.
    """

    def __init__(self) -> None:
        self._own, self._of_pool = _ThreadCalls(), list[_ThreadCalls]()

    @property
    def calls(self) -> int:
        """The number so far."""
        return self._own.calls + self.pool_calls

    @property
    def pool_calls(self) -> int:
        """Those of the thread pool."""
        return sum(each.calls for each in self._of_pool)

    def install(self) -> None:
        """Count from now on."""
        threading.setprofile(self._begin_thread)
        sys.setprofile(self._own.note)

    def remove(self) -> None:
        """Stop in this thread, and in those that start later."""
        sys.setprofile(None)
        threading.setprofile(None)

    def wait_still(self, seconds: float = _STILL_SECONDS) -> int:
        """Return the number of calls once the program has done nothing for a while."""
        deadline, before = time.monotonic() + _PATIENCE_SECONDS, -1
        while before != (before := self.calls):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the program is still busy after {_PATIENCE_SECONDS:.0f} s")
            time.sleep(seconds)
        return before

    def _begin_thread(self, *_: object) -> None:
        if threading.current_thread().name.startswith(_POOL_PREFIXES):
            # Each thread counts for itself: two that add to one number would lose calls.
            calls = _ThreadCalls()
            self._of_pool.append(calls)
            sys.setprofile(calls.note)
        else:
            sys.setprofile(None)


class _ThreadCalls:
    """The calls of one thread."""

    def __init__(self) -> None:
        self.calls = 0

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Count an event of `sys.setprofile`."""
        if event in _COUNTED and frame.f_code.co_name not in _COMPREHENSIONS:
            self.calls += 1


class Cost(NamedTuple):
    """What a piece of work cost, or all that was done so far."""

    calls: int
    decoded_bytes: int
    decoded_blocks: int

    def since(self, before: Cost) -> Cost:
        """Return the cost of what was done since then."""
        return Cost(*(now - then for now, then in zip(self, before, strict=True)))


def cost_so_far(calls: int) -> Cost:
    """Return the cost of all that was done so far, with this number of calls."""
    return Cost(calls, DECODED.bytes, DECODED.blocks)


def costs(
    counter: CallCounter, calls: Callable[[], int], work: Sequence[Callable[[], None]]
) -> list[Cost]:
    """Return what each piece of work cost."""
    found = []
    counter.wait_still()
    for each in work:
        before = cost_so_far(calls())
        each()
        counter.wait_still()
        found.append(cost_so_far(calls()).since(before))
    return found


def figures(
    what: str,
    found: Sequence[Cost],
    average_calls: Callable[[Iterable[int]], float] = statistics.median,
) -> dict[str, float]:
    """Return the figures of pieces of work that are alike.

    They are medians, because timers, and values that are made once, add to some; the calls may have
    another average.
    """
    return {
        f"{what}: calls": average_calls(each.calls for each in found),
        f"{what}: decoded bytes": statistics.median(each.decoded_bytes for each in found),
        f"{what}: decoded blocks": statistics.median(each.decoded_blocks for each in found),
    }


def median_peak_bytes(counter: CallCounter, work: Sequence[Callable[[], None]]) -> float:
    """Return how much memory of Python one piece of work takes at its peak."""
    found = []
    gc.collect()
    tracemalloc.start()
    try:
        for each in work:
            counter.wait_still()
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            each()
            counter.wait_still()
            found.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    return statistics.median(found)

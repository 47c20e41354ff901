"""The traces that can be asked for: the synthetic one, and two published ones. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import trace
from .simulator import published
from .trace import Trace


@dataclass(frozen=True)
class Size:
    """How many jobs and nodes a trace has by default."""

    jobs: int
    nodes: int


@dataclass(frozen=True)
class TraceSource:
    """A trace as it is simulated, and as it is replayed on a cluster."""

    generate: Callable[[int, int, int], Trace]
    """Of a seed, jobs and nodes: jobs arrive while all of them can be done."""
    size: Size
    generate_short: Callable[[int, int, int, float | None], Trace]
    """The same, short enough for a cluster; the last argument is the window, if it is given."""
    short_size: Size


def _shortened(
    generate: Callable[[int, int, int], Trace],
) -> Callable[[int, int, int, float | None], Trace]:
    """Return the generator of a published trace, with its jobs arriving faster."""
    return lambda seed, jobs, nodes, window: published.shortened(
        generate(seed, jobs, nodes), window
    )


_SYNTHETIC_SIZE = Size(2000, 200)
SOURCES = {
    "synthetic": TraceSource(trace.generate, _SYNTHETIC_SIZE, trace.generate, _SYNTHETIC_SIZE),
    "philly": TraceSource(
        published.philly,
        Size(3000, 60),
        _shortened(published.philly),
        Size(1800, 200),
    ),
    "openb": TraceSource(
        published.openb,
        Size(3000, 12),
        _shortened(published.openb),
        Size(1200, 20),
    ),
}

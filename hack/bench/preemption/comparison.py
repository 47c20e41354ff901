"""Each contender beside the stock scheduler, the simulator and the bound. No I/O.

A figure is the median over the seeds. A ratio to the stock scheduler is that of the same seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.figures import aligned

from .figures import PreemptionTurn
from .simulator.figures import Figures, figures_from, ratios
from .simulator.notice import Counts
from .trace import SIMULATED_SECONDS, Trace

_HOURS_A_SECOND = SIMULATED_SECONDS / 3600


@dataclass(frozen=True)
class Measure:
    """A figure that is compared."""

    name: str
    value: Callable[[Figures], float]
    form: str


MEASURES = (
    Measure("wasted pod-hours", lambda each: each.wasted_pod_seconds * _HOURS_A_SECOND, ",.1f"),
    Measure(
        "wasted device-hours", lambda each: each.wasted_device_seconds * _HOURS_A_SECOND, ",.1f"
    ),
    Measure("start p50, s", lambda each: each.start_p50, ",.2f"),
    Measure("start p90, s", lambda each: each.start_p90, ",.2f"),
    Measure("start p99, s", lambda each: each.start_p99, ",.2f"),
    Measure("start of urgent pods p99, s", lambda each: each.urgent_start_p99, ",.2f"),
    Measure("jobs finished", lambda each: each.finished_jobs, ",.0f"),
    Measure("deletions asked for", lambda each: each.deletions, ",.0f"),
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One contender, and what it is compared with; each on the same seeds, or on some of them."""

    title: str
    measured: Sequence[Figures]
    stock: Sequence[Figures] = ()
    without_notice: Sequence[Figures] = ()
    policy_only: Sequence[Figures] = ()
    simulated: Sequence[Figures] = ()
    bound: Sequence[Figures] = ()
    """The simulator's one pool of room, where all is known."""


Column = Callable[[Comparison, Measure], str]


def figures_of(turn: PreemptionTurn, trace: Trace) -> Figures:
    """Return the figures of a turn, counted as the simulator counts them."""
    notices = sum(record.hinted_at is not None for record in turn.records)
    counts = Counts(deletions=turn.deletions, refusals=turn.refusals, notices=notices)
    return figures_from(turn.contender, trace, turn.records, counts)


def table(comparisons: Sequence[Comparison]) -> str:
    """Return a block for each measure, with a row for each contender."""
    titles = [title for title, _ in _COLUMNS]
    lines: list[tuple[str, ...]] = []
    for measure in MEASURES:
        lines.append((measure.name, *titles))
        lines.extend(
            (f"  {each.title}", *(column(each, measure) for _, column in _COLUMNS))
            for each in comparisons
        )
    return aligned(lines)


def _values(found: Iterable[Figures], measure: Measure) -> list[float]:
    return [measure.value(each) for each in found]


def _to_stock(row: Comparison, measure: Measure) -> list[float]:
    return ratios(row.measured, row.stock, measure.value)


def _to_no_notice(row: Comparison, measure: Measure) -> list[float]:
    return ratios(row.measured, row.without_notice, measure.value)


def _to_policy_only(row: Comparison, measure: Measure) -> list[float]:
    return ratios(row.measured, row.policy_only, measure.value)


def _off_by(row: Comparison, measure: Measure) -> list[float]:
    return [ratio - 1 for ratio in ratios(row.simulated, row.measured, measure.value)]


def _median(values: Sequence[float], form: str) -> str:
    numbers = [value for value in values if not math.isnan(value)]
    return _shown(statistics.median(numbers), form) if numbers else ""


def _range(values: Sequence[float], form: str) -> str:
    numbers = [value for value in values if not math.isnan(value)]
    return f"{_shown(min(numbers), form)} to {_shown(max(numbers), form)}" if numbers else ""


def _shown(value: float, form: str) -> str:
    return "never" if math.isinf(value) else format(value, form)


_COLUMNS: Sequence[tuple[str, Column]] = (
    ("seeds", lambda row, _: str(len(row.measured))),
    ("median", lambda row, measure: _median(_values(row.measured, measure), measure.form)),
    ("range", lambda row, measure: _range(_values(row.measured, measure), measure.form)),
    ("/ stock", lambda row, measure: _median(_to_stock(row, measure), ".2f")),
    ("range", lambda row, measure: _range(_to_stock(row, measure), ".2f")),
    ("/ no notice", lambda row, measure: _median(_to_no_notice(row, measure), ".2f")),
    ("/ policy only", lambda row, measure: _median(_to_policy_only(row, measure), ".2f")),
    ("simulated", lambda row, measure: _median(_values(row.simulated, measure), measure.form)),
    ("off by", lambda row, measure: _median(_off_by(row, measure), "+z.0%")),
    ("bound", lambda row, measure: _median(_values(row.bound, measure), measure.form)),
)

"""Plots as PNG: how soon preemptors start, what their victims lose, how many victims there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .figures import PreemptionRow
from .trace import KINDS

Axes = Any
"""matplotlib's type; matplotlib is imported only to draw, so that the rest works without it."""

_INCHES = (7.0, 4.2)
_DOTS_AN_INCH = 150
_LEAST_SECONDS = 0.01
"""Sooner starts are drawn here: the axis is logarithmic."""


def steps(starts: Sequence[float], of: int) -> tuple[list[float], list[float]]:
    """Return the share of started preemptors over seconds; unplaced ones keep it below 1."""
    return [max(start, _LEAST_SECONDS) for start in starts], [
        number / of for number in range(1, len(starts) + 1)
    ]


def draw(rows: Sequence[PreemptionRow], folder: Path) -> list[Path]:
    """Write all plots; return their files."""
    import matplotlib as mpl  # noqa: PLC0415 (see `Axes`)

    mpl.use("Agg")
    return [_draw(rows, folder / f"{name}.png", plot) for name, plot in _PLOTS.items()]


def _draw(rows: Sequence[PreemptionRow], file: Path, plot: Any) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415 (see `Axes`)

    figure, axes = plt.subplots(figsize=_INCHES, layout="constrained")
    plot(axes, rows)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=_DOTS_AN_INCH)
    plt.close(figure)
    return file


def _starts(axes: Axes, rows: Sequence[PreemptionRow]) -> None:
    for row in rows:
        seconds, shares = steps(row.starts, row.preemptors)
        axes.step(seconds, shares, where="post", label=row.contender)
    axes.set(xscale="log", ylim=(0, 1), title="Preemptors", ylabel="share that had started")
    axes.set_xlabel("seconds after its creation (1 s stands for 1 min)")
    axes.legend()


def _wasted(axes: Axes, rows: Sequence[PreemptionRow]) -> None:
    names, bottoms = _names(rows), [0.0] * len(rows)
    for kind in KINDS:
        heights = [row.wasted[kind] for row in rows]
        axes.bar(names, heights, bottom=bottoms, label=kind, width=0.6)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set(
        title="Wasted work of victims, by how they save",
        ylabel="pod-seconds since the last checkpoint",
    )
    axes.legend()


def _victims(axes: Axes, rows: Sequence[PreemptionRow]) -> None:
    bars = axes.bar(_names(rows), [row.victims_a_placement for row in rows], width=0.6)
    axes.bar_label(bars, [f"{row.victims:,} for {row.placed:,}" for row in rows])
    axes.set(title="Victims for each preemptor that was placed", ylabel="victims")


def _names(rows: Sequence[PreemptionRow]) -> list[str]:
    """Return the contenders' names, broken into lines, for the labels below their bars."""
    return [row.contender.replace(" (", "\n(") for row in rows]


_PLOTS = {"starts": _starts, "wasted": _wasted, "victims": _victims}

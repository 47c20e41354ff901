"""Compares measured figures with those that are checked in. No I/O.

All are counts, or ratios within one run: seconds depend on the machine and the moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from bench.figures import aligned

LEAST_TOLERANCE = 0.15
"""Of a count: the Lease is renewed during a turn, however few its victims are."""
_OF_COUNTS, _OF_RATIOS = 0.05, 0.35
_ROUNDING = 1e-9
CPU = "CPU"
"""Figures of processor time begin so. They vary with the caches of the machine."""


class GateFigure(TypedDict):
    """A checked-in figure, and how far a measurement may be above it."""

    value: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class GateRow:
    """One figure, beside its measurement."""

    name: str
    known: GateFigure | None
    measured: float | None

    @property
    def verdict(self) -> str:
        """`ok`, or what to do; only `ok` and `fell` pass."""
        if self.known is None:
            return "new: not checked in"
        if self.measured is None:
            return "not measured any more"
        most = self.known["tolerance"] + _ROUNDING
        difference = self.measured - self.known["value"]
        if difference > most:
            return "GREW"
        return "fell" if -difference > most else "ok"

    @property
    def is_failure(self) -> bool:
        """True if the figure grew, or cannot be compared."""
        return self.verdict not in ("ok", "fell")


def compare(known: Mapping[str, GateFigure], measured: Mapping[str, float]) -> list[GateRow]:
    """Return a row for each figure on either side, by name."""
    names = sorted(known.keys() | measured.keys())
    return [GateRow(name, known.get(name), measured.get(name)) for name in names]


def updated(measured: Mapping[str, float]) -> dict[str, GateFigure]:
    """Return what to check in for these measurements."""
    return {
        name: {"value": round(value, 2), "tolerance": round(_tolerance(name, value), 2)}
        for name, value in sorted(measured.items())
    }


def table(rows: Sequence[GateRow]) -> str:
    """Return the rows as text for a terminal."""
    head = ("figure", "checked in", "may be up to", "measured", "verdict")
    return aligned([head, *(_cells(row) for row in rows)])


def _cells(row: GateRow) -> tuple[str, ...]:
    value = "" if row.known is None else f"{row.known['value']:.2f}"
    most = "" if row.known is None else f"{row.known['value'] + row.known['tolerance']:.2f}"
    measured = "" if row.measured is None else f"{row.measured:.2f}"
    return (row.name, value, most, measured, row.verdict)


def _tolerance(name: str, value: float) -> float:
    if name.startswith(CPU):
        return value * _OF_RATIOS
    return max(LEAST_TOLERANCE, value * _OF_COUNTS)

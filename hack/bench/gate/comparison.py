"""Compares counted figures with those that are checked in. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figures import aligned

TOLERANCE = 0.05
"""How much a figure may grow: timers and the order of events add a little to some runs."""
GREW, FELL, NEW, GONE, OK = "GREW", "fell", "NEW", "NOT COUNTED", "ok"
_FAILURES = (GREW, NEW, GONE)
_EXPLANATIONS = {
    GREW: "grew",
    NEW: "is not checked in",
    GONE: "is checked in, and was not counted",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure, as it is checked in and as it was counted."""

    name: str
    known: float | None
    counted: float | None

    @property
    def verdict(self) -> str:
        """Say whether it grew."""
        if self.known is None:
            return NEW
        if self.counted is None:
            return GONE
        most = abs(self.known) * TOLERANCE
        if self.counted - self.known > most:
            return GREW
        return FELL if self.known - self.counted > most else OK

    @property
    def is_failure(self) -> bool:
        """True if it grew, or cannot be compared."""
        return self.verdict in _FAILURES

    @property
    def sentence(self) -> str:
        """What is wrong, and by how much."""
        if self.known is None or self.counted is None:
            return f"{self.name}: {_EXPLANATIONS[self.verdict]}"
        return (
            f"{self.name}: grew from {_shown(self.known)} to {_shown(self.counted)} ({self.change})"
        )

    @property
    def change(self) -> str:
        """The difference, as a share of what is checked in."""
        if self.known is None or self.counted is None:
            return ""
        if not self.known:
            return f"{self.counted:+g}" if self.counted else ""
        share = self.counted / self.known - 1
        return f"{share:+.1%}" if abs(share) >= 0.0005 else ""


def compare(known: Mapping[str, float], counted: Mapping[str, float]) -> list[Comparison]:
    """Return a comparison for each figure on either side, by name."""
    return [
        Comparison(name, known.get(name), counted.get(name))
        for name in sorted(known.keys() | counted.keys())
    ]


def table(rows: Sequence[Comparison]) -> str:
    """Return the comparisons as text for a terminal."""
    head = ("figure", "checked in", "counted", "change", "")
    lines = [
        (row.name, _shown(row.known), _shown(row.counted), row.change, row.verdict) for row in rows
    ]
    return aligned([head, *lines])


def _shown(number: float | None) -> str:
    return "" if number is None else f"{number:,.2f}".rstrip("0").rstrip(".")

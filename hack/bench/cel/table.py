"""Figures of `make bench-cel`: processor time and allocations of a creation. No I/O."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from bench import figures

KINDS = ("mutating policies", "mutating webhooks", "validating policies", "validating webhooks")
"""The admission plugins of an API server; a second turn of one counts as the first."""
AGAIN = " again"


@dataclass(frozen=True, kw_only=True)
class CelTurn:
    """One contender's turn with pods of one kind, as the program `bench-admission` reports it."""

    contender: str
    pods: str
    round: int
    count: int
    calls: int  # of webhooks, none of which is answered: with one, the turn is not comparable
    seconds: Mapping[str, float]  # by plugin
    allocations: Mapping[str, int]
    bytes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class CelRow:
    """One contender with pods of one kind: medians over the rounds, of one creation."""

    contender: str
    pods: str
    microseconds: Mapping[str, float]  # processor time by plugin
    all_microseconds: float
    ratio: float | None  # of what it adds, to what the reference adds in the same round
    allocations: int  # without those of an API server without policies
    bytes: int


def rows(turns: Iterable[CelTurn], nothing: str, reference: str) -> list[CelRow]:
    """Return a row for each contender and kind of pods whose turns called no webhook."""
    grouped: dict[tuple[str, str], list[CelTurn]] = {}
    for turn in turns:
        grouped.setdefault((turn.pods, turn.contender), []).append(turn)
    return [
        _row(own, grouped[pods, nothing], grouped.get((pods, reference), ()))
        for (pods, _), own in grouped.items()
        if not any(turn.calls for turn in own)
    ]


def left_out(turns: Iterable[CelTurn], pods: str) -> list[str]:
    """Return the contenders that have no row for a kind of pods."""
    return sorted({turn.contender for turn in turns if turn.calls and turn.pods == pods})


def _row(
    own: Sequence[CelTurn], nothing: Sequence[CelTurn], reference: Sequence[CelTurn]
) -> CelRow:
    least = {turn.round: turn for turn in nothing}
    added = {turn.round: _all(turn) - _all(least[turn.round]) for turn in reference}
    ratios = [(_all(turn) - _all(least[turn.round])) / added[turn.round] for turn in own if added]
    return CelRow(
        contender=own[0].contender,
        pods=own[0].pods,
        microseconds={
            kind: statistics.median(_of(turn.seconds, kind) / turn.count * 1e6 for turn in own)
            for kind in KINDS
        },
        all_microseconds=statistics.median(_all(turn) * 1e6 for turn in own),
        ratio=statistics.median(ratios) if ratios else None,
        allocations=_a_creation(own[0], own[0].allocations)
        - _a_creation(nothing[0], nothing[0].allocations),
        bytes=_a_creation(own[0], own[0].bytes) - _a_creation(nothing[0], nothing[0].bytes),
    )


def table(found: Iterable[CelRow]) -> str:
    """Return the rows as text for a terminal."""
    columns = ("fills in", "mut. webhooks", "policies", "val. webhooks", "all", "ratio", "allocs")
    return figures.aligned([("contender", *columns, "bytes"), *(_cells(row) for row in found)])


def document(
    turns: Sequence[CelTurn], found: Sequence[CelRow], **more: object
) -> dict[str, object]:
    """Return everything as JSON."""
    return {
        "rows": [asdict(row) for row in found],
        "turns": [asdict(turn) for turn in turns],
        **more,
    }


def _cells(row: CelRow) -> tuple[str, ...]:
    return (
        row.contender,
        *(f"{row.microseconds[kind]:.1f}" for kind in KINDS),
        f"{row.all_microseconds:.1f}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        str(row.allocations),
        f"{row.bytes:,}",
    )


def _of(taken: Mapping[str, float], kind: str) -> float:
    return taken[kind] + taken.get(kind + AGAIN, 0)


def _all(turn: CelTurn) -> float:
    return sum(turn.seconds.values()) / turn.count


def _a_creation(turn: CelTurn, counted: Mapping[str, int]) -> int:
    return round(sum(counted.values()) / turn.count)

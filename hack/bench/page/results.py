"""The result of a benchmark as it is checked in: its tables, its plots, and how it was measured.

A file of `hack/bench/measured` for each benchmark, one figure a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "measured"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars, one for each name."""

    title: str
    bars: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a benchmark found."""

    parameters: Mapping[str, str]
    tables: Sequence[Table]
    plots: Sequence[Plot]


@dataclass(frozen=True, slots=True)
class Result:
    """What a benchmark found, when, where and with which versions."""

    conditions: Mapping[str, str]
    """The first is `on`, the date."""
    measurement: Measurement
    remarks: Sequence[str] = ()
    """Sentences of people about these figures; a new measurement has none."""


def path_of(key: str) -> Path:
    """Return the file of a benchmark, which may not exist."""
    return FOLDER / f"{key}.json"


def read(path: Path) -> Result | None:
    """Return the result in a file; `None` without one."""
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    measurement = found["measurement"]
    return Result(
        conditions=found["conditions"],
        measurement=Measurement(
            parameters=measurement["parameters"],
            tables=[Table(**each) for each in measurement["tables"]],
            plots=[Plot(**each) for each in measurement["plots"]],
        ),
        remarks=found["remarks"],
    )


def write(path: Path, result: Result) -> None:
    """Write a result to its file."""
    path.write_text(json.dumps(asdict(result), indent=1, ensure_ascii=False) + "\n", "utf-8")

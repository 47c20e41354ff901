"""Writes the page and its drawings from results. No I/O."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from . import svg
from .parts import PARTS, Part
from .results import Result, Table

PAGE = "docs/benchmarks.md"
DRAWINGS = "docs/benchmarks"
_COLUMNS = 100
_HEAD = """\
# Benchmarks

With this page you see what Reprieve costs and what it gains, beside other programs, and measure it
on your own machine. Ratios of one run hold elsewhere; times and rates are those of one machine at
one hour.

`make bench` runs all benchmarks one after the other, some hours, and writes this page from the
files in `hack/bench/measured`. It continues where it was stopped. `make bench ONLY=webhooks,check`
runs some of them, and `make bench-page` only writes the page.
[The benchmarks](../hack/bench/README.md) describes each one in full.
"""
_FOOT = """\
## What a change costs
`make bench-gate` counts, without a cluster, what one review of each size, one victim's life and one
call of the extender do: calls of functions, bytes and values that are decoded, calls to the API
server. It is part of `make test`, and fails where a figure has grown by more than 5 %. The figures
are in `hack/bench/gate/figures`, for each version of Python
([how it works](../hack/bench/README.md#make-bench-gate)). `make bench-gate-cluster` does the same
with calls and processor time on a real API server
([how it works](../hack/bench/README.md#make-bench-gate-cluster)).
"""


def page(results: Mapping[str, Result]) -> str:
    """Return the page."""
    sections = (_section(part, results.get(part.key)) for part in PARTS)
    return "\n".join([_HEAD, _overview(results), *sections, _FOOT])


def drawings(results: Mapping[str, Result]) -> dict[str, str]:
    """Return the drawings by the names of their files."""
    return {
        _drawing(part, number): svg.draw(plot)
        for part in PARTS
        if part.key in results
        for number, plot in enumerate(results[part.key].measurement.plots, start=1)
    }


def _overview(results: Mapping[str, Result]) -> str:
    lines = ["| benchmark | measured on | with |", "|---|---|---|"]
    for part in PARTS:
        result = results.get(part.key)
        on = result.conditions["on"] if result else "not measured yet"
        version = result.conditions["Reprieve"] if result else ""
        lines.append(f"| [{part.title}](#{_anchor(part.title)}) | {on} | {version} |")
    return "\n".join(lines) + "\n"


def _section(part: Part, result: Result | None) -> str:
    return "\n".join(
        [
            f"## {part.title}",
            _wrapped(f"{part.question} [What is measured](../hack/bench/README.md#{part.anchor})."),
            "",
            *(_not_measured(part) if result is None else _measured(part, result)),
            *_repeat(part),
        ]
    )


def _not_measured(part: Part) -> Iterator[str]:
    yield f"**Not measured yet**: `make bench ONLY={part.key}` does, in {part.takes}."
    yield ""


def _measured(part: Part, result: Result) -> Iterator[str]:
    conditions = dict(result.conditions)
    yield _wrapped(f"**Measured on {conditions.pop('on')}**: {_listed(conditions)}.")
    yield ""
    for number, plot in enumerate(result.measurement.plots, start=1):
        yield f"![{plot.title}](benchmarks/{_drawing(part, number)})"
        yield ""
    for table in result.measurement.tables:
        yield from _table(table)
        yield ""
    for remark in result.remarks:
        yield _wrapped(f"- {remark}", "  ")
    if result.remarks:
        yield ""
    yield _wrapped(f"**Parameters**: {_listed(result.measurement.parameters)}.")
    yield ""


def _repeat(part: Part) -> Iterator[str]:
    needs = "a clone, and minutes to hours" if part.needs_cluster else "a clone, and minutes"
    yield f'```sh title="needs {needs}"'
    yield from part.repeat
    yield "```"
    yield ""


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"**{table.title}**"
        yield ""
    yield _line(table.columns)
    yield "|---" + "|---:" * (len(table.columns) - 1) + "|"
    yield from (_line(row) for row in table.rows)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _listed(pairs: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {value}" for name, value in pairs.items())


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, _COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _drawing(part: Part, number: int) -> str:
    return f"{part.key}-{number}.svg"


def _anchor(title: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    return title.lower().replace(",", "").replace(" ", "-")

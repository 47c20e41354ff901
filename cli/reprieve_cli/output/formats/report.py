"""Reports of an audit, written page by page: a table for people, a document for programs."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict

import click

from reprieve_cli.output.finding import Finding, Level, Summary, printable

from . import document


class ReportWriter(ABC):
    """How findings are written; every method returns what is to be printed next."""

    def __init__(self, *, by_namespace: bool = False) -> None:
        self.by_namespace = by_namespace

    @abstractmethod
    def page(self, findings: Sequence[Finding]) -> str:
        """Return what the objects of one page have, or what could not be read."""

    @abstractmethod
    def end(self, summary: Summary) -> str:
        """Return what comes last."""

    def count_checked(self, kind: str, objects: int) -> None:  # noqa: B027 - most have nothing to do
        """Hear that so many objects of a kind were read; most reports say only the sum."""


class TableReport(ReportWriter):
    """A row a finding. Columns are as wide as they had to be so far: what was printed stays."""

    def __init__(self, *, by_namespace: bool = False) -> None:
        super().__init__(by_namespace=by_namespace)
        self._widths = [0] * len(_TITLES)

    def page(self, findings: Sequence[Finding]) -> str:
        """Return the rows, before the first the titles; what could not be read is no row."""
        rows = [_row(each) for each in findings if each.level is not Level.UNREADABLE]
        if rows and not any(self._widths):
            rows.insert(0, _TITLES)
        for row in rows:
            self._widths = [
                max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)
            ]
        return "".join(map(self._line, rows))

    def end(self, summary: Summary) -> str:
        """Return the sum."""
        return f"{summary}\n"

    def _line(self, row: Sequence[str]) -> str:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], self._widths, strict=False)]
        text = "   ".join((*cells, row[-1]))
        return (click.style(text, bold=True) if row is _TITLES else text) + "\n"


_TITLES = ("NAMESPACE", "KIND", "NAME", "ENFORCEMENT", "RULE", "SAID")


def _row(finding: Finding) -> tuple[str, ...]:
    assert finding.object is not None
    kind, namespace, name = finding.object
    said = finding.text if finding.level is Level.VIOLATION else f"warning: {finding.text}"
    return (
        namespace or "-",
        kind,
        name,
        finding.enforcement or "-",
        finding.rule or "-",
        printable(said),
    )


class JsonReport(ReportWriter):
    """The document of `reprieve check -o json`, without files and lines."""

    def __init__(self, *, by_namespace: bool = False) -> None:
        super().__init__(by_namespace=by_namespace)
        self._before = document.BEGIN

    def page(self, findings: Sequence[Finding]) -> str:
        """Return the findings, and before the first of all the beginning of the document."""
        parts = []
        for finding in findings:
            parts += [self._before, json.dumps(document.render(finding), separators=(",", ":"))]
            self._before = document.BETWEEN
        return "".join(parts)

    def end(self, tally: Summary) -> str:
        """Return the end of the document, with its beginning where nothing was found."""
        begin = self._before if self._before == document.BEGIN else ""
        summary = {name: value for name, value in asdict(tally).items() if name != "files"}
        return begin + document.build_end(summary)

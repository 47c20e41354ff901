"""The reports of an audit, written page by page: a table for users, a document for programs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict

import click

from reprieve_cli.output.finding import Finding, Level, Summary, printable
from reprieve_cli.output.terminal import to_json

from . import document


class ReportWriter(ABC):
    """Writes findings; each method returns the text to print next."""

    def __init__(self, *, by_namespace: bool = False) -> None:
        self.by_namespace = by_namespace

    @abstractmethod
    def page(self, findings: Sequence[Finding]) -> str:
        """Return the text for the findings of one page, or for what could not be read."""

    @abstractmethod
    def end(self, summary: Summary) -> str:
        """Return the end of the report."""

    def count_checked(self, kind: str, objects: int) -> None:  # noqa: B027 - optional
        """Add a number of checked objects of a kind; most reports print only the total."""


class TableReport(ReportWriter):
    """A row a finding. All are printed at the end: only then the widths of columns are known."""

    def __init__(self, *, by_namespace: bool = False) -> None:
        super().__init__(by_namespace=by_namespace)
        self._rows: list[tuple[str, ...]] = []

    def page(self, findings: Sequence[Finding]) -> str:
        """Keep the rows; unreadable objects have none."""
        self._rows += [_row(each) for each in findings if each.level is not Level.UNREADABLE]
        return ""

    def end(self, summary: Summary) -> str:
        """Return the table, with titles if it has rows, and the summary."""
        rows = [_TITLES, *self._rows] if self._rows else []
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "".join(self._line(row, widths) for row in rows) + f"{summary}\n"

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        text = "   ".join((*cells, row[-1]))
        return (click.style(text, bold=True) if row is _TITLES else text) + "\n"


_TITLES = ("NAMESPACE", "KIND", "NAME", "ENFORCEMENT", "RULE", "MESSAGE")


def _row(finding: Finding) -> tuple[str, ...]:
    assert finding.object is not None
    kind, namespace, name = finding.object
    message = finding.text if finding.level is Level.VIOLATION else f"warning: {finding.text}"
    row = (
        namespace or "-",
        kind,
        name,
        finding.enforcement or "-",
        finding.rule or "-",
        message,
    )
    return tuple(map(printable, row))


class JsonReport(ReportWriter):
    """The document of `reprieve check -o json`, without files and lines."""

    def __init__(self, *, by_namespace: bool = False) -> None:
        super().__init__(by_namespace=by_namespace)
        self._before = document.BEGIN

    def page(self, findings: Sequence[Finding]) -> str:
        """Return the findings, with the beginning of the document before the very first."""
        parts = []
        for finding in findings:
            parts += [self._before, to_json(document.render(finding), is_compact=True)]
            self._before = document.BETWEEN
        return "".join(parts)

    def end(self, summary: Summary) -> str:
        """Return the end of the document, with its beginning if there were no findings."""
        begin = self._before if self._before == document.BEGIN else ""
        of_files = ("files", "skipped")
        numbers = {name: value for name, value in asdict(summary).items() if name not in of_files}
        return begin + document.build_end(numbers)

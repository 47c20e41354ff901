"""Text for users, and for editors that jump to `file:line:`."""

from collections.abc import Iterable, Iterator

import click

from reprieve_cli.output.finding import Finding, Level, Summary, printable

_COLOURS = {Level.VIOLATION: "red", Level.WARNING: "yellow", Level.UNREADABLE: "magenta"}
_WORDS = {Level.VIOLATION: "error", Level.WARNING: "warning", Level.UNREADABLE: "unreadable"}


def write(findings: Iterable[Finding], summary: Summary) -> Iterator[str]:
    """Yield a line for each finding, and the summary."""
    for finding in findings:
        yield _line(finding)
    yield f"{summary}\n"


def _line(finding: Finding) -> str:
    place = (
        f"{printable(finding.file)}:{finding.line}: "
        if finding.line
        else f"{printable(finding.file)}: "
    )
    level = click.style(_WORDS[finding.level], fg=_COLOURS[finding.level], bold=True)
    name = f"{printable(str(finding.object))}: " if finding.object else ""
    rule = click.style(f" [{finding.rule}]", dim=True) if finding.rule else ""
    return f"{place}{level}: {name}{printable(finding.text)}{rule}\n"

"""Workflow commands of GitHub: each finding annotates its line in a pull request.

Escaped as the runner unescapes (actions/toolkit, `command.ts`): in properties also `:` and `,`,
which end one.
"""

from collections.abc import Iterable, Iterator

from reprieve_cli.output.finding import Finding, Level, Summary, printable

_OF_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_OF_PROPERTY = {**_OF_DATA, ":": "%3A", ",": "%2C"}
_DATA, _PROPERTY = str.maketrans(_OF_DATA), str.maketrans(_OF_PROPERTY)


def write(findings: Iterable[Finding], summary: Summary) -> Iterator[str]:
    """Yield a command for each finding, and the summary as a line of the log."""
    for finding in findings:
        yield _command(finding)
    yield f"{summary}\n"


def _command(finding: Finding) -> str:
    word = "warning" if finding.level is Level.WARNING else "error"
    properties = {
        "file": finding.file,
        "line": finding.line or None,
        "title": finding.rule or finding.level.value,
    }
    pairs = ",".join(f"{name}={_escape(str(value))}" for name, value in properties.items() if value)
    text = f"{finding.object}: {finding.text}" if finding.object else finding.text
    return f"::{word} {pairs}::{printable(text).translate(_DATA)}\n"


def _escape(text: str) -> str:
    return text.translate(_PROPERTY)

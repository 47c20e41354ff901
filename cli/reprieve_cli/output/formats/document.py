"""One JSON document, for programs; `docs/check.md` describes its fields."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

from reprieve_cli.output.finding import Finding, Summary
from reprieve_cli.output.terminal import to_json

VERSION = 1
BEGIN, BETWEEN = f'{{"version":{VERSION},"findings":[\n', ",\n"


def write(findings: Iterable[Finding], summary: Summary) -> Iterator[str]:
    """Yield the document, a finding at a time."""
    before = BEGIN
    for finding in findings:
        yield before + to_json(render(finding), is_compact=True)
        before = BETWEEN
    yield (before if before == BEGIN else "") + build_end(asdict(summary))


def build_end(summary: Mapping[str, int]) -> str:
    """Return the end of the document, after the findings."""
    return f'\n],"summary":{to_json(summary, is_compact=True)}}}\n'


def render(finding: Finding) -> dict[str, object]:
    """Return a finding for JSON, without empty fields."""
    fields: dict[str, object] = {
        "level": finding.level.value,
        "file": finding.file,
        "line": finding.line,
        "object": finding.object._asdict() if finding.object else None,
        "path": finding.path,
        "rule": finding.rule,
        "enforcement": finding.enforcement,
        "message": finding.message,
    }
    return {name: value for name, value in fields.items() if value}

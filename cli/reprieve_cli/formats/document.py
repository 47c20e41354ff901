"""One JSON document, for programs; `docs/check.md` describes its fields."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from reprieve_cli.finding import Finding, Tally

VERSION = 1


def write(findings: Iterable[Finding], tally: Tally) -> Iterator[str]:
    """Yield the document, a finding at a time."""
    yield f'{{"version":{VERSION},"findings":['
    separator = "\n"
    for finding in findings:
        yield separator + json.dumps(render(finding), separators=(",", ":"))
        separator = ",\n"
    yield f'\n],"summary":{json.dumps(asdict(tally), separators=(",", ":"))}}}\n'


def render(finding: Finding) -> dict[str, object]:
    """Return a finding as JSON has it; what it does not say is left out."""
    fields: dict[str, object] = {
        "level": finding.level.value,
        "file": finding.file,
        "line": finding.line,
        "object": finding.object._asdict() if finding.object else None,
        "path": finding.path,
        "rule": finding.rule,
        "message": finding.message,
    }
    return {name: value for name, value in fields.items() if value}

"""SARIF 2.1.0 (OASIS), which code scanning reads: one run, with a result for each finding.

An unreadable file is not the result of a rule: it becomes a notification of the tool, and the run
is reported as unsuccessful.
"""

import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from inspect import getdoc, getmodule
from urllib.parse import quote

from reprieve_cli.output.finding import Finding, Level, Summary
from reprieve_cli.output.terminal import to_json
from reprieve_policy.admission import manifest_form
from reprieve_policy.admission.rules import RULES

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
OTHER = "policy"
"""The rule of findings without one: about settings, and violations that are only warned of."""

_LEVELS = {Level.VIOLATION: "error", Level.WARNING: "warning", Level.UNREADABLE: "error"}


def write(findings: Iterable[Finding], summary: Summary) -> Iterator[str]:
    """Yield the document."""
    found = list(findings)
    results = [_result(finding) for finding in found if finding.level is not Level.UNREADABLE]
    notifications = [
        _notification(finding) for finding in found if finding.level is Level.UNREADABLE
    ]
    run = {
        "tool": {"driver": _driver()},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not summary.unreadable,
                "toolExecutionNotifications": notifications,
            },
        ],
        "results": results,
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    yield to_json(document, is_compact=True) + "\n"


def _driver() -> dict[str, object]:
    rules = [
        {"id": name, "shortDescription": {"text": sentence}}
        for name, sentence in _descriptions().items()
    ]
    return {"name": "reprieve", "version": version("reprieve"), "rules": rules}


@cache
def _descriptions() -> dict[str, str]:
    described = {
        rule.id: (getdoc(getmodule(rule.check)) or "").partition("\n")[0] for rule in RULES
    }
    return {
        **described,
        manifest_form.RULE: "The object has the form that the API server reads.",
        OTHER: "The cluster's policy is readable and is followed.",
    }


@cache
def _indices() -> dict[str, int]:
    return {name: index for index, name in enumerate(_descriptions())}


def _result(finding: Finding) -> dict[str, object]:
    rule = finding.rule or OTHER
    text = f"{finding.object}: {finding.text}" if finding.object else finding.text
    return {
        "ruleId": rule,
        "ruleIndex": _indices()[rule],
        "level": _LEVELS[finding.level],
        "message": {"text": text},
        "locations": [_location(finding)],
    }


def _notification(finding: Finding) -> dict[str, object]:
    return {"level": "error", "message": {"text": finding.text}, "locations": [_location(finding)]}


def _location(finding: Finding) -> dict[str, object]:
    place: dict[str, object] = {"artifactLocation": {"uri": _uri(finding.file)}}
    if finding.line:
        place["region"] = {"startLine": finding.line}
    return {"physicalLocation": place}


def _uri(file: str) -> str:
    """Return a URI reference (RFC 3986); a relative path stays so, to match a checkout's files."""
    path = quote(os.fsencode(file).replace(os.sep.encode(), b"/"))
    return f"file://{path}" if path.startswith("/") else path

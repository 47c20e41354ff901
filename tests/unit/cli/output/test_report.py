"""The reports of an audit, page by page; progress on a terminal; internal errors."""

import io
import json
import sys

import click
import pytest

from reprieve_cli import main
from reprieve_cli.output import progress
from reprieve_cli.output.finding import Finding, Level, ObjectName, Summary
from reprieve_cli.output.formats.gauge import PrometheusReport
from reprieve_cli.output.formats.report import JsonReport, TableReport

SUMMARY = Summary(objects=2, violations=2)


def a_finding(
    name: str = "p", namespace: str = "team", rule: str = "checkpoint", **fields: str
) -> Finding:
    level = Level(fields.pop("level", "violation"))
    placed = ObjectName("Pod", namespace, name)
    return Finding(
        level=level,
        message="no",
        path="spec",
        object=placed,
        rule=rule,
        enforcement="enforce",
        **fields,
    )


def test_a_table_has_titles_once_and_columns_that_fit() -> None:
    table = TableReport()
    table.page([a_finding(), a_finding("longer-name")])
    table.page([a_finding("x"), a_finding("the-longest-name-is-in-the-last-page")])
    titles, *rows, end = click.unstyle(table.end(SUMMARY)).splitlines()
    assert titles.split() == ["NAMESPACE", "KIND", "NAME", "ENFORCEMENT", "RULE", "MESSAGE"]
    assert [line.index("spec: no") for line in rows] == [titles.index("MESSAGE")] * 4
    assert end == "2 objects checked: 2 violations, 0 warnings"


def test_a_table_without_rows_has_no_titles() -> None:
    table = TableReport()
    table.page([])
    table.page([Finding(level=Level.UNREADABLE, message="no")])
    assert table.end(SUMMARY) == "2 objects checked: 2 violations, 0 warnings\n"


def test_an_empty_cell_is_a_dash_and_a_warning_has_a_prefix() -> None:
    table = TableReport()
    table.page([a_finding(namespace="", rule="", level="warning")])
    row = table.end(SUMMARY).splitlines()[1]
    assert row.split() == ["-", "Pod", "p", "enforce", "-", "warning:", "spec:", "no"]


@pytest.mark.parametrize("pages", [[], [[]], [["a"]], [["a", "b"], [], ["c"]]])
def test_all_pages_form_one_document(pages: list[list[str]]) -> None:
    report = JsonReport()
    text = "".join(report.page([a_finding(name) for name in page]) for page in pages) + report.end(
        SUMMARY
    )
    document = json.loads(text)
    assert [each["object"]["name"] for each in document["findings"]] == [
        name for page in pages for name in page
    ]
    assert document["summary"] == {"objects": 2, "violations": 2, "warnings": 0, "unreadable": 0}


def samples(text: str) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_gauges_are_zero_without_violations() -> None:
    gauges = PrometheusReport()
    gauges.count_checked("Namespace", 3)
    assert gauges.page([]) == ""
    found = samples(gauges.end(Summary()))
    assert (
        found[
            'reprieve_audit_violations{rule="namespace-policy",kind="Namespace",enforcement="enforce"}'
        ]
        == "0"
    )
    assert found['reprieve_audit_objects{kind="Namespace"}'] == "3"


def test_gauges_count_violations_only_and_optionally_by_namespace() -> None:
    findings = [a_finding(), a_finding("q"), a_finding("r", 'a"b\\'), a_finding(level="warning")]
    usual, by_namespace = PrometheusReport(), PrometheusReport(by_namespace=True)
    for gauges in (usual, by_namespace):
        gauges.count_checked("Namespace", 1)
        assert gauges.page(findings) == ""
    labels = 'rule="checkpoint",kind="Pod",enforcement="enforce"'
    assert samples(usual.end(SUMMARY))[f"reprieve_audit_violations{{{labels}}}"] == "3"
    found = samples(by_namespace.end(SUMMARY))
    assert found[f'reprieve_audit_violations{{{labels},namespace="team"}}'] == "2"
    assert found[f'reprieve_audit_violations{{{labels},namespace="a\\"b\\\\"}}'] == "1"
    assert "namespace-policy" not in str(found)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_appears_on_terminals_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(progress.track(range(1000), "objects")) == list(range(1000))
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    assert list(progress.track(range(1000), "objects")) == list(range(1000))
    assert "00 objects" in sys.stderr.getvalue()


def test_progress_does_not_appear_in_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    assert list(progress.track("abc", "letters")) == ["a", "b", "c"]
    assert sys.stderr.getvalue() == ""


def test_an_internal_error_does_not_exit_like_a_violation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reprieve", "check", "-"])
    monkeypatch.setattr("reprieve_cli.commands.check.collect", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 70
    assert "ZeroDivisionError" in capsys.readouterr().err

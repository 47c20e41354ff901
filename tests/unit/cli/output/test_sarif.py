"""The SARIF document has what the 2.1.0 schema requires, and what code scanning reads."""

import re
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy.admission.rules import RULES
from reprieve_testing.check_command import pod, run, write

BAD = pod(labels='{reprieve.dev/preemption-class: "11"}')
WARNED = pod(
    annotations="{reprieve.dev/checkpoint: none, reprieve.dev/checkpoint-hint: 'http://:80/x'}"
)
LEVELS = {"none", "note", "warning", "error"}


def log_of(*words: object) -> Any:
    return run(*words, "-o", "sarif").document


@pytest.fixture
def log(tmp_path: Path) -> Any:
    return log_of(
        write(tmp_path, "a b.yaml", f"{BAD}---\n{WARNED}---\na: [\n"), tmp_path / "none.yaml"
    )


def test_the_document_is_one_run_of_version_2_1_0(log: Any) -> None:
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("/sarif-schema-2.1.0.json")
    assert len(log["runs"]) == 1


def test_the_tool_describes_every_rule_once(log: Any) -> None:
    driver = log["runs"][0]["tool"]["driver"]
    ids = [rule["id"] for rule in driver["rules"]]
    assert driver["name"] == "reprieve"
    assert {rule.id for rule in RULES} <= set(ids)
    assert len(ids) == len(set(ids))
    assert all(rule["shortDescription"]["text"].endswith(".") for rule in driver["rules"])


def test_each_result_names_its_rule_level_message_and_place(log: Any) -> None:
    run_ = log["runs"][0]
    ids = [rule["id"] for rule in run_["tool"]["driver"]["rules"]]
    assert [result["ruleId"] for result in run_["results"]] == ["preemption-class", "checkpoint"]
    for result in run_["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in LEVELS
        assert result["message"]["text"].startswith("Pod team/p: metadata.")
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert re.fullmatch(r"file:///[\w/.%-]+/a%20b\.yaml", place["artifactLocation"]["uri"])


def test_an_unreadable_file_is_a_notification_of_a_failed_run(log: Any) -> None:
    (invocation,) = log["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    texts = [
        notification["message"]["text"] for notification in invocation["toolExecutionNotifications"]
    ]
    assert texts == ["did not find expected node content", "no such file or directory"]
    lines = [
        note["locations"][0]["physicalLocation"].get("region")
        for note in invocation["toolExecutionNotifications"]
    ]
    assert lines[1] is None


def test_a_clean_run_succeeded_and_has_an_empty_list_of_results(tmp_path: Path) -> None:
    run_ = log_of(write(tmp_path, "a.yaml", pod()))["runs"][0]
    assert run_["results"] == []
    assert run_["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_relative_files_stay_relative_so_that_they_match_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "deploy/a.yaml", BAD)
    monkeypatch.chdir(tmp_path)
    (result,) = log_of("deploy/a.yaml")["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "deploy/a.yaml"


def test_a_violation_that_a_namespace_turns_into_a_warning_is_one_of_the_policy(
    tmp_path: Path,
) -> None:
    namespace = (
        "apiVersion: v1\nkind: Namespace\n"
        "metadata: {name: team, labels: {reprieve.dev/enforcement: warn}}\n---\n"
    )
    (result,) = log_of(write(tmp_path, "a.yaml", namespace + BAD))["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("policy", "warning")

"""The docs show what `reprieve check` prints: a transcript, and the fields of the JSON."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy.config.namespace import EXEMPT
from reprieve_testing import manifests
from reprieve_testing.check_command import run

ROOT = Path(__file__).parents[3]
TRIED = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
DOCUMENT = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")


def test_the_example_check_prints_what_the_page_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    ((file, expected),) = re.findall(
        r"^\$ reprieve check (\S+\.yaml)\n(.*?)^\$", TRIED, re.MULTILINE | re.DOTALL
    )
    assert run(file).output == expected


def test_the_json_output_has_the_documented_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (shown,) = re.findall(r"^```json\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    documented = json.loads(
        shown.replace("deploy.yaml", "manifests/examples/refused/deployment-class-11.yaml")
    )
    assert (
        run("manifests/examples/refused/deployment-class-11.yaml", "-o", "json").document
        == documented
    )


def test_every_option_and_gauge_is_documented() -> None:
    for word in (
        "-R",
        "--policy",
        "--strict",
        "-n",
        "-o",
        "--kubeconfig",
        "--context",
        "--by-namespace",
    ):
        assert f"`{word}" in DOCUMENT, word
    for gauge in ("violations", "objects", "unreadable"):
        assert f"`reprieve_audit_{gauge}`" in DOCUMENT


def test_exempt_namespaces_are_those_of_the_webhooks() -> None:
    (configuration,) = manifests.of_kind("ValidatingWebhookConfiguration")
    rules = [rule for webhook in configuration["webhooks"] for rule in _selected(webhook)]
    left_out = {
        frozenset(rule["values"]) for rule in rules if rule["key"] == "kubernetes.io/metadata.name"
    }
    assert left_out == {frozenset(EXEMPT)}


def _selected(webhook: Any) -> list[Any]:
    return list(webhook.get("namespaceSelector", {}).get("matchExpressions", ()))

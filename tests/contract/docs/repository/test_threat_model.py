"""THREAT_MODEL.md names tests that exist, and policies and roles of the base."""

import ast
import re

import pytest

from reprieve_testing import manifests

PAGE = (manifests.ROOT / "THREAT_MODEL.md").read_text(encoding="utf-8")
TESTS = manifests.ROOT / "tests"
NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py(?:::\w+)?)`", PAGE)))


@pytest.mark.parametrize("name", NAMED)
def test_every_test_on_the_page_exists(name: str) -> None:
    file, _, function = name.partition("::")
    assert (TESTS / file).exists(), file
    parts = ast.walk(ast.parse((TESTS / file).read_text(encoding="utf-8")))
    functions = {
        part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not function or function in functions


def test_each_attack_that_is_stopped_names_its_test() -> None:
    stopped = PAGE.partition("## A tenant, as")[2].partition("## What nothing stops")[0]
    rows = re.findall(r"^\| (?!attack|token of|---).*\|$", stopped, re.MULTILINE)
    assert len(rows) > 30
    assert [row for row in rows if not re.search(r"\.py(::\w+)?` \|$", row)] == []


def test_every_policy_and_role_on_the_page_exists() -> None:
    kinds = ("ValidatingAdmissionPolicy", "ClusterRole")
    known = {found["metadata"]["name"] for kind in kinds for found in manifests.of_kind(kind)}
    named = set(re.findall(r"`(reprieve[-:][a-z-]+)`", PAGE))
    assert named - known == set()
    policies = {found["metadata"]["name"] for found in manifests.of_kind(kinds[0])}
    assert {"reprieve-operator-limits", "reprieve-webhooks-limits", "reprieve-marks"} <= policies

"""docs/rights.md lists the rights of `reprieve.dev` that the base grants; what it names exists."""

import re

from reprieve_testing import manifests

PAGE = (manifests.ROOT / "docs" / "rights.md").read_text(encoding="utf-8")


def test_the_page_lists_the_rights_that_the_base_knows() -> None:
    rules = [rule for role in manifests.of_kind("ClusterRole") for rule in role["rules"]]
    ours = [rule for rule in rules if rule.get("apiGroups") == ["reprieve.dev"]]
    granted = {
        (verb, name) for rule in ours for verb in rule["verbs"] for name in rule["resources"]
    }
    shown = re.findall(r"^\| `([a-z-]+)` \| `([a-z]+)` \|", PAGE, re.MULTILINE)
    assert sorted(shown) == sorted(granted)


def test_the_roles_and_files_that_the_page_names_exist() -> None:
    roles = {role["metadata"]["name"] for role in manifests.of_kind("ClusterRole")}
    assert set(re.findall(r"reprieve:[a-z-]+", PAGE)) <= roles
    assert all(
        (manifests.ROOT / path).exists() for path in re.findall(r"`(manifests/[^`]+)`", PAGE)
    )

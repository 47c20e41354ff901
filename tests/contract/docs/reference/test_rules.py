"""The reference of rules agrees with the rules' own descriptions; `make docs` updates it."""

import re
from pathlib import Path

import pytest

import reference
from reprieve_policy.admission.rules import RULES

PAGES = reference.build()


def test_the_committed_pages_are_the_output_of_make_docs() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in reference.PAGES.glob("*.md")}
    changed = {
        name for name in PAGES.keys() | written.keys() if PAGES.get(name) != written.get(name)
    }
    assert changed == set(), "run `make docs`"


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_every_rule_has_a_page_with_its_kinds_and_its_texts(rule: str) -> None:
    page = PAGES[f"{rule}.md"]
    assert page.startswith(f"# `{rule}`\n\n")
    assert "\n**Concerns**: " in page
    assert "\n## What it says\n" in page
    assert f"({rule}.md)" in PAGES["README.md"]


def test_links_of_the_index_lead_to_existing_pages() -> None:
    assert set(re.findall(r"\(([a-z-]+\.md)\)", PAGES["README.md"])) == PAGES.keys() - {"README.md"}


def test_a_removed_rule_has_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "PAGES", tmp_path)
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(reference, "build", lambda: {"README.md": "index\n"})
    (tmp_path / "gone.md").write_text("old")
    reference.main()
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_an_unreadable_heading_is_reported() -> None:
    with pytest.raises(ValueError, match="not the heading of a case: # words"):
        reference.read_examples("# words\n400: x\n")


def test_a_case_of_two_rules_is_on_no_page() -> None:
    text = "# Pod: a [one]\n400: x\n# Pod: b [one, two]\n400: y\n"
    assert reference.read_examples(text) == {"one": (reference.Example("Pod", "a", ("400: x",)),)}

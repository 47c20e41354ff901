"""What `make docs-site` rewrites, expands and looks for."""

from pathlib import Path

import markdown
import pytest
from markdown_it import MarkdownIt

from docsite import dialect, hooks, navigation, selfcontained, sources

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    page for folder in (".", "docs", "manifests", "hack", "tests")
    for page in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
)  # fmt: skip
CASES = {
    "a list after a line": "Keys:\n- a\n- b\n",
    "a paragraph in an item": "- a\n\n  more\n- b\n",
    "code in an item": "1. a\n\n   ```\n   - no item\n   ```\n2. b\n",
    "an item after code": "- a\n\n  ```\n  x\n  ```\n- b\n",
    "a list in an item": "- a\n  more:\n  - b\n  - c\n\n  end\n- d\n",
    "a list that looks like one in code": "```\nKeys:\n- a\n```\n",
    "text after a list": "- a\n- b\n\ntext\n",
}
COUNTED = ("<li>", "<pre", "<table", "<h2")


def counts(html: str) -> dict[str, int]:
    return {tag: html.count(tag) for tag in COUNTED}


def as_on_github(text: str) -> dict[str, int]:
    return counts(MarkdownIt("gfm-like", {"linkify": False}).render(text))


def as_on_the_site(text: str) -> dict[str, int]:
    extensions = ["tables", "pymdownx.superfences", "toc"]
    return counts(markdown.markdown(dialect.rewritten(text), extensions=extensions))


@pytest.mark.parametrize("case", CASES)
def test_a_list_is_a_list_on_the_site_too(case: str) -> None:
    assert as_on_the_site(CASES[case]) == as_on_github(CASES[case])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_page_has_the_same_lists_tables_and_code_on_the_site(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert as_on_the_site(text) == as_on_github(text)


def test_tight_lists_stay_tight() -> None:
    assert dialect.rewritten("- a\n  more\n- b\n") == "- a\n    more\n- b\n"


def test_anchors_are_those_of_github() -> None:
    assert dialect.anchor("`reprieve audit`: what, and why?") == "reprieve-audit-what-and-why"


def test_a_pattern_stands_for_its_pages_and_an_empty_section_goes() -> None:
    entries = [{"Rules": "docs/rules/*"}, {"Runbook": "docs/runbook/*"}, "README.md", "docs/a*.md"]
    pages = ["docs/rules/form.md", "docs/rules/README.md", "docs/rules/agent.md", "README.md"]
    assert navigation.expanded(entries, pages) == [
        {"Rules": ["docs/rules/README.md", "docs/rules/agent.md", "docs/rules/form.md"]},
        "README.md",
    ]


def test_the_hook_sets_the_navigation_and_the_anchors(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("")
    config = {"mdx_configs": {"toc": {}}, "docs_dir": str(tmp_path), "nav": [{"A": "docs/*"}]}
    assert hooks.on_config(config)["nav"] == [{"A": ["docs/a.md"]}]
    assert config["mdx_configs"] == {"toc": {"slugify": dialect.anchor}}


def test_what_a_page_links_to_is_copied_beside_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "a.md").write_text("[x](../x.yaml#line) [y](https://y.example) [z](z.md)")
    (root / "x.yaml").write_text("x")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "old.md").write_text("")
    sources.stage(root, tmp_path / "site", ["docs/a.md"])
    copied = {str(path.relative_to(tmp_path)) for path in (tmp_path / "site").rglob("*.*")}
    assert copied == {"site/docs/a.md", "site/x.yaml"}


LOADS = {
    '<script src="https://cdn.example/x.js"></script>': ["https://cdn.example/x.js"],
    '<link rel="stylesheet" href="//fonts.example/x.css">': ["//fonts.example/x.css"],
    '<img src="http://img.example/x.png">': ["http://img.example/x.png"],
    '<script src="assets/x.js"></script><a href="https://kubernetes.io">k</a>': [],
    '<link rel="canonical" href="https://docs.example/">': [],
}


@pytest.mark.parametrize("html", LOADS)
def test_what_a_page_loads_from_elsewhere_is_found(html: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(html)
    assert list(selfcontained.external(tmp_path)) == [
        f"index.html: {address}" for address in LOADS[html]
    ]


def test_what_a_style_sheet_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.css").write_text("a{background:url('https://a.example/b')} b{background:url(c)}")
    assert list(selfcontained.external(tmp_path)) == ["x.css: https://a.example/b"]

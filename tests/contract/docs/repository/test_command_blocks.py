"""Each block of commands on a page is run by a test, or says what it needs.

A block says it in its first line: `sh title="needs a cluster with Reprieve"`. The site shows that
above the block.
"""

import re
from pathlib import Path

import pytest

from reprieve_testing import manifests

ROOT = manifests.ROOT
PAGES = [
    *(ROOT / page for page in ("README.md", "CONTRIBUTING.md", "THREAT_MODEL.md")),
    *sorted(
        page for folder in ("docs", "manifests", "hack") for page in (ROOT / folder).rglob("*.md")
    ),
]
BLOCK = re.compile(r"^( *)```([^`\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"^ *(?:\$ |\(cd |(?:sudo )?(?:docker|export|git|hack/cluster|helm|kind|kubectl|kustomize|make|"
    r"pip|reprieve|rm|sha256sum) )",
    re.MULTILINE,
)
RUN_BY = {
    "tests/cluster/docs/test_readme.py": re.compile(r"README\.md|docs/getting-started\.md"),
    "tests/contract/docs/guides/test_transcripts.py": re.compile(
        r"docs/simulate\.md|docs/cookbook/[a-z]+\.md"
    ),
}
"""Tests that run the blocks `console` (and, the first, `sh`) of these pages."""
OTHER_LANGUAGES = ("yaml", "json", "python")
ANOTHER_DRAWING = "A pod is applied"
"""The README's drawing names a command."""


def unexplained(name: str, text: str) -> list[str]:
    """Return the first line of each block of commands that no test runs and that needs no title."""
    runs = any(page.fullmatch(name) for page in RUN_BY.values())
    return [
        body.strip().splitlines()[0]
        for _, info, body in BLOCK.findall(text)
        if COMMAND.search(body)
        and info not in OTHER_LANGUAGES
        and not body.startswith(ANOTHER_DRAWING)
        and not (runs and info in ("console", "sh"))
        and not re.fullmatch(r'(?:sh|console) title="needs [^"]+"', info)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_of_commands_is_run_or_says_what_it_needs(page: Path) -> None:
    name = str(page.relative_to(ROOT))
    assert unexplained(name, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("docs/a.md", "```\nmake test\n```\n", ["make test"]),
        ("docs/a.md", "1. so:\n\n   ```sh\n   kubectl get pods\n   ```\n", ["kubectl get pods"]),
        ("docs/a.md", '```sh title="needs a cluster"\nkubectl get pods\n```\n', []),
        ("docs/a.md", "```yaml\nmake test\n```\n", []),
        ("docs/a.md", "```console\n$ make test\n```\n", ["$ make test"]),
        ("docs/simulate.md", "```console\n$ reprieve simulate\n```\n", []),
    ],
)
def test_a_block_that_is_neither_is_found(name: str, text: str, found: list[str]) -> None:
    assert unexplained(name, text) == found


@pytest.mark.parametrize("file", RUN_BY)
def test_the_tests_that_run_pages_exist(file: str) -> None:
    assert (ROOT / file).exists()

"""Each link of a page written by hand leads to a file and, if it names one, to a heading."""

import re
from pathlib import Path

import pytest

from reprieve_testing import manifests

PAGES = tuple(
    page
    for folder in (".", ".github", "client", "docs", "manifests", "hack", "tests")
    for page in sorted((manifests.ROOT / folder).glob("*.md" if folder == "." else "**/*.md"))
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(manifests.ROOT)))
def test_the_target_of_each_link_exists(page: Path) -> None:
    for path, heading in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not heading or heading in anchors(target.read_text(encoding="utf-8")), (
            f"{path}#{heading}"
        )

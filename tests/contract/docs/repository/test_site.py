"""The navigation of the site: each page of docs/ is in it once, and each of its pages exists.

`tests/integration/hack/test_docsite.py` builds the site.
"""

from collections import Counter

import yaml

from docsite import navigation, sources
from docsite.__main__ import CONFIGURATION
from reprieve_testing import manifests

ENTRIES = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))["nav"]
PAGES = sources.pages(manifests.ROOT, ENTRIES)
SHOWN = list(navigation.paths(navigation.expanded(ENTRIES, PAGES)))


def test_each_page_of_docs_is_in_the_navigation() -> None:
    missing = {page for page in PAGES if page.startswith("docs/")} - set(SHOWN)
    assert missing == set(), "add them to hack/docsite/mkdocs.yml"


def test_no_page_is_in_the_navigation_twice() -> None:
    assert [page for page, times in Counter(SHOWN).items() if times > 1] == []


def test_each_page_in_the_navigation_exists() -> None:
    assert [page for page in SHOWN if not (manifests.ROOT / page).is_file()] == []


def test_each_reader_has_a_section() -> None:
    assert {"Authors", "Admins", "SREs", "Contributors"} <= {
        title for entry in ENTRIES for title in entry
    }


def test_the_site_has_each_page_that_is_linked_from_a_page() -> None:
    """A page that is copied because of a link, but is in no navigation, is a warning of MkDocs."""
    linked = {
        file
        for page in PAGES
        for file in sources.linked_files(
            manifests.ROOT, page, (manifests.ROOT / page).read_text(encoding="utf-8")
        )
        if file.endswith(".md")
    }
    assert linked - set(SHOWN) == set()

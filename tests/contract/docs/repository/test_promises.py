"""tests/README.md lists every test file that needs a cluster, and no file that is not there."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[3]
PAGE = (TESTS / "README.md").read_text()
NAMED = sorted(word for word in set(re.findall(r"`([\w/-]+(?:\.py)?)`", PAGE)) if "/" in word)


def shortened(path: Path) -> str:
    """Return a path as the page writes it."""
    return str(path.relative_to(TESTS)).removeprefix("cluster/")


def test_every_file_that_needs_a_cluster_is_listed() -> None:
    folders = ("cluster", "differential", "chaos")
    files = {shortened(path) for folder in folders for path in (TESTS / folder).rglob("test_*.py")}
    assert files - set(NAMED) == set()


def test_every_file_and_folder_that_is_named_exists() -> None:
    roots = (TESTS, TESTS / "cluster", TESTS / "reprieve_testing", TESTS.parent)
    missing = [name for name in NAMED if not any((root / name).exists() for root in roots)]
    assert missing == []

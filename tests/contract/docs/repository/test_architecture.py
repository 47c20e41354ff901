"""docs/architecture.md names modules and folders that exist, and every subpackage."""

import re
from pathlib import Path

import pytest

from reprieve_testing import manifests

PAGE = (manifests.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = {
    folder.parent.name: folder
    for folder in manifests.ROOT.glob("*/reprieve_*")
    if folder.name == f"reprieve_{folder.parent.name}"
}
FOLDERS = {
    f"{name}/{found.name}"
    for name, package in PACKAGES.items()
    for found in package.iterdir()
    if (found / "__init__.py").exists()
}
OTHERS = {"pods/eviction", "scheduler/preempt"}
"""A subresource and a URL."""
PATHS = re.findall(r"(?<![\w./-])[a-z_]+(?:/[a-z_]+)+(?![\w./])", PAGE)
DOTTED = re.findall(r"(?<![/\w])policy(?:\.[a-z_]+)+", PAGE)
NAMED = sorted({*PATHS, *(name.replace(".", "/") for name in DOTTED)} - OTHERS)


def places(path: str) -> list[Path]:
    """Return the possible places of a path: in the repository, in its package, or in any
    package.
    """
    first, _, rest = path.partition("/")
    inside = [PACKAGES[first] / rest] if first in PACKAGES else []
    return [manifests.ROOT / path, *inside, *(package / path for package in PACKAGES.values())]


@pytest.mark.parametrize("path", NAMED)
def test_every_path_on_the_page_exists(path: str) -> None:
    assert any(place.is_dir() or place.with_suffix(".py").exists() for place in places(path)), path


def test_the_page_names_every_subpackage() -> None:
    assert {folder for folder in FOLDERS if f"`{folder}`" not in PAGE} == set()

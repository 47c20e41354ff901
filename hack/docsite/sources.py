"""Copies the pages, and what they link to, into the folder that MkDocs reads.

The copy has the layout of the repository, so a link between two pages needs no change. A folder has
no page on the site, so a link to one leads to the README in it; a folder without one must not be
linked to.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from . import dialect, navigation

LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(?:#[^)\s]*)?\)")
"""A link to a file of this repository."""


def pages(root: Path, entries: Iterable[object]) -> list[str]:
    """Return the pages of the site: all of docs/, and those outside that the navigation names."""
    listed = subprocess.run(
        ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "docs"),
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    below = {name for name in listed.stdout.split("\0") if name.endswith(".md")}
    named = {file for path in navigation.paths(entries) for file in root.glob(path)}
    return sorted(below | {str(file.relative_to(root)) for file in named if file.suffix == ".md"})


def stage(root: Path, target: Path, names: Iterable[str]) -> None:
    """Copy the pages, and the other files that they link to, into an empty `target`."""
    if target.exists():
        shutil.rmtree(target)
    names = set(names)
    for name in names:
        text = (root / name).read_text(encoding="utf-8")
        page = target / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(dialect.rewritten(text), encoding="utf-8")
        for file in set(linked_files(root, name, text)) - names:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / file, target / file)


def linked_files(root: Path, page: str, text: str) -> Iterator[str]:
    """Yield the files of the repository that a page links to; MkDocs reports all other targets."""
    for link in LINK.findall(text):
        path = (root / PurePosixPath(page).parent / link).resolve()
        if path.is_file() and path.is_relative_to(root.resolve()):
            yield str(path.relative_to(root.resolve()))

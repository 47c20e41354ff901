"""Why a tree cannot be released: all reasons at once, each with what to do."""

import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

from . import changelog, version
from .parts import PARTS, chosen

MOST_FILES = 5
"""How many changed files a message names."""


def problems(root: Path, wanted: str, without: Collection[str]) -> Iterator[str]:
    """Yield each reason why this tree cannot be released as `wanted`."""
    if not version.VERSION.fullmatch(wanted):
        yield f"VERSION={wanted}: three numbers are needed, as in VERSION=0.2.0"
        return
    if changed := changes(root):
        shown = ", ".join(changed[:MOST_FILES]) + (", …" if len(changed) > MOST_FILES else "")
        yield f"the tree is not clean ({shown}): commit or remove what git does not have"
    found = version.current(root)
    if found != wanted:
        yield (
            f"pyproject.toml says {found}: run `make version VERSION={wanted}`, and commit what it "
            "changes"
        )
    try:
        changelog.section((root / "CHANGELOG.md").read_text(encoding="utf-8"), wanted)
    except changelog.ChangelogError as error:
        yield str(error)
    names = {part.name for part in PARTS}
    if unknown := sorted(set(without) - names):
        yield f"no part is called {', '.join(unknown)}: parts are {', '.join(sorted(names))}"
    for part in chosen(without):
        if missing := part.missing(root):
            yield f"part {part.name}: {missing}; to leave it out, say WITHOUT={part.name}"


def changes(root: Path) -> list[str]:
    """Return the files that differ from the commit, also new ones that git does not ignore."""
    status = subprocess.run(
        ("git", "status", "--porcelain"), cwd=root, capture_output=True, text=True, check=True
    )
    return [line[3:] for line in status.stdout.splitlines()]


def commit_time(root: Path) -> str:
    """Return the commit's time in seconds, which becomes the time of all files in all archives."""
    shown = subprocess.run(
        ("git", "log", "-1", "--format=%ct"), cwd=root, capture_output=True, text=True, check=True
    )
    return shown.stdout.strip()

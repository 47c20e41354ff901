"""The navigation of `mkdocs.yml`, with its patterns replaced by pages."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any


def expanded(entries: Iterable[Any], pages: Iterable[str]) -> list[Any]:
    """Return the entries as MkDocs wants them: lists, titles and paths of single pages."""
    known = sorted(pages, key=_order)
    return [new for entry in entries for new in _expanded(entry, known)]


def paths(entries: Iterable[Any]) -> Iterator[str]:
    """Yield each path in a navigation."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from paths([below] if isinstance(below, str) else below)


def _expanded(entry: Any, known: list[str]) -> list[Any]:
    """Return what replaces an entry; nothing where its pattern matches no page."""
    if isinstance(entry, str):
        return [page for page in known if fnmatchcase(page, entry)] if "*" in entry else [entry]
    ((title, below),) = entry.items()
    inside = expanded([below] if isinstance(below, str) else below, known)
    return [{title: inside}] if inside else []


def _order(page: str) -> tuple[str, bool, str]:
    """Order pages by folder and name, each folder's README first."""
    path = PurePosixPath(page)
    return str(path.parent), path.name != "README.md", path.name

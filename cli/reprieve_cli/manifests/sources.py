"""Reads files, folders and standard input as texts. An unreadable file yields the reason."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

STDIN = "-"
MAX_BYTES = 64 * 1024 * 1024
"""Limit of one file: enough for a cluster's whole configuration, but fits a laptop's memory."""

_SUFFIXES = (".yaml", ".yml", ".json")
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml")
"""Input of kustomize. They may omit the kind, and the API server never receives them."""


class Unreadable(Exception):  # noqa: N818 - named for what it reports, as `click.Abort` is
    """A file or document that cannot be read, and why.

    `line` counts from 0 in the text of one document. In what `read_all` and `documents.read` yield,
    it counts from 1 in the file; 0 is none.
    """

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class SourceText(NamedTuple):
    """A file's content, or why it cannot be read."""

    file: str
    content: str | Unreadable


def read_all(
    names: Iterable[str], *, recursive: bool, max_bytes: int | None = None
) -> Iterator[SourceText]:
    """Yield the text of each file, of each manifest in a folder, and of standard input for `-`."""
    limit = MAX_BYTES if max_bytes is None else max_bytes
    for name in names:
        if name == STDIN:
            yield SourceText("stdin", _decoded(sys.stdin.buffer.read(limit + 1), limit))
        elif Path(name).is_dir():
            yield from _read_folder(Path(name), limit, recursive=recursive)
        else:
            yield _read_file(Path(name), limit)


def _read_folder(folder: Path, max_bytes: int, *, recursive: bool) -> Iterator[SourceText]:
    files = sorted(_manifests(folder, recursive=recursive))
    if not files:
        hint = "" if recursive else "; -R also reads the folders below"
        yield SourceText(
            str(folder),
            Unreadable(f"no {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]} file in it{hint}"),
        )
    yield from (_read_file(file, max_bytes) for file in files)


def _manifests(folder: Path, *, recursive: bool) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        if not recursive:
            folders.clear()
        for file in files:
            if file.endswith(_SUFFIXES) and file not in _KUSTOMIZATIONS:
                yield Path(root, file)


def _read_file(path: Path, max_bytes: int) -> SourceText:
    try:
        with path.open("rb") as file:
            return SourceText(str(path), _decoded(file.read(max_bytes + 1), max_bytes))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return SourceText(str(path), Unreadable(reason[:1].lower() + reason[1:]))


def _decoded(content: bytes, max_bytes: int) -> str | Unreadable:
    if len(content) > max_bytes:
        return Unreadable(f"larger than {max_bytes // 1024 // 1024} MiB: split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Unreadable("not UTF-8 text", 1 + content.count(b"\n", 0, error.start))

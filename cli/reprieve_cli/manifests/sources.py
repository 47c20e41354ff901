"""Reads files, folders and standard input as texts. An unreadable file yields the reason."""

import fnmatch
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

STDIN = "-"
MAX_BYTES = 64 * 1024 * 1024
"""Limit of one file: enough for a cluster's whole configuration, but fits a laptop's memory."""

_SUFFIXES = (".yaml", ".yml", ".json")


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
    is_named: bool = True
    """False for a file that was found in a folder: it may have another purpose."""


def read_all(
    names: Iterable[str],
    *,
    recursive: bool,
    max_bytes: int | None = None,
    excluded: Sequence[str] = (),
) -> Iterator[SourceText]:
    """Yield the text of each file, of each manifest in a folder, and of standard input for `-`.

    Files and folders that match one of the patterns `excluded` are left out.
    """
    limit = MAX_BYTES if max_bytes is None else max_bytes
    for name in names:
        path = Path(name)
        if name == STDIN:
            yield SourceText("stdin", _read_stdin(limit))
        elif _is_excluded(path, path, excluded):
            continue
        elif stat.S_ISDIR(_mode(path)):
            yield from _read_folder(path, limit, recursive=recursive, excluded=excluded)
        else:
            yield SourceText(str(path), _read_file(path, limit))


def _is_excluded(path: Path, below: Path, excluded: Sequence[str]) -> bool:
    """Return whether a pattern matches the name of a file, its path, or its path below FILE."""
    return any(
        fnmatch.fnmatch(text, os.path.normpath(pattern))
        for pattern in excluded
        for text in (path.name, os.path.normpath(path), str(below))
    )


def _read_folder(
    folder: Path, max_bytes: int, *, recursive: bool, excluded: Sequence[str]
) -> Iterator[SourceText]:
    errors: list[OSError] = []
    files = sorted(_manifests(folder, errors.append, recursive=recursive, excluded=excluded))
    if not files and not errors:
        hint = "" if recursive else "; -R also reads the folders below"
        yield SourceText(
            str(folder),
            Unreadable(f"no {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]} file in it{hint}"),
        )
    for error in errors:
        yield SourceText(str(error.filename), Unreadable(_reason(error)))
    for file in files:
        mode = _mode(file)
        # Opening a pipe would wait for a program that writes to it.
        is_special = mode and not stat.S_ISREG(mode)
        content = Unreadable("not a regular file") if is_special else _read_file(file, max_bytes)
        yield SourceText(str(file), content, is_named=False)


def _mode(path: Path) -> int:
    """Return the type of a file and its permissions; 0 if they cannot be read."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _manifests(
    folder: Path,
    on_error: Callable[[OSError], None],
    *,
    recursive: bool,
    excluded: Sequence[str],
) -> Iterator[Path]:
    """Yield the manifests of a folder that are not excluded."""

    def is_read(path: Path) -> bool:
        return not _is_excluded(path, path.relative_to(folder), excluded)

    for root, folders, files in os.walk(folder, onerror=on_error):
        folders[:] = [name for name in folders if recursive and is_read(Path(root, name))]
        for file in files:
            path = Path(root, file)
            if file.endswith(_SUFFIXES) and is_read(path):
                yield path


def _read_stdin(max_bytes: int) -> str | Unreadable:
    if sys.stdin is None:
        return Unreadable("standard input is closed")
    content = sys.stdin.buffer.read(max_bytes + 1)
    # Without this, `kubectl kustomize DIR | reprieve check -` would pass where kubectl has failed.
    return _decoded(content, max_bytes) if content.strip() else Unreadable("it is empty")


def _read_file(path: Path, max_bytes: int) -> str | Unreadable:
    try:
        with path.open("rb") as file:
            return _decoded(file.read(max_bytes + 1), max_bytes)
    except (OSError, ValueError) as error:
        return Unreadable(_reason(error))


def _reason(error: OSError | ValueError) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]


def _decoded(content: bytes, max_bytes: int) -> str | Unreadable:
    if len(content) > max_bytes:
        return Unreadable(f"larger than {max_bytes // 1024 // 1024} MiB: split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Unreadable("not UTF-8 text", 1 + content.count(b"\n", 0, error.start))

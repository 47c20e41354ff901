"""The files that the agent shares with the workload: the request, the answer, and the last save.

The workload may write anything into this folder: links, pipes, folders, half a document, a
gigabyte. So the agent follows no links, waits for no data, and reads no more than an answer may
have. The folder is the root of a volume: it cannot be replaced.
"""

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

MAX_ANSWER = 16 * 1024
"""Bytes; the same limit as in the contract."""
ANSWER_SUFFIX = ".answer"
SAVED_SUFFIX = ".saved"
_WRITE_GRACE_SECONDS = 2.0
"""An answer that is unreadable this long after its last write is invalid, not half written."""

Document = dict[str, object]


class AnswerFile(NamedTuple):
    """The content of the answer file."""

    text: bytes
    document: Document | None
    """`None` if it is not a JSON object."""
    is_complete: bool
    """False if the workload may still be writing it."""


class RequestFiles:
    """The request file at `path`, and the files beside it."""

    def __init__(self, path: str) -> None:
        self.folder, self._name = os.path.split(path)

    def write_request(self, request: Document) -> None:
        """Write the request file atomically."""
        self._replace(self._name, json.dumps(request, separators=(",", ":")))

    def read_request(self) -> Document | None:
        """Return the request in the file, `None` if there is none."""
        content = self._read(self._name)
        return None if content is None else _parse(content[0])

    def write_delivery(self, delivery: str) -> None:
        """Record a delivery by signal."""
        self._replace(self._delivery_name, delivery)

    def read_delivery(self) -> str | None:
        """Return the last recorded delivery."""
        content = self._read(self._delivery_name)
        return None if content is None else content[0].decode("utf-8", "replace").rstrip("\n")

    def read_answer(self) -> AnswerFile | None:
        """Return the answer; `None` if there is no regular file with one."""
        content = self._read(self._name + ANSWER_SUFFIX)
        if content is None:
            return None
        text, written_at = content
        return AnswerFile(text, _parse(text), abs(time.time() - written_at) >= _WRITE_GRACE_SECONDS)

    def delete_answer(self) -> None:
        """Remove the answer to an earlier request, which must not count for the next one."""
        with self._open_folder() as folder:
            _remove(self._name + ANSWER_SUFFIX, folder)

    def last_saved_at(self) -> int | None:
        """Return when the workload last wrote its file, in nanoseconds since the epoch.

        `None` if there is no regular file.
        """
        try:
            with self._open_folder() as folder:
                found = os.stat(self._name + SAVED_SUFFIX, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None
        return found.st_mtime_ns if stat.S_ISREG(found.st_mode) else None

    @property
    def _delivery_name(self) -> str:
        return f".{self._name}.delivered"

    @contextmanager
    def _open_folder(self) -> Iterator[int]:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)

    def _read(self, name: str) -> tuple[bytes, float] | None:
        """Return the content and the time of the last write; `None` if it is not a regular file.

        Reads one byte more than an answer may have, so that a longer one is detected.
        """
        with self._open_folder() as folder:
            try:
                file = os.open(
                    name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
                )
            except OSError:
                return None
        try:
            status = os.fstat(file)
            return (
                (os.read(file, MAX_ANSWER + 1), status.st_mtime)
                if stat.S_ISREG(status.st_mode)
                else None
            )
        except OSError:
            return None
        finally:
            os.close(file)

    def _replace(self, name: str, text: str) -> None:
        unfinished = f".{name}.new"
        with self._open_folder() as folder:
            _remove(unfinished, folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(unfinished, flags, 0o644, dir_fd=folder), "w") as file:
                # Independent of the umask: the workload may run as another user.
                os.fchmod(file.fileno(), 0o644)
                file.write(text + "\n")
            os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, IsADirectoryError):
        return  # A folder is never read as an answer.


def _parse(text: bytes) -> Document | None:
    if len(text) > MAX_ANSWER:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None

"""The files that agent and workload share: the request, which the agent writes, and beside it the answer to it.

The workload may write whatever it likes into this folder: links, pipes, folders, half a document, a gigabyte. So nothing is
followed, nothing is waited for, and no more is read than an answer may have. The folder is a volume's root: it cannot be
replaced.
"""

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

MAX_ANSWER = 16 * 1024
"""Bytes; the same as the contract's."""
ANSWER_SUFFIX = ".answer"
_WRITE_GRACE_SECONDS = 2.0
"""What cannot be read so long after it was written is not half written, but wrong."""

Document = dict[str, object]


class AnswerFile(NamedTuple):
    """What stands in the answer's file."""

    text: bytes
    document: Document | None
    """`None` where it is no JSON object."""
    is_complete: bool
    """False where somebody is perhaps still writing it."""


class RequestFiles:
    """The request's file, `path`, and the answer's."""

    def __init__(self, path: str) -> None:
        self.folder, self._name = os.path.split(path)

    def write_request(self, request: Document) -> None:
        """Put a request in its place, whole."""
        self._replace(self._name, json.dumps(request, separators=(",", ":")))

    def read_request(self) -> Document | None:
        """Return the request that is in its place, `None` where there is none."""
        found = self._read(self._name)
        return None if found is None else _parse(found[0])

    def write_delivery(self, delivery: str) -> None:
        """Write down that this was delivered otherwise than by the file itself."""
        self._replace(self._delivery_name, delivery)

    def read_delivery(self) -> str | None:
        """Return what was written down last."""
        found = self._read(self._delivery_name)
        return None if found is None else found[0].decode("utf-8", "replace").rstrip("\n")

    def read_answer(self) -> AnswerFile | None:
        """Return the answer; `None` where there is none that is a file."""
        found = self._read(self._name + ANSWER_SUFFIX)
        if found is None:
            return None
        text, written_at = found
        return AnswerFile(text, _parse(text), abs(time.time() - written_at) >= _WRITE_GRACE_SECONDS)

    def delete_answer(self) -> None:
        """Remove an answer to an earlier request, which must not pass for one to the next."""
        with self._open_folder() as folder:
            _remove(self._name + ANSWER_SUFFIX, folder)

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
        """Return at most a byte more than an answer may have, so that too long is seen as too long, and when it was written."""
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
                # Whatever the umask is: the workload may be another user.
                os.fchmod(file.fileno(), 0o644)
                file.write(text + "\n")
            os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, IsADirectoryError):
        return  # A folder is never read for an answer.


def _parse(text: bytes) -> Document | None:
    if len(text) > MAX_ANSWER:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None

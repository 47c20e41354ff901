"""Checkpoints on a file system: whole or not there, also where the process is killed.

A checkpoint is written under another name, forced to the disk, and renamed.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Union

StrPath = Union[str, "os.PathLike[str]"]

_COMPLETE = re.compile(r"step-(\d+)")
_UNFINISHED = re.compile(r"\.step-(\d+)\..*")
_DISCARDED = ".discarded-"

_log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    """A complete checkpoint: the state after `step` steps, in the folder `path`."""

    step: int
    path: Path


def atomic_write(path: StrPath, content: str | bytes) -> Path:
    """Write a file whole or not at all; an older file of that name stays until then."""
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with unfinished.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)
    return target


class CheckpointFolder:
    """The checkpoints of one training run, each in a folder `step-N`.

    Where several pods share a volume, each training run needs a folder of its own.

    Args:
        path: The folder; it is created if it is not there.
        keep: How many checkpoints stay; older ones are deleted after a new one is complete.
    """

    def __init__(self, path: StrPath, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError("keep must be at least 1")
        self.path = Path(path)
        self._keep = keep
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, step: int, write: Callable[[Path], object]) -> Path:
        """Call `write` with an empty folder, and make what it wrote there the checkpoint of `step`.

        There is never a second checkpoint of one step: if it is there, `write` is not called. So of
        several processes that save the same step, one writes it all, such as rank 0.
        """
        target = self.path / f"step-{step}"
        if target.is_dir():
            return target
        unfinished = self.path / f".step-{step}.{uuid.uuid4().hex}"
        unfinished.mkdir()
        try:
            write(unfinished)
            _sync_all(unfinished)
            self._publish(unfinished, target)
        except BaseException:
            _discard(unfinished)
            raise
        _sync_folder(self.path)
        self._clean(step)
        return target

    def latest(self) -> Checkpoint | None:
        """Return the checkpoint with the highest step; `None` without one."""
        return max(self.all(), default=None)

    def all(self) -> list[Checkpoint]:
        """Return all complete checkpoints."""
        return find(self.path, _COMPLETE)

    def _publish(self, unfinished: Path, target: Path) -> None:
        """Rename; where another process was faster, its checkpoint stays."""
        try:
            # The kernel replaces no folder that has something in it.
            unfinished.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            _discard(unfinished)

    def _clean(self, step: int) -> None:
        """Delete old checkpoints, and what killed processes left unfinished before `step`.

        Another process may still be writing the same step. Checkpoints of later steps, of a
        training that began anew or goes on from an older one, are left.
        """
        for checkpoint in [old for old in self.all() if old.step <= step][: -self._keep]:
            _discard(checkpoint.path)
        for path in self.path.iterdir():
            match = _UNFINISHED.fullmatch(path.name)
            if match and int(match[1]) < step:
                _discard(path)
            elif path.name.startswith(_DISCARDED):
                shutil.rmtree(path, ignore_errors=True)


def find(folder: Path, name: re.Pattern[str]) -> list[Checkpoint]:
    """Return the checkpoints of a folder by step; the first group of `name` is the step."""
    matches = ((name.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted(Checkpoint(int(match[1]), path) for match, path in matches if match)


def existing(path: Path | None) -> Path | None:
    """Return a path to resume from, or `None` and a warning where it is gone.

    Only an absolute path is looked for: another one may name a place that is no file system.
    """
    if path is None or not path.is_absolute() or path.exists():
        return path
    _log.warning("not resuming from %s: it is not there", path)
    return None


def step_of(path: StrPath) -> int | None:
    """Return the step in the name of a folder that `CheckpointFolder` wrote."""
    match = _COMPLETE.fullmatch(Path(path).name)
    return int(match[1]) if match else None


def _discard(folder: Path) -> None:
    """Delete a folder; rename it first, so that no reader takes half of it for a checkpoint."""
    hidden = folder.parent / f"{_DISCARDED}{os.getpid()}-{folder.name.lstrip('.')}"
    try:
        folder.rename(hidden)
    except OSError:
        return  # another process discards it, too
    shutil.rmtree(hidden, ignore_errors=True)


def _sync_all(folder: Path) -> None:
    """Force all that is in a folder to the disk."""
    for root, _, files in os.walk(folder, topdown=False):
        for path in (Path(root, name) for name in files):
            if path.is_file():
                _sync(path)
        _sync_folder(Path(root))


def _sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk, where the file system can do that."""
    try:
        _sync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Checkpoints on a file system: whole or not there, also where the process is killed.

A checkpoint is written under another name, forced to the disk, and renamed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Union

StrPath = Union[str, "os.PathLike[str]"]

_COMPLETE = re.compile(r"step-(\d+)")
_UNFINISHED = re.compile(r"\.step-(\d+)\..*")
_DISCARDED = ".discarded-"


class Checkpoint(NamedTuple):
    """A complete checkpoint: the state after `step` steps, in the folder `path`."""

    step: int
    path: Path


def atomic_write(path: StrPath, content: str | bytes) -> Path:
    """Write a file whole or not at all; an older file of that name stays until then."""
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)  # mkstemp's is 0600, which other users cannot read
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink()
        raise
    _sync(target.parent)
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

        There is never a second checkpoint of one step: if it is there, `write` is not called.
        """
        target = self.path / f"step-{step}"
        if target.is_dir():
            return target
        unfinished = Path(tempfile.mkdtemp(dir=self.path, prefix=f".step-{step}."))
        try:
            unfinished.chmod(0o755)
            write(unfinished)
            for each in _files_then_folders(unfinished):
                _sync(each)
            self._publish(unfinished, target)
        except BaseException:
            _discard(unfinished)
            raise
        _sync(self.path)
        self._clean(step)
        return target

    def latest(self) -> Checkpoint | None:
        """Return the checkpoint with the highest step; `None` without one."""
        return max(self.all(), default=None)

    def all(self) -> list[Checkpoint]:
        """Return all complete checkpoints."""
        matches = ((_COMPLETE.fullmatch(path.name), path) for path in self.path.iterdir())
        return sorted(Checkpoint(int(match[1]), path) for match, path in matches if match)

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
        """Delete old checkpoints, and what killed processes left unfinished up to `step`."""
        for checkpoint in self.all()[: -self._keep]:
            _discard(checkpoint.path)
        for path in self.path.iterdir():
            match = _UNFINISHED.fullmatch(path.name)
            if match and int(match[1]) <= step:
                _discard(path)
            elif path.name.startswith(_DISCARDED):
                shutil.rmtree(path, ignore_errors=True)


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


def _files_then_folders(folder: Path) -> Iterator[Path]:
    for root, _, files in os.walk(folder, topdown=False):
        yield from (Path(root, name) for name in files)
        yield Path(root)


def _sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""A pytest plugin: of two runs with several workers on one machine, the second waits.

The clusters of the workers have fixed names, so that a run removes what an interrupted one left.
Without this, each test of the second run would fail: its cluster is in use.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from realcluster import paths

CLUSTER_FOLDERS = ("chaos", "cluster", "differential")
_LOCK = pytest.StashKey[TextIO]()


def needs_clusters(arguments: list[str], invoked_in: Path, tests: Path) -> bool:
    """Say whether tests that need a cluster are among those that the arguments name."""
    named = [invoked_in / argument.partition("::")[0] for argument in arguments]
    folders = [tests / folder for folder in CLUSTER_FOLDERS]
    return any(
        path.is_relative_to(folder) or folder.is_relative_to(path)
        for path in named
        for folder in folders
    )


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Iterator[None]:
    """Take the lock before the workers start; it ends with this process."""
    is_controller = bool(getattr(config.option, "numprocesses", None))
    tests = config.rootpath / "tests"
    folder = config.invocation_params.dir
    if is_controller and needs_clusters(config.args, folder, tests):
        config.stash[_LOCK] = _locked(paths.state_home() / "test-run.lock")
    return (yield)


def _locked(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        other = file.read().strip()
        os.write(1, f"waiting for another run of the cluster tests: {other}\n".encode())
        fcntl.flock(file, fcntl.LOCK_EX)
    file.seek(0)
    file.truncate()
    print(f"process {os.getpid()} in {Path.cwd()}", file=file, flush=True)
    return file

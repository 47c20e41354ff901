"""Tools of the machine that run to their end, such as apt-get: a failure shows their output."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import ClusterError


def run(command: Sequence[str | Path], failure: str, folder: Path | None = None) -> None:
    """Run a command in `folder`; raise `ClusterError` with its output and `failure` if it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"{done.stdout.strip()}\n{failure}")

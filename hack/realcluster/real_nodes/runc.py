"""runc, which starts containers: the machine's own, or Debian's package unpacked into the cache.

It is not built from Go modules: without libseccomp, every sandbox fails with "seccomp not
supported".
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from realcluster import paths
from realcluster.errors import ClusterError
from realcluster.progress import Progress

from . import debian_packages

PACKAGE = "runc"
PLACE = Path("usr/sbin/runc")  # in the package


def obstacle() -> str | None:
    """Return why runc cannot be provided here, or None."""
    if program := _present():
        return (
            None
            if _has_seccomp(program)
            else f"{program} does not run, or was built without seccomp"
        )
    missing = debian_packages.obstacle()
    return f"there is no runc, and no {missing} to get it with" if missing else None


def ensure(progress: Progress) -> Path:
    """Return a working runc; download it if necessary."""
    if program := _present():
        return program
    with (
        progress.task("downloading runc (Debian package)"),
        tempfile.TemporaryDirectory() as scratch,
    ):
        unpacked = _unpack(Path(scratch))
        program = _cached()
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(".part")
        shutil.copy(unpacked / PLACE, part)
        if not _has_seccomp(part):
            raise ClusterError(
                "this distribution's runc does not run here: install its package `runc` with its "
                "dependencies"
            )
        part.replace(program)
    return program


def _present() -> Path | None:
    if on_path := shutil.which("runc"):
        return Path(on_path)
    return _cached() if _cached().exists() else None


def _cached() -> Path:
    return paths.cache_home() / "bin" / "runc-debian" / "runc"


def _has_seccomp(program: Path) -> bool:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return "libseccomp" in said.stdout


def _unpack(folder: Path) -> Path:
    try:
        return debian_packages.unpack((PACKAGE,), folder)
    except ClusterError as error:
        raise ClusterError(f"{error}: there is no runc on this machine; install it") from None

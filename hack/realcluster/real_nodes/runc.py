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
    missing = [tool for tool in ("apt-get", "dpkg") if not shutil.which(tool)]
    return f"there is no runc, and no {missing[0]} to get it with" if missing else None


def ensure(progress: Progress) -> Path:
    """Return a working runc; download it if necessary."""
    if program := _present():
        return program
    with (
        progress.task("downloading runc (Debian package)"),
        tempfile.TemporaryDirectory() as scratch,
    ):
        _download(scratch)
        for package in Path(scratch).glob("*.deb"):
            _run(["dpkg", "-x", str(package), f"{scratch}/unpacked"], scratch)
        program = _cached()
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(".part")
        shutil.copy(Path(scratch, "unpacked", PLACE), part)
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


def _download(folder: str) -> None:
    """Download the package into `folder`; refresh missing or stale package lists first."""
    # Without this option, apt drops its privileges and cannot write into a private folder.
    download = ["apt-get", "-o", "APT::Sandbox::User=root", "download", PACKAGE]
    try:
        _run(download, folder)
    except ClusterError:
        _run(["apt-get", "update"], folder)
        _run(download, folder)


def _run(command: list[str], folder: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(
            f"{done.stdout.strip()}\nno runc on this machine, and `{' '.join(command)}` failed: "
            "install runc"
        )

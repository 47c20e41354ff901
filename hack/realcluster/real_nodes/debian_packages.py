"""Programs of the distribution that a machine may lack: Debian's packages, unpacked, not installed.

For programs that are not built from Go modules.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from realcluster import tools
from realcluster.errors import ClusterError

TOOLS = ("apt-get", "dpkg")


def obstacle() -> str | None:
    """Return the tool that is missing here, or None."""
    return next((tool for tool in TOOLS if not shutil.which(tool)), None)


def unpack(names: tuple[str, ...], folder: Path) -> Path:
    """Download packages into `folder`; return the folder in it that has all their files."""
    # Without this option, apt drops its privileges and cannot write into a private folder.
    download = ["apt-get", "-o", "APT::Sandbox::User=root", "download", *names]
    try:
        _run(download, folder)
    except ClusterError:  # the package lists are missing or stale
        _run(["apt-get", "update"], folder)
        _run(download, folder)
    unpacked = folder / "unpacked"
    for package in folder.glob("*.deb"):
        _run(["dpkg", "-x", str(package), str(unpacked)], folder)
    return unpacked


def _run(command: list[str], folder: Path) -> None:
    tools.run(command, f"`{' '.join(command)}` failed", folder)

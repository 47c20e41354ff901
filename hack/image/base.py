"""The image's lowest layer: Debian's files, without what no program reads.

Maintainer scripts do not run. What they would make and the programs need is made here: the merged
/usr, the bundle of CA certificates, the users, and the list of packages that scanners read.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

from realcluster.progress import Progress

from . import debian
from .debian import Package
from .errors import ImageError

USER = 65532  # a number, so that the kubelet can check runAsNonRoot
MERGED = ("bin", "lib", "lib64", "sbin")
"""Folders that are links into /usr; packages of Debian 12 still name them."""
NOT_WANTED = re.compile(
    r"usr/share/(bash-completion|bug|doc-base|info|lintian|locale|man|pixmaps|python3)(/.*)?"
    r"|usr/share/doc/.*/(?!copyright$)[^/]*"
    r"|usr/lib/[^/]+/gconv(/.*)?"  # character sets of iconv(3); Python has its own
    r"|usr/lib/python3[^/]*/(.*/)?(config-[^/]*|idlelib|lib2to3|pydoc_data|tests?|turtledemo)(/.*)?"
    r"|usr/bin/(?!python3)[^/]*|usr/sbin/[^/]*"
    r"|etc/(apt|cron[^/]*|init\.d|kernel|python3[^/]*|update-motd\.d)(/.*)?"
)
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
PASSWD = f"root:x:0:0:root:/root:/nonexistent\nnonroot:x:{USER}:{USER}::/:/nonexistent\n"
GROUP = f"root:x:0:\nnonroot:x:{USER}:\n"


def make(root: Path, packages: Iterable[Package], progress: Progress) -> None:
    """Fill the empty folder `root`."""
    for link in MERGED:
        (root / "usr" / link).mkdir(parents=True)
        (root / link).symlink_to(f"usr/{link}")
    with progress.task("unpacking the Debian packages") as task:
        for package in packages:
            task.tick(package.name)
            _unpack(package, root)
            _write(root / "var/lib/dpkg/status.d" / package.name, debian.control(package))
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    _write(root / CERTIFICATES, "".join(file.read_text() for file in certificates))
    _write(root / "etc/passwd", PASSWD)
    _write(root / "etc/group", GROUP)


def python_of(root: Path) -> Path:
    """Return the image's interpreter, like usr/bin/python3.11."""
    found = [
        file
        for file in (root / "usr/bin").glob("python3.*")
        if re.fullmatch(r"python3\.\d+", file.name)
    ]
    if len(found) != 1:
        raise ImageError(f"{len(found)} interpreters in the Debian packages instead of one")
    return found[0]


def place_of(member: str) -> str:
    """Return where a package's file lies in the image, without a leading slash."""
    path = member.removeprefix(".").lstrip("/")
    top, _, rest = path.partition("/")
    return f"usr/{path}" if top in MERGED and rest else path


def _unpack(package: Package, root: Path) -> None:
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", package.file], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as content:
            for member in content:
                place = place_of(member.name.rstrip("/"))
                if place and place not in MERGED and not NOT_WANTED.fullmatch(place):
                    _extract(content, member, root, root / place)
    if process.returncode:
        raise ImageError(f"{package.file} cannot be unpacked: remove that file and try again")


def _extract(content: tarfile.TarFile, member: tarfile.TarInfo, root: Path, target: Path) -> None:
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        target.chmod(member.mode)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        target.symlink_to(member.linkname)
    elif member.islnk():
        shutil.copy2(root / place_of(member.linkname), target)
    elif source := content.extractfile(member):
        with target.open("wb") as file:
            shutil.copyfileobj(source, file)
        target.chmod(member.mode)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)

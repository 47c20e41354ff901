"""Debian's packages of the image: which, in which versions, and their files.

apt resolves and downloads them with this machine's own sources, but for each architecture with
lists, cache and status of its own: what is installed on the machine has no influence, and nothing
changes there.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from realcluster import paths
from realcluster.build_lock import build_lock
from realcluster.progress import Progress

from . import command
from .errors import ImageError

ROOTS = ("base-files", "python3-minimal", "libpython3-stdlib", "ca-certificates", "tzdata")
LEFT_OUT = {
    "awk": "base-files' maintainer script needs it",
    "debconf": "for questions at the installation",
    "dpkg": "nothing is installed later",
    "libdb5.3": "the module dbm.ndbm",
    "libncursesw6": "the module curses",
    "libnsl2": "the module nis",
    "libreadline8": "for an interactive Python",
    "libsqlite3-0": "the module sqlite3",
    "libtinfo6": "libncursesw6 and libreadline8",
    "libtirpc3": "the module nis",
    "openssl": "the command; the library is libssl3",
}
"""Packages that others depend on and the programs do not need, and what they would be for. apt is
told that they are there already."""
PROVIDED = {"debconf": "debconf-2.0"}

LOCKS = Path(__file__).parent / "locks"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
TOOLS = dict.fromkeys(
    ("apt-get", "apt-cache", "dpkg-deb"),
    "the image is built from Debian's packages, on Debian or a distribution derived from it",
)
NETWORK = "does this machine reach the Debian mirror of its apt configuration?"


@dataclass(frozen=True, order=True)
class Package:
    """One binary package of one version."""

    name: str
    version: str
    sha256: str

    @property
    def file(self) -> Path:
        """Where its .deb is kept."""
        return _home() / "packages" / f"{self.sha256}.deb"


@dataclass(frozen=True)
class Release:
    """The distribution of this machine, whose packages of one architecture become the base."""

    identity: str  # `debian`
    version: str  # `12`
    architecture: str  # as Debian and OCI call it: `amd64`

    @property
    def name(self) -> str:
        """Return `debian-12`."""
        return f"{self.identity}-{self.version}"

    @property
    def lock(self) -> Path:
        """The file that pins its packages."""
        return LOCKS / f"{self.name}-{self.architecture}.lock"


def own_architecture() -> str:
    """Return that of this machine."""
    machine = platform.machine()
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        known = ", ".join(ARCHITECTURES)
        raise ImageError(f"this machine is {machine}: images are built on {known}")
    return architecture


def release(architecture: str) -> Release:
    """Return the distribution of this machine; raise where it is not derived from Debian."""
    command.need(TOOLS)
    facts = platform.freedesktop_os_release()
    return Release(facts["ID"], facts.get("VERSION_ID", "unstable"), architecture)


def packages(of: Release, progress: Progress) -> list[Package]:
    """Return the packages of the image, all in the cache.

    Those of the lock, or, where the mirror no longer has one of them, the newest of all: apt has
    resolved them together.
    """
    # apt fails where another build reads or writes the cache of this architecture.
    with build_lock(_home() / f"{of.architecture}.lock", progress):
        return _fetch(of, progress)


def _fetch(of: Release, progress: Progress) -> list[Package]:
    locked = read_lock(of.lock)
    if locked and all(package.file.exists() for package in locked):
        return locked
    newest = resolve(of, progress)
    if locked and (gone := _gone(of, locked)):
        progress.say(
            f"the mirror no longer has {', '.join(gone)}, which {of.lock.name} pins: taking the "
            "newest of all packages, so the digest differs; `make image-lock` pins them"
        )
        locked = []
    elif not locked:
        progress.say(f"no lock for {of.name} on {of.architecture}: taking the newest packages")
    chosen = locked or newest
    _download(of, chosen, progress)
    return chosen


def resolve(of: Release, progress: Progress) -> list[Package]:
    """Return the newest packages that the image needs, as apt resolves them."""
    _prepare(of)
    with progress.task(f"reading what the Debian mirror has for {of.architecture}"):
        command.run(_apt(of, "apt-get", "update"), NETWORK)
    simulated = _apt(of, "apt-get", "install", "--simulate", "--no-install-recommends", *ROOTS)
    return sorted(_described(of, parse_simulation(command.run(simulated, NETWORK))))


def parse_simulation(text: str) -> list[tuple[str, str]]:
    """Return (name, version) of each package that apt would install.

    Its lines are `Inst libc6 (2.36-9 Debian:12/stable [amd64])`.
    """
    return re.findall(r"^Inst (\S+) \((\S+)", text, re.MULTILINE)


def read_lock(file: Path) -> list[Package]:
    """Return the pinned packages; none if there is no such file."""
    if not file.exists():
        return []
    lines = file.read_text().splitlines()
    return [Package(*line.split()) for line in lines if line and not line.startswith("#")]


def write_lock(file: Path, pinned: Iterable[Package]) -> None:
    """Pin these packages."""
    file.parent.mkdir(parents=True, exist_ok=True)
    head = "# Written by `make image-lock`: package, version, SHA-256 of the .deb.\n"
    lines = [f"{package.name} {package.version} {package.sha256}\n" for package in pinned]
    file.write_text(head + "".join(sorted(lines)))


def control(package: Package) -> str:
    """Return the package's control file: its name, version, dependencies, description."""
    return command.run(["dpkg-deb", "--field", package.file], "remove that file and try again")


def _described(of: Release, wanted: Iterable[tuple[str, str]]) -> Iterator[Package]:
    """Yield the packages with their checksums, which are in the mirror's signed lists."""
    return _shown(of, *(f"{name}={version}" for name, version in wanted))


def _gone(of: Release, locked: Iterable[Package]) -> list[str]:
    """Return the names of the pinned packages that are neither in the cache nor on the mirror."""
    missing = [package for package in locked if not package.file.exists()]
    offered = set(_shown(of, "--all-versions", *(package.name for package in missing)))
    return [package.name for package in missing if package not in offered]


def _shown(of: Release, *words: str) -> Iterator[Package]:
    """Yield the packages that `apt-cache show` describes."""
    shown = command.run(_apt(of, "apt-cache", "show", *words), NETWORK)
    for stanza in shown.strip().split("\n\n"):
        fields = HeaderParser().parsestr(stanza)
        yield Package(fields["Package"], fields["Version"], fields["SHA256"])


def _download(of: Release, wanted: Iterable[Package], progress: Progress) -> None:
    missing = [package for package in wanted if not package.file.exists()]
    if not missing:
        return
    folder = _home() / "packages"
    names = [f"{package.name}={package.version}" for package in missing]
    with progress.task(f"downloading {len(missing)} Debian packages"):
        command.run(_apt(of, "apt-get", "download", *names), NETWORK, folder=folder)
        for package in missing:
            for file in folder.glob(f"{package.name}_*.deb"):
                _keep(file, package)


def _keep(file: Path, package: Package) -> None:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != package.sha256:
        file.unlink()
        raise ImageError(f"{package.name} {package.version} is not what its checksum says")
    file.replace(package.file)


def _home() -> Path:
    return paths.cache_home() / "image"


def _prepare(of: Release) -> None:
    """Write apt's own status, in which the packages that are left out are installed."""
    apt = _home_of_apt(of)
    for folder in (
        apt / "state/lists/partial",
        apt / "cache/archives/partial",
        _home() / "packages",
    ):
        folder.mkdir(parents=True, exist_ok=True)
    (apt / "status").write_text("".join(_installed(name) for name in LEFT_OUT))


def _home_of_apt(of: Release) -> Path:
    return _home() / of.architecture


def _installed(name: str) -> str:
    fields = {
        "Package": name,
        "Status": "install ok installed",
        "Architecture": "all",
        "Multi-Arch": "foreign",
        "Version": "9999",
        "Maintainer": "none",
        "Description": "left out",
    }
    if name in PROVIDED:
        fields["Provides"] = PROVIDED[name]
    return "".join(f"{key}: {value}\n" for key, value in fields.items()) + "\n"


def _apt(of: Release, program: str, action: str, *words: str) -> list[str]:
    home = _home_of_apt(of)
    options = {
        "APT::Architecture": of.architecture,
        # Without it, this machine's own architecture is a second one.
        "APT::Architectures": of.architecture,
        "Dir::State": str(home / "state"),
        "Dir::State::status": str(home / "status"),
        "Dir::Cache": str(home / "cache"),
        # Container images of Debian switch these off: apt would read its lists anew each time.
        "Dir::Cache::pkgcache": "pkgcache.bin",
        "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
        "APT::Sandbox::User": "",  # without it, apt as root cannot write into a private folder
    }
    flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    return [program, *flags, action, *words]

"""What a release consists of: one line for each part.

A part is a Python package of this repository or a make target. Each writes into `dist/`, and the
release fails where a part does not write what its line names.
"""

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Part:
    """A part of the release; `makes` are patterns of files in `dist/`, each with `{version}`."""

    name: str
    makes: tuple[str, ...]
    package: str = ""
    """The folder of a Python package, with its `pyproject.toml`."""
    target: str = ""
    """The make target, for all other parts."""
    variables: tuple[str, ...] = ()
    """The variables of the target."""

    def missing(self, root: Path) -> str | None:
        """Say what the tree does not have, or `None` where the part can be built."""
        if self.package:
            file = Path(self.package, "pyproject.toml")
            return None if (root / file).exists() else f"there is no {file}"
        makefile = (root / "Makefile").read_text(encoding="utf-8")
        has_target = re.search(f"^{re.escape(self.target)}:", makefile, re.MULTILINE)
        return None if has_target else f"the Makefile has no target `{self.target}`"

    def command(self, dist: Path) -> tuple[str, ...]:
        """Return the command that builds the part, to be run in the root of the tree."""
        if self.package:
            return (sys.executable, "-m", "release.package", self.package, str(dist))
        return ("make", self.target, *self.variables)

    def absent(self, dist: Path, version: str) -> Iterator[str]:
        """Yield what the part should have written into `dist/` and did not."""
        for pattern in self.makes:
            name = pattern.format(version=version)
            if not any(dist.glob(name)):
                yield name


PARTS = (
    Part("packages", ("reprieve-{version}-py3-none-any.whl", "reprieve-{version}.tar.gz"), "."),
    Part(
        "client",
        ("reprieve_client-{version}-py3-none-any.whl", "reprieve_client-{version}.tar.gz"),
        "client",
    ),
    Part(
        "image",
        (
            "reprieve-{version}.oci.tar",
            "reprieve-{version}-amd64.cdx.json",
            "reprieve-{version}-arm64.cdx.json",
        ),
        target="image",
        variables=("ARCH=amd64,arm64",),
    ),
    Part("chart", ("reprieve-{version}.tgz",), target="chart"),
    Part("install", ("install.yaml",), target="install-yaml"),
)


def chosen(without: Collection[str]) -> tuple[Part, ...]:
    """Return the parts of a release that leaves some out, by name."""
    return tuple(part for part in PARTS if part.name not in without)


def build(part: Part, root: Path, dist: Path, version: str, epoch: str) -> str | None:
    """Build a part; return what went wrong, or `None`."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONPATH": str(root / "hack")}
    if subprocess.run(part.command(dist), cwd=root, env=environment, check=False).returncode:
        return f"could not build the part `{part.name}`; its messages are above"
    if absent := list(part.absent(dist, version)):
        return f"the part `{part.name}` did not write {', '.join(absent)} into {dist.name}/"
    return None

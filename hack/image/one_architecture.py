"""One architecture of the image: Debian's packages, the locked dependencies, the programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from realcluster.progress import Progress

from . import archive, base, debian, python_packages

# The lower layers have one time for ever: a registry and a node then hold them once for all
# versions that have the same packages. 1980 is the first year that every archive format can say.
LOWER_TIME = 315532800


@dataclass(frozen=True)
class Made:
    """What was made. The layers and the Python packages are files in the scratch folder."""

    release: debian.Release
    python: str  # `python3.11`
    layers: Sequence[archive.Layer]
    debian_packages: Sequence[debian.Package]
    python_packages: Sequence[Distribution]


def make(
    release: debian.Release, wheel: Path, scratch: Path, epoch: int, progress: Progress
) -> Made:
    """Make the layers, in the folder `scratch`."""
    own = debian.release(debian.own_architecture())
    packages = debian.packages(release, progress)
    roots = {part: scratch / part for part in ("base", "dependencies", "programs")}
    for root in roots.values():
        root.mkdir(parents=True)
    base.make(roots["base"], packages, progress)
    python = base.python_of(roots["base"])
    with progress.task(f"installing the locked dependencies for {python.name}"):
        target = roots["dependencies"]
        python_packages.install_dependencies(target, python, release.architecture)
        python_packages.install_programs(roots["programs"], python, wheel)
    interpreter = roots["base"]
    if release != own:
        # Bytecode is the same on every architecture, but only this machine's own Python runs.
        interpreter = scratch / "interpreter"
        base.make(interpreter, debian.packages(own, progress), progress)
    with progress.task("compiling all modules") as task:
        for part, root in roots.items():
            task.tick(part)
            python_packages.compile_modules(root, python, interpreter)
    layers = []
    with progress.task("packing the layers") as task:
        for part, root in roots.items():
            task.tick(part)
            moment = epoch if part == "programs" else LOWER_TIME
            file = scratch / f"{part}.tar.gz"
            layers.append(archive.write_layer(root, file, f"make image: {part}", moment))
    found = [
        package
        for part in ("dependencies", "programs")
        for package in python_packages.installed(roots[part], python)
    ]
    return Made(release, python.name, layers, packages, found)

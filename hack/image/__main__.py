"""`make image` and `make image-lock`.

Without a container engine: Debian's packages, the locked dependencies and this tree become an OCI
archive and its software bill of materials.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from distribution.image import parse
from realcluster.progress import Progress

from . import archive, base, bill, command, debian, python_packages
from .errors import ImageError
from .python_packages import REPOSITORY

# The lower layers have one time for ever: a registry and a node then hold them once for all
# versions that have the same packages. 1980 is the first year that every archive format can say.
LOWER_TIME = 315532800
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HOME": "/",
    "LANG": "C.UTF-8",
}


def main() -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m image", description=__doc__)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "dist", metavar="FOLDER")
    name = "the image's name, as in the manifests (default: reprieve:VERSION)"
    parser.add_argument("--name", default="reprieve", help=name)
    architecture = "amd64 or arm64 (default: that of this machine)"
    parser.add_argument(
        "--architecture", choices=sorted(debian.ARCHITECTURES.values()), help=architecture
    )
    lock = "pin the newest packages instead: write hack/image/locks"
    parser.add_argument("--lock", action="store_true", help=lock)
    asked = parser.parse_args()
    progress = Progress()
    try:
        if asked.lock:
            pin(progress)
        else:
            build(asked.output, asked.name, asked.architecture, progress)
    except ImageError as error:
        progress.say(f"image: {error}")
        return 1
    return 0


def pin(progress: Progress) -> None:
    """Write the locks anew."""
    with progress.task("resolving the Python packages"):
        python_packages.write_locks()
    for architecture in debian.ARCHITECTURES.values():
        release = debian.release(architecture)
        debian.write_lock(release.lock, debian.resolve(release, progress))
    progress.say(f"wrote {debian.LOCKS.relative_to(REPOSITORY)}: review and commit them")


def build(output: Path, name: str, architecture: str | None, progress: Progress) -> Path:
    """Build the image and its bill of materials into `output`; return the archive.

    Without an architecture, that of this machine. The files of another one have it in their names.
    """
    began = time.monotonic()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    version = str(project["version"])
    name = full_name(name, version)
    own = debian.release(debian.own_architecture())
    release = debian.release(architecture or own.architecture)
    epoch = source_date_epoch()
    packages = debian.packages(release, progress)
    output.mkdir(parents=True, exist_ok=True)
    stem = f"reprieve-{version}" + ("" if release == own else f"-{release.architecture}")
    target = output / f"{stem}.oci.tar"
    with tempfile.TemporaryDirectory(prefix="reprieve-image-") as scratch:
        roots = {part: Path(scratch, part) for part in ("base", "dependencies", "programs")}
        for root in roots.values():
            root.mkdir()
        base.make(roots["base"], packages, progress)
        python = base.python_of(roots["base"])
        with progress.task(f"installing the locked dependencies for {python.name}"):
            python_packages.install_dependencies(
                roots["dependencies"], python, release.architecture
            )
        with progress.task("building Reprieve's wheel"):
            wheel = python_packages.build_wheel(Path(scratch, "wheel"), epoch)
            python_packages.install_programs(roots["programs"], python, wheel)
        interpreter = roots["base"]
        if release != own:
            # Bytecode is the same on every architecture, but only this machine's own Python runs.
            interpreter = Path(scratch, "interpreter")
            base.make(interpreter, debian.packages(own, progress), progress)
        with progress.task("compiling all modules") as task:
            for part, root in roots.items():
                task.tick(part)
                python_packages.compile_modules(root, python, interpreter)
        with progress.task("packing the layers") as task:
            layers = []
            for part, root in roots.items():
                task.tick(part)
                moment = epoch if part == "programs" else LOWER_TIME
                made_by = f"make image: {part}"
                file = Path(scratch, f"{part}.tar.gz")
                layers.append(archive.write_layer(root, file, made_by, moment))
            image = archive.Description(
                name, release.architecture, _rfc3339(epoch), _config(project)
            )
            digest = archive.write_archive(target, layers, image, epoch)
        found = [
            package
            for part in ("dependencies", "programs")
            for package in python_packages.installed(roots[part], python)
        ]
        component = bill.image_component("reprieve", version, digest)
        materials = output / f"{stem}.cdx.json"
        materials.write_text(bill.write(component, packages, found, release, epoch))
    progress.say(
        f"{target}: {target.stat().st_size / 1e6:.0f} MB, {release.name} {release.architecture}, "
        f"{python.name}, in {time.monotonic() - began:.0f} s\n"
        f"{materials}: {len(packages)} Debian and {len(found)} Python packages"
    )
    print(digest)
    return target


def full_name(text: str, version: str) -> str:
    """Return the name under which a node looks for an image: with its registry and its tag."""
    try:
        named = parse(text)
    except ValueError as error:
        raise ImageError(str(error)) from error
    first, has_folder, _ = named.name.partition("/")
    has_registry = has_folder and (first == "localhost" or "." in first or ":" in first)
    registry = "" if has_registry else "docker.io/" if has_folder else "docker.io/library/"
    return f"{registry}{named.name}:{named.tag or version}"


def source_date_epoch() -> int:
    """Return the image's time: SOURCE_DATE_EPOCH, or that of the last commit."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        if not said.isdecimal():
            raise ImageError(f"SOURCE_DATE_EPOCH: {said} is not a whole number of seconds")
        return int(said)
    remedy = "set SOURCE_DATE_EPOCH, in seconds, or build in a git repository"
    command.need({"git": remedy})
    return int(command.run(["git", "log", "-1", "--format=%ct"], remedy, folder=REPOSITORY))


def _config(project: dict[str, object]) -> dict[str, object]:
    labels = {key: project[key] for key in ("version", "description")}
    labels |= {"title": project["name"], "licenses": project["license"]}
    return {
        "User": f"{base.USER}:{base.USER}",
        "Env": [f"{key}={value}" for key, value in ENVIRONMENT.items()],
        # No entry point: the manifests say which of the programs to run.
        "Cmd": ["reprieve-webhooks", "--help"],
        "WorkingDir": "/",
        "Labels": {f"org.opencontainers.image.{key}": text for key, text in labels.items()},
    }


def _rfc3339(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    sys.exit(main())

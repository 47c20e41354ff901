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
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from distribution.image import parse
from realcluster.progress import Progress

from . import archive, base, bill, command, debian, one_architecture, python_packages
from .errors import ImageError
from .python_packages import REPOSITORY

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
    architectures = "amd64, arm64, or amd64,arm64 (default: that of this machine)"
    parser.add_argument("--architecture", default="", metavar="NAMES", help=architectures)
    lock = "pin the newest packages instead: write hack/image/locks"
    parser.add_argument("--lock", action="store_true", help=lock)
    asked = parser.parse_args()
    progress = Progress()
    try:
        if asked.lock:
            pin(progress)
        else:
            build(asked.output, asked.name, architectures_of(asked.architecture), progress)
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


def architectures_of(text: str) -> list[str]:
    """Return the architectures that are named, with commas between; that of this machine if none.

    They are sorted, so that the archive does not depend on their order.
    """
    known = sorted(debian.ARCHITECTURES.values())
    named = sorted({name.strip() for name in text.split(",") if name.strip()})
    if unknown := [name for name in named if name not in known]:
        raise ImageError(f"no images are built for {', '.join(unknown)}: name {' or '.join(known)}")
    return named or [debian.own_architecture()]


def build(output: Path, name: str, architectures: Sequence[str], progress: Progress) -> Path:
    """Build the image and its bills of materials into `output`; return the archive.

    One archive holds all architectures. The files of another one than this machine's, and the
    bills of several, have the architecture in their names.
    """
    began = time.monotonic()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    version = str(project["version"])
    epoch = source_date_epoch()
    described = archive.Description(full_name(name, version), _rfc3339(epoch), _config(project))
    releases = [debian.release(each) for each in architectures]
    stems = _stems(f"reprieve-{version}", architectures)
    target = output / f"{stems[0] if len(stems) == 1 else f'reprieve-{version}'}.oci.tar"
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reprieve-image-") as scratch:
        with progress.task("building Reprieve's wheel"):
            wheel = python_packages.build_wheel(Path(scratch, "wheel"), epoch)
        made = [
            one_architecture.make(each, wheel, Path(scratch, each.architecture), epoch, progress)
            for each in releases
        ]
        images = [archive.PlatformImage(each.release.architecture, each.layers) for each in made]
        digests = archive.write_archive(target, images, described, epoch)
        progress.say(
            f"{target}: {target.stat().st_size / 1e6:.0f} MB, {releases[0].name} "
            f"{', '.join(architectures)}, {made[0].python}, in {time.monotonic() - began:.0f} s"
        )
        for each, stem, digest in zip(made, stems, digests.manifests, strict=True):
            component = bill.image_component("reprieve", version, digest)
            contents = (each.debian_packages, each.python_packages)
            materials = output / f"{stem}.cdx.json"
            materials.write_text(bill.write(component, *contents, each.release, epoch))
            progress.say(
                f"{materials}: {len(each.debian_packages)} Debian and "
                f"{len(each.python_packages)} Python packages"
            )
    print(digests.named)
    return target


def _stems(name: str, architectures: Sequence[str]) -> list[str]:
    """Return the name of each architecture's files: only this machine's own needs no addition."""
    if architectures == [debian.own_architecture()]:
        return [name]
    return [f"{name}-{each}" for each in architectures]


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

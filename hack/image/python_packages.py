"""The image's upper layers: the locked dependencies, the programs, and their bytecode."""

from __future__ import annotations

import configparser
import importlib.metadata
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from . import base, command, debian
from .errors import ImageError

REPOSITORY = Path(__file__).resolve().parents[2]
DEPENDENCIES = debian.LOCKS / "requirements.lock"
BUILD = debian.LOCKS / "build.lock"
BUILD_INPUT = debian.LOCKS / "build.in"
NETWORK = "does this machine reach the Python package index that it is configured for?"
# The image's C library is newer on every release that is built from, and wheels state the oldest.
PLATFORMS = {"amd64": "x86_64-manylinux_2_36", "arm64": "aarch64-manylinux_2_36"}

NOT_WANTED = re.compile(
    # 30,000 lines of models and calls for every kind, twice: the programs send and read JSON.
    r"kubernetes/(aio/)?client/(api|models)/(?!__init__\.py$).*"
    r"|(.*/)?(e2e_test|tests?|testing)/.*|(.*/)?[^/]*_test\.py"
    r"|.*\.(c|h|hpp|pxd|pyi|pyx)"
    r"|bin/.*|(.*/)?__pycache__/.*"
    # What an installer writes for itself: it differs from machine to machine.
    r"|[^/]*\.dist-info/(INSTALLER|RECORD|REQUESTED|direct_url\.json|uv_[a-z]*\.json)|\.lock"
)
LAUNCHER = """#!/usr/bin/python3
import sys
from {module} import {function}
sys.exit({function}())
"""


def place(python: Path) -> Path:
    """Return the folder for packages on the image's own search path, from its root."""
    return Path("usr/local/lib", python.name, "dist-packages")


def install_dependencies(root: Path, python: Path, architecture: str) -> None:
    """Install what the lock names, checked by its hashes, for the image's Python."""
    target = root / place(python)
    command.run(
        [
            *_uv("pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"),
            *("--require-hashes", "--requirement", DEPENDENCIES, "--link-mode", "copy"),
            *("--python", sys.executable, "--python-version", python.name.removeprefix("python")),
            *("--python-platform", PLATFORMS[architecture], "--target", target),
        ],
        NETWORK,
    )
    _prune(target)


def build_wheel(folder: Path, epoch: int) -> Path:
    """Build the wheel of this tree into `folder` with the locked build tools."""
    command.run(
        [
            *_uv("build", "--quiet", "--wheel", "--out-dir", folder, "--python", sys.executable),
            *("--build-constraints", BUILD, "--require-hashes", REPOSITORY),
        ],
        NETWORK,
        environment=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)},
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_programs(root: Path, python: Path, wheel: Path) -> list[str]:
    """Unpack the wheel, which is pure Python; return the names of its programs."""
    target = root / place(python)
    with zipfile.ZipFile(wheel) as content:
        content.extractall(target)
    (metadata,) = target.glob("*.dist-info/entry_points.txt")
    entries = configparser.ConfigParser()
    entries.read_string(metadata.read_text())
    programs = dict(entries["console_scripts"])
    for name, entry in programs.items():
        module, _, function = entry.partition(":")
        file = root / "usr/local/bin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(LAUNCHER.format(module=module.strip(), function=function.strip()))
        file.chmod(0o755)
    _prune(target)
    return list(programs)


def compile_modules(layer: Path, python: Path, base_root: Path) -> None:
    """Write the bytecode of all modules in `layer` for the image's interpreter `python`.

    What runs is that of `base_root`, the image's own base or, where this machine is of another
    architecture, the same for this machine.

    The root file system is read-only in a cluster: without bytecode, each start would compile
    anew. It is never checked against its source, so no time is in it.
    """
    loader = next((base_root / "usr/lib").glob("*/ld-linux-*.so.*"), None)
    if loader is None:
        raise ImageError("the Debian packages have no dynamic loader")
    # The loader is named, because the machine's own may be of another C library.
    interpreter = base.python_of(base_root)
    if interpreter.name != python.name:
        raise ImageError(f"{interpreter.name} cannot write the bytecode of {python.name}")
    runs: list[str | Path] = [loader, "--library-path", loader.parent, interpreter, "-s", "-S"]
    options: list[str | Path] = ["--invalidation-mode", "unchecked-hash", "-s", layer, "-p", "/"]
    environment = {"PYTHONHOME": str(base_root / "usr"), "PYTHONHASHSEED": "0", "LANG": "C.UTF-8"}
    command.run(
        [*runs, "-m", "compileall", "-q", "-f", *options, layer],
        "is a module of the image broken?",
        environment=environment,
    )


def installed(root: Path, python: Path) -> list[importlib.metadata.Distribution]:
    """Return the Python packages in a layer, sorted by name."""
    found = importlib.metadata.distributions(path=[str(root / place(python))])
    return sorted(found, key=lambda package: package.metadata["Name"].lower())


def write_locks() -> None:
    """Resolve the newest versions that pyproject.toml allows, and pin them with their hashes."""
    sources = {DEPENDENCIES: REPOSITORY / "pyproject.toml", BUILD: BUILD_INPUT}
    for lock, source in sources.items():
        command.run(
            [
                *_uv("pip", "compile", "--quiet", "--upgrade", "--generate-hashes", "--universal"),
                *("--python-version", "3.11", "--custom-compile-command", "make image-lock"),
                *("--output-file", lock, source.relative_to(REPOSITORY)),
            ],
            NETWORK,
            folder=REPOSITORY,
        )


def _prune(folder: Path) -> None:
    for file in sorted(folder.rglob("*")):
        if not file.is_dir() and NOT_WANTED.fullmatch(file.relative_to(folder).as_posix()):
            file.unlink()
    for inner in sorted(_folders(folder), reverse=True):
        if not any(inner.iterdir()):
            inner.rmdir()


def _folders(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_dir())


def _uv(*words: str | Path) -> list[str | Path]:
    program = Path(sys.prefix, "bin", "uv")
    if not program.exists():
        found = shutil.which("uv")
        if found is None:
            raise ImageError("there is no uv: run `make setup`, which installs it")
        program = Path(found)
    return [program, *words]

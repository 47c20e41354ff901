"""The image, built once for all tests of this folder: as `make image` does it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HACK = Path(__file__).resolve().parents[3] / "hack"
BUILD_SECONDS = 1200.0  # a minute on a quiet machine
Build = Callable[..., str]


def build(folder: Path, *options: str) -> str:
    """Build the image into `folder`; return the digest of its manifest."""
    done = subprocess.run(
        [sys.executable, "-m", "image", "--output", folder, *options],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(HACK)},
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def need_apt() -> None:
    """Skip the test where the image cannot be built."""
    if shutil.which("apt-get") is None:
        pytest.skip("the image is built from Debian's packages, and this machine has no apt-get")


@pytest.fixture(scope="session")
def build_image() -> Build:
    return build


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the archive and its bill of materials."""
    need_apt()
    folder = tmp_path_factory.mktemp("image")
    (folder / "digest").write_text(build(folder))
    return folder


@pytest.fixture(scope="session")
def folder_of_both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with one archive for both architectures, and the bills of materials."""
    need_apt()
    folder = tmp_path_factory.mktemp("both")
    build(folder, "--architecture", "amd64,arm64")
    return folder


@pytest.fixture(scope="session")
def archive(image_folder: Path) -> Path:
    (found,) = image_folder.glob("*.oci.tar")
    return found


@pytest.fixture(scope="session")
def archive_of_both(folder_of_both: Path) -> Path:
    (found,) = folder_of_both.glob("*.oci.tar")
    return found

"""`install.yaml`: the base as one file, for admins without this repository."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from realcluster.binaries import build
from realcluster.progress import Progress

from .image import Image
from .templates import MANIFESTS

_HEADER = """\
# Reprieve, all of manifests/base. Install or upgrade it with:
#   kubectl apply -f install.yaml
"""


def write(dist: Path, image: Image | None) -> Path:
    """Write the file into `dist`; with `image`, for that image."""
    kubectl = _kubectl()
    file = dist / "install.yaml"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(_overlay(folder, image)))
        command = [str(kubectl), "kustomize", folder]
        rendered = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    file.write_text(_HEADER + rendered, encoding="utf-8")
    return file


def _kubectl() -> Path:
    """Return the pinned kubectl if it is built, else the user's own, else build the pinned one."""
    own = shutil.which("kubectl")
    if own and not build.path_of("kubectl").exists():
        return Path(own)
    return build.ensure(["kubectl"], Progress())["kubectl"]


def _overlay(folder: str, image: Image | None) -> dict[str, Any]:
    overlay: dict[str, Any] = {"resources": [os.path.relpath(MANIFESTS / "base", folder)]}
    if image is not None:
        parts = {"newName": image.name, "newTag": image.tag, "digest": image.digest}
        given = {key: value for key, value in parts.items() if value}
        overlay["images"] = [{"name": "reprieve", **given}]
    return overlay

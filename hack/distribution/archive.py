"""The chart as one file, as `helm package` names it: the same files give the same bytes."""

import gzip
import io
import os
import re
import tarfile
from pathlib import Path

import yaml

from .image import Image
from .templates import CHART

_DEFAULT_IMAGE = re.compile(r"(?m)^  repository: reprieve\n  tag: \"\"\n  digest: \"\"\n")


def write(dist: Path, image: Image | None) -> Path:
    """Write the chart into `dist`; with `image`, the values name that one by default."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    file = dist / f"{chart['name']}-{chart['version']}.tgz"
    file.write_bytes(_archive(chart["name"], image))
    return file


def _archive(name: str, image: Image | None) -> bytes:
    # The time of all files: archives of the same files must be the same.
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(found for found in CHART.rglob("*") if found.is_file()):
            content = path.read_bytes()
            if path.name == "values.yaml" and image is not None:
                content = _with_image(content.decode(), image).encode()
            entry = tarfile.TarInfo(f"{name}/{path.relative_to(CHART).as_posix()}")
            entry.size, entry.mtime, entry.mode = len(content), epoch, 0o644
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _with_image(values: str, image: Image) -> str:
    named = f'  repository: {image.name}\n  tag: "{image.tag}"\n  digest: "{image.digest}"\n'
    replaced, found = _DEFAULT_IMAGE.subn(lambda _: named, values)
    assert found == 1, "values.yaml names the image as archive.py expects it"
    return replaced

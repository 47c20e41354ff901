"""The folder `dist/`: emptied before a release, summed and listed after it."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

SUMS = "SHA256SUMS"
NOTES = "RELEASE_NOTES.md"


def emptied(dist: Path) -> None:
    """Leave an empty folder, so that nothing of an earlier release is in this one."""
    if dist.exists():
        shutil.rmtree(dist)
    dist.mkdir(parents=True)


def write_sums(dist: Path) -> None:
    """Write the checksum of each file; `sha256sum --check SHA256SUMS` reads them."""
    lines = [f"{_sum(file)}  {file.name}\n" for file in files(dist) if file.name != SUMS]
    (dist / SUMS).write_text("".join(lines), encoding="utf-8")


def files(dist: Path) -> list[Path]:
    """Return the files of the release, by name."""
    return sorted(file for file in dist.iterdir() if file.is_file())


def listing(dist: Path) -> Iterator[str]:
    """Yield a line for each file, with its size."""
    for file in files(dist):
        yield f"{size(file.stat().st_size):>10}  {dist.name}/{file.name}"


def size(count: int) -> str:
    """Return a number of bytes as people read it."""
    if count < 1024:
        return f"{count} B"
    kib = count / 1024
    return f"{kib:.1f} KiB" if kib < 1024 else f"{kib / 1024:.1f} MiB"


def _sum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()

"""Layers and the OCI archive, byte for byte the same for the same files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OCI = "application/vnd.oci.image"
LEVEL = 6


@dataclass(frozen=True)
class Layer:
    """A compressed layer on disk."""

    file: Path
    digest: str  # of the compressed file
    content_digest: str  # of the tar file in it
    made_by: str

    @property
    def descriptor(self) -> dict[str, Any]:
        """What the manifest says of it."""
        size = self.file.stat().st_size
        return {"mediaType": f"{OCI}.layer.v1.tar+gzip", "digest": self.digest, "size": size}


@dataclass(frozen=True)
class Description:
    """What the image says of itself."""

    name: str  # `docker.io/library/reprieve:0.1.0`
    architecture: str
    created: str  # RFC 3339
    config: Mapping[str, Any]


def write_layer(root: Path, target: Path, made_by: str, time: int) -> Layer:
    """Write all files below `root` in a fixed order, owned by root, with one time for all."""
    plain = target.with_suffix(".tar")
    with tarfile.open(plain, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in _sorted(root):
            _add(tar, path, path.relative_to(root).as_posix(), time)
    content = _digest(plain)
    with (
        plain.open("rb") as source,
        target.open("wb") as raw,
        # No name and no time in the header.
        gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as packed,
    ):
        while block := source.read(1 << 20):
            packed.write(block)
    plain.unlink()
    return Layer(target, _digest(target), content, made_by)


def write_archive(target: Path, layers: Sequence[Layer], image: Description, time: int) -> str:
    """Write an OCI image layout as one tar file; return the digest of the image's manifest."""
    blobs: dict[str, bytes] = {}

    def store(kind: str, content: dict[str, Any]) -> dict[str, Any]:
        data = _json(content)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        blobs[digest] = data
        return {"mediaType": f"{OCI}.{kind}", "digest": digest, "size": len(data)}

    platform = {"architecture": image.architecture, "os": "linux"}
    config = {
        **platform,
        "created": image.created,
        "config": dict(image.config),
        "rootfs": {"type": "layers", "diff_ids": [layer.content_digest for layer in layers]},
        "history": [{"created": image.created, "created_by": layer.made_by} for layer in layers],
    }
    manifest = store(
        "manifest.v1+json",
        {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": store("config.v1+json", config),
            "layers": [layer.descriptor for layer in layers],
        },
    )
    names = {
        "io.containerd.image.name": image.name,
        "org.opencontainers.image.ref.name": image.name.rpartition(":")[2],
    }
    index = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [{**manifest, "platform": platform, "annotations": names}],
    }
    part = target.with_suffix(".part")
    with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as tar:
        _add_data(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}), time)
        _add_data(tar, "index.json", _json(index), time)
        for digest, data in sorted(blobs.items()):
            _add_data(tar, _blob(digest), data, time)
        for layer in layers:
            _add(tar, layer.file, _blob(layer.digest), time)
    part.replace(target)
    return str(manifest["digest"])


def _sorted(root: Path) -> Iterator[Path]:
    """Yield everything below `root`; a folder comes before what is in it."""
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _sorted(Path(entry.path))


def _add(tar: tarfile.TarFile, path: Path, name: str, time: int) -> None:
    member = tarfile.TarInfo(name)
    member.mtime = time
    if path.is_symlink():
        member.type, member.mode, member.linkname = tarfile.SYMTYPE, 0o777, str(path.readlink())
        tar.addfile(member)
    elif path.is_dir():
        member.type, member.mode = tarfile.DIRTYPE, _mode(path)
        tar.addfile(member)
    else:
        member.size, member.mode = path.stat().st_size, _mode(path)
        with path.open("rb") as content:
            tar.addfile(member, content)


def _mode(path: Path) -> int:
    """Return a mode that does not depend on the umask of this process.

    Every user may read all; only /tmp and its like are writable for all.
    """
    mode = path.stat().st_mode
    if mode & 0o1000:
        return 0o1777
    return 0o755 if path.is_dir() or mode & 0o100 else 0o644


def _add_data(tar: tarfile.TarFile, name: str, data: bytes, time: int) -> None:
    member = tarfile.TarInfo(name)
    member.mtime, member.size, member.mode = time, len(data), 0o644
    tar.addfile(member, io.BytesIO(data))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode()


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"

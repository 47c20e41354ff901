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
class PlatformImage:
    """The image of one architecture: its layers, the lowest first."""

    architecture: str
    layers: Sequence[Layer]


@dataclass(frozen=True)
class Description:
    """What the image says of itself, on each architecture."""

    name: str  # `docker.io/library/reprieve:0.1.0`
    created: str  # RFC 3339
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Digests:
    """Under which digests a registry has an archive's content."""

    named: str  # what the name stands for: the only manifest, or the index of all
    manifests: Sequence[str]  # of the images, in their order


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


def write_archive(
    target: Path, images: Sequence[PlatformImage], description: Description, time: int
) -> Digests:
    """Write an OCI image layout as one tar file.

    Of several images, the name stands for an index, from which each node takes its own.
    """
    blobs = _Blobs()
    manifests = [_store_manifest(blobs, image, description) for image in images]
    named = manifests[0]
    if len(images) > 1:
        named = blobs.store("index.v1+json", _index(manifests))
    names = {
        "io.containerd.image.name": description.name,
        "org.opencontainers.image.ref.name": description.name.rpartition(":")[2],
    }
    # Architectures share layers.
    layers = {layer.digest: layer for image in images for layer in image.layers}
    part = target.with_suffix(".part")
    with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as tar:
        _add_data(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}), time)
        _add_data(tar, "index.json", _json(_index([{**named, "annotations": names}])), time)
        for digest, data in sorted(blobs.content.items()):
            _add_data(tar, _blob(digest), data, time)
        for layer in layers.values():
            _add(tar, layer.file, _blob(layer.digest), time)
    part.replace(target)
    return Digests(str(named["digest"]), [str(each["digest"]) for each in manifests])


class _Blobs:
    """The archive's documents, by their digests."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def store(self, kind: str, document: dict[str, Any]) -> dict[str, Any]:
        """Store a document; return its descriptor."""
        data = _json(document)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.content[digest] = data
        return {"mediaType": f"{OCI}.{kind}", "digest": digest, "size": len(data)}


def _store_manifest(
    blobs: _Blobs, image: PlatformImage, description: Description
) -> dict[str, Any]:
    """Store the configuration and the manifest of an image; return the manifest's descriptor."""
    platform = {"architecture": image.architecture, "os": "linux"}
    created, layers = description.created, image.layers
    config = {
        **platform,
        "created": created,
        "config": dict(description.config),
        "rootfs": {"type": "layers", "diff_ids": [layer.content_digest for layer in layers]},
        "history": [{"created": created, "created_by": layer.made_by} for layer in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": blobs.store("config.v1+json", config),
        "layers": [layer.descriptor for layer in layers],
    }
    return {**blobs.store("manifest.v1+json", manifest), "platform": platform}


def _index(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    media_type = f"{OCI}.index.v1+json"
    return {"schemaVersion": 2, "mediaType": media_type, "manifests": list(manifests)}


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

"""Layers and archives are the same for the same files, whatever the disk says of them."""

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from image import __main__ as build
from image import archive, debian
from image.errors import ImageError
from reprieve_testing import manifests

TIME = 1_700_000_000


def some_files(folder: Path, names: list[str], umask: int) -> Path:
    previous = os.umask(umask)
    try:
        for name in names:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
    finally:
        os.umask(previous)
    (folder / "link").symlink_to("a/one")
    return folder


def test_the_order_of_creation_the_umask_and_the_times_do_not_matter(tmp_path: Path) -> None:
    names = ["a/one", "a/two", "b.txt"]
    first = some_files(tmp_path / "first", names, 0o022)
    second = some_files(tmp_path / "second", names[::-1], 0o077)
    os.utime(second / "b.txt", (1, 1))
    layers = [
        archive.write_layer(root, tmp_path / f"{root.name}.tar.gz", "test", TIME)
        for root in (first, second)
    ]
    assert layers[0].digest == layers[1].digest
    assert layers[0].content_digest == layers[1].content_digest


def test_a_layer_has_one_time_and_root_as_the_owner_of_all(tmp_path: Path) -> None:
    root = some_files(tmp_path / "root", ["a/one"], 0o022)
    layer = archive.write_layer(root, tmp_path / "layer.tar.gz", "test", TIME)
    with tarfile.open(layer.file) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == ["a", "a/one", "link"]
    assert {(member.uid, member.gid, member.mtime) for member in members} == {(0, 0, TIME)}


def an_archive(folder: Path, *architectures: str) -> tuple[dict[str, Any], archive.Digests]:
    """Write an image of one file for each architecture; return the documents by their names."""
    images = []
    for architecture in architectures:
        root = some_files(folder / architecture, ["shared"], 0o022)
        lower = archive.write_layer(root, folder / f"{architecture}.tar.gz", "test", TIME)
        (root / "own").write_text(architecture)
        upper = archive.write_layer(root, folder / f"{architecture}-own.tar.gz", "test", TIME)
        images.append(archive.PlatformImage(architecture, [lower, upper]))
    described = archive.Description("example.com/a:1", "2026-01-01T00:00:00Z", {})
    digests = archive.write_archive(folder / "image.tar", images, described, TIME)
    with tarfile.open(folder / "image.tar") as tar:
        members = tar.getnames()
        assert len(members) == len(set(members))
        texts = {name: tar.extractfile(name) for name in members}
        documents = {
            name: json.loads(data)
            for name, text in texts.items()
            if text and (data := text.read()).startswith(b"{")
        }
    return documents, digests


def test_the_archive_states_the_name_under_which_a_node_imports_it(tmp_path: Path) -> None:
    documents, digests = an_archive(tmp_path, "amd64")
    (entry,) = documents["index.json"]["manifests"]
    assert [entry["digest"]] == [digests.named] == digests.manifests
    assert entry["annotations"]["io.containerd.image.name"] == "example.com/a:1"


def test_the_name_of_two_architectures_stands_for_an_index_of_both(tmp_path: Path) -> None:
    documents, digests = an_archive(tmp_path, "amd64", "arm64")
    (entry,) = documents["index.json"]["manifests"]
    assert entry["digest"] == digests.named
    assert entry["annotations"]["io.containerd.image.name"] == "example.com/a:1"
    listed = documents[place(digests.named)]["manifests"]
    assert [each["digest"] for each in listed] == digests.manifests
    platforms = [each["platform"]["architecture"] for each in listed]
    assert platforms == ["amd64", "arm64"]
    for digest, architecture in zip(digests.manifests, platforms, strict=True):
        config = documents[place(documents[place(digest)]["config"]["digest"])]
        assert config["architecture"] == architecture


def test_one_architecture_of_two_has_the_digest_that_it_has_alone(tmp_path: Path) -> None:
    for name in ("alone", "both"):
        (tmp_path / name).mkdir()
    _, alone = an_archive(tmp_path / "alone", "arm64")
    _, both = an_archive(tmp_path / "both", "amd64", "arm64")
    assert alone.named == both.manifests[1]


def place(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


@pytest.mark.parametrize(
    ("text", "names"),
    [("arm64, amd64", ["amd64", "arm64"]), ("arm64", ["arm64"])],
)
def test_architectures_are_named_with_commas(text: str, names: list[str]) -> None:
    assert build.architectures_of(text) == names


def test_the_architecture_of_this_machine_is_the_default() -> None:
    assert build.architectures_of("") == [debian.own_architecture()]


def test_an_architecture_that_is_not_built_for_is_refused() -> None:
    with pytest.raises(ImageError, match="no images are built for riscv: name amd64 or arm64"):
        build.architectures_of("amd64,riscv")


def test_the_default_name_is_what_a_node_makes_of_the_pods_image() -> None:
    pod = manifests.named("Deployment", "reprieve-webhooks")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert build.full_name("reprieve", "0.1.0") == f"docker.io/library/{container['image']}"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("registry.example.com/team/a:2", "registry.example.com/team/a:2"),
        ("registry.example.com:5000/a", "registry.example.com:5000/a:0.1.0"),
        ("localhost/a:2", "localhost/a:2"),
        ("team/a:2", "docker.io/team/a:2"),
    ],
)
def test_an_image_has_the_name_that_a_node_looks_for(text: str, name: str) -> None:
    assert build.full_name(text, "0.1.0") == name


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ImageError, match='"a b" is not the name of an image'):
        build.full_name("a b", "0.1.0")


def test_a_time_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ImageError, match="yesterday is not a whole number of seconds"):
        build.source_date_epoch()

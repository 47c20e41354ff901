"""Layers and archives are the same for the same files, whatever the disk says of them."""

import json
import os
import tarfile
from pathlib import Path

import pytest

from image import __main__ as build
from image import archive
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


def test_the_archive_states_the_name_under_which_a_node_imports_it(tmp_path: Path) -> None:
    root = some_files(tmp_path / "root", ["a/one"], 0o022)
    layer = archive.write_layer(root, tmp_path / "layer.tar.gz", "test", TIME)
    described = archive.Description("example.com/a:1", "amd64", "2026-01-01T00:00:00Z", {})
    digest = archive.write_archive(tmp_path / "image.tar", [layer], described, TIME)
    with tarfile.open(tmp_path / "image.tar") as tar:
        index = tar.extractfile("index.json")
        assert index is not None
        (entry,) = json.load(index)["manifests"]
    assert entry["digest"] == digest
    assert entry["annotations"]["io.containerd.image.name"] == "example.com/a:1"


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

"""What `make image` writes: the same bytes each time, with nothing in it that the pods forbid.

For this machine, and for the other architecture, whose programs run under QEMU.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import socket
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from image import debian
from realcluster.real_nodes import debian_packages
from reprieve_testing import manifests
from reprieve_testing.cluster.handle import free_port, wait_for

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((manifests.ROOT / "pyproject.toml").read_text())["project"]
USER = 65532
MEGABYTES = 60
OWN = debian.ARCHITECTURES.get(platform.machine())
EMULATORS = {"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}
# Imports every module of ours, and with them all that they need; prints what cannot be imported.
IMPORTS = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if module.name.rpartition(".")[2] != "__main__":
            importlib.import_module(module.name)
"""


@pytest.fixture(scope="module", params=sorted(EMULATORS))
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(
    architecture: str,
    image_folder: Path,
    build_image: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder with the archive and its bill of materials."""
    if architecture == OWN:
        return image_folder
    other = tmp_path_factory.mktemp(architecture)
    (other / "digest").write_text(build_image(other, "--architecture", architecture))
    return other


@pytest.fixture(scope="module")
def members(folder: Path) -> dict[str, bytes]:
    """The files of the OCI layout."""
    (archive,) = folder.glob("*.oci.tar")
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def manifest(members: dict[str, bytes]) -> Any:
    (entry,) = json.loads(members["index.json"])["manifests"]
    return json.loads(blob(members, entry["digest"]))


@pytest.fixture(scope="module")
def root(
    members: dict[str, bytes], manifest: Any, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The image's files on disk."""
    folder = tmp_path_factory.mktemp("root")
    for layer in layers(members, manifest):
        layer.extractall(folder, filter="tar")
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def emulator(architecture: str, tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """What runs the programs of another architecture, without a library of this machine."""
    if architecture == OWN:
        return None
    scratch = tmp_path_factory.mktemp("emulator")
    return (
        debian_packages.unpack(("qemu-user-static",), scratch) / "usr/bin" / EMULATORS[architecture]
    )


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry on loopback: the Go program of the project distribution."""
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo, with which the pages push the image, is not installed")
    scratch = tmp_path_factory.mktemp("registry")
    program = debian_packages.unpack(("docker-registry",), scratch) / "usr/bin/docker-registry"
    address = f"127.0.0.1:{free_port()}"
    config = scratch / "config.yml"
    storage = {"filesystem": {"rootdirectory": str(scratch / "data")}}
    settings = {"version": "0.1", "storage": storage, "http": {"addr": address}}
    config.write_text(json.dumps(settings))
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen((program, "serve", config), stdout=log, stderr=log)
    try:
        wait_for("the registry", lambda: is_open(address))
        yield address
    finally:
        process.terminate()
        process.wait()


def is_open(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0


def test_a_second_build_gives_the_same_bytes(
    build_image: Any, image_folder: Path, tmp_path: Path
) -> None:
    assert build_image(tmp_path) == (image_folder / "digest").read_text()
    for file in tmp_path.iterdir():
        assert file.read_bytes() == (image_folder / file.name).read_bytes(), file.name


def test_the_archive_of_both_has_each_image_as_it_is_alone(
    folder: Path, folder_of_both: Path, architecture: str
) -> None:
    (archive,) = folder_of_both.glob("*.oci.tar")
    with tarfile.open(archive) as tar:
        both = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    (named,) = json.loads(both["index.json"])["manifests"]
    listed = json.loads(blob(both, named["digest"]))["manifests"]
    digests = {each["platform"]["architecture"]: each["digest"] for each in listed}
    assert digests[architecture] == (folder / "digest").read_text()
    assert digests.keys() == EMULATORS.keys()
    (alone,) = folder.glob("*.cdx.json")
    (together,) = folder_of_both.glob(f"*-{architecture}.cdx.json")
    assert alone.read_text() == together.read_text()


def test_a_registry_that_skopeo_pushed_both_to_has_each_under_one_name(
    archive_of_both: Path, registry: str, manifest: Any, architecture: str
) -> None:
    pushed = f"docker://{registry}/reprieve:test"
    copy = ("copy", "--all", "--dest-tls-verify=false", f"oci-archive:{archive_of_both}", pushed)
    skopeo(*copy)
    found = json.loads(
        skopeo("inspect", "--tls-verify=false", "--override-arch", architecture, pushed)
    )
    assert found["Architecture"] == architecture
    assert found["Layers"] == [layer["digest"] for layer in manifest["layers"]]


def test_every_blob_has_the_digest_that_the_manifest_states(
    members: dict[str, bytes], manifest: Any
) -> None:
    config = json.loads(blob(members, manifest["config"]["digest"]))
    described = [manifest["config"], *manifest["layers"]]
    assert all(len(blob(members, each["digest"])) == each["size"] for each in described)
    contents = [gzip.decompress(blob(members, layer["digest"])) for layer in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [digest_of(content) for content in contents]
    assert sum(layer["size"] for layer in manifest["layers"]) < MEGABYTES * 1_000_000


def test_the_image_runs_as_the_pods_user_and_has_their_programs(
    members: dict[str, bytes], manifest: Any, root: Path, architecture: str
) -> None:
    described = json.loads(blob(members, manifest["config"]["digest"]))
    assert (described["architecture"], described["os"]) == (architecture, "linux")
    assert described["config"]["User"] == f"{USER}:{USER}"
    for program in PROJECT["scripts"]:
        assert os.access(root / "usr/local/bin" / program, os.X_OK)


def test_all_files_belong_to_root_and_none_gains_rights_or_may_be_changed_by_others(
    members: dict[str, bytes], manifest: Any
) -> None:
    for layer in layers(members, manifest):
        for member in layer:
            assert (member.uid, member.gid) == (0, 0), member.name
            assert not member.mode & 0o6000, member.name
            assert member.issym() or not member.mode & 0o022 or member.mode & 0o1000, member.name


def test_there_is_no_shell_and_no_package_manager(root: Path) -> None:
    programs = {
        file.name for folder in ("bin", "sbin") for file in (root / "usr" / folder).iterdir()
    }
    assert all(name.startswith("python3") for name in programs), programs


def test_every_module_has_bytecode(root: Path) -> None:
    modules = [file for file in root.rglob("*.py") if not file.is_symlink()]
    assert len(modules) > 1000
    for file in modules:
        assert list(file.parent.glob(f"__pycache__/{file.stem}.cpython-*.pyc")), file


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program of another root folder")
def test_every_module_can_be_imported_and_every_program_starts(
    root: Path, emulator: Path | None
) -> None:
    packages = [
        path.rpartition("/")[2] for path in wheel_packages() if not path.endswith("/reprieve")
    ]
    run(root, emulator, "-c", IMPORTS, *packages)
    for program in PROJECT["scripts"]:
        assert PROJECT["version"] in run(root, emulator, f"/usr/local/bin/{program}", "--version")


def test_the_bill_of_materials_is_valid_and_names_all_packages(folder: Path, root: Path) -> None:
    (file,) = folder.glob("*.cdx.json")
    errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(file.read_text())
    assert errors is None, errors
    document = json.loads(file.read_text())
    listed = {part["purl"].partition("@")[0] for part in document["components"] if "purl" in part}
    debian = {f"pkg:deb/debian/{path.name}" for path in (root / "var/lib/dpkg/status.d").iterdir()}
    python = {
        f"pkg:pypi/{path.name.partition('-')[0].lower().replace('_', '-')}"
        for path in root.rglob("*.dist-info")
    }
    assert listed == debian | python
    digest = (folder / "digest").read_text().removeprefix("sha256:")
    assert document["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]


def skopeo(*words: str) -> str:
    done = subprocess.run(("skopeo", *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wheel_packages() -> list[str]:
    project = tomllib.loads((manifests.ROOT / "pyproject.toml").read_text())
    return list(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])


def run(root: Path, emulator: Path | None, *words: str) -> str:
    """Run the image's Python as the pods' user, with nothing of this machine."""
    emulated = []
    if emulator:
        # Not in usr/bin: the image has no other program there.
        shutil.copy(emulator, root / "emulator")
        emulated = ["/emulator"]
    command = [
        str(shutil.which("chroot")),
        f"--userspec={USER}:{USER}",
        str(root),
        *emulated,
        "/usr/bin/python3",
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    assert done.returncode == 0, done.stderr
    return done.stdout


def layers(members: dict[str, bytes], manifest: Any) -> Iterator[tarfile.TarFile]:
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(blob(members, layer["digest"]))) as tar:
            yield tar


def blob(members: dict[str, bytes], digest: str) -> bytes:
    data = members[f"blobs/{digest.replace(':', '/')}"]
    assert digest_of(data) == digest
    return data


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"

"""Which packages the image has: the locks agree with pyproject.toml, apt's answers are read."""

import fcntl
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from image import base, debian, python_packages
from reprieve_testing import manifests

PROJECT = tomllib.loads((manifests.ROOT / "pyproject.toml").read_text())
PINNED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        (python_packages.DEPENDENCIES, PROJECT["project"]["dependencies"]),
        (python_packages.BUILD, PROJECT["build-system"]["requires"]),
    ],
    ids=["dependencies", "build"],
)
def test_a_lock_pins_what_the_project_requires(lock: object, wanted: list[str]) -> None:
    pinned = dict(PINNED.findall(str(lock.read_text())))  # type: ignore[attr-defined]
    for line in wanted:
        requirement = Requirement(line)
        assert requirement.specifier.contains(pinned[requirement.name]), (
            f"{requirement}: {pinned[requirement.name]} is pinned; run `make image-lock`"
        )


def test_the_input_of_the_build_lock_is_what_the_project_requires() -> None:
    written = python_packages.BUILD_INPUT.read_text().split()
    assert written == PROJECT["build-system"]["requires"]


@pytest.mark.parametrize("lock", [python_packages.DEPENDENCIES, python_packages.BUILD])
def test_every_pinned_python_package_has_hashes_and_no_lock_names_an_index(lock: object) -> None:
    text = str(lock.read_text())  # type: ignore[attr-defined]
    assert "://" not in text
    for block in re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block, block


@pytest.mark.parametrize("architecture", debian.ARCHITECTURES.values())
def test_the_debian_lock_has_all_roots_and_nothing_that_is_left_out(architecture: str) -> None:
    (lock,) = debian.LOCKS.glob(f"debian-*-{architecture}.lock")
    names = {package.name for package in debian.read_lock(lock)}
    assert set(debian.ROOTS) < names
    assert not names & set(debian.LEFT_OUT)


def test_the_packages_that_apt_would_install_are_read_with_their_versions() -> None:
    said = (
        "The following NEW packages will be installed:\n  libc6 zlib1g\n"
        "Inst zlib1g (1:1.2.13.dfsg-1 Debian:12.12/oldstable [amd64])\n"
        "Inst libc6 (2.36-9+deb12u14 Debian:12.12/oldstable [amd64]) []\n"
        "Conf libc6 (2.36-9+deb12u14 Debian:12.12/oldstable [amd64])\n"
    )
    assert debian.parse_simulation(said) == [
        ("zlib1g", "1:1.2.13.dfsg-1"),
        ("libc6", "2.36-9+deb12u14"),
    ]


def test_of_builds_at_the_same_time_one_uses_the_cache_of_an_architecture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of = debian.Release("debian", "none", "amd64")
    resolved = []

    def resolve(*_: Any) -> list[debian.Package]:
        with (tmp_path / "amd64.lock").open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        resolved.append(of)
        return []

    monkeypatch.setattr(debian, "_home", lambda: tmp_path)
    monkeypatch.setattr(debian, "resolve", resolve)
    said: Any = SimpleNamespace(say=lambda _: None)
    assert debian.packages(of, said) == debian.packages(of, said) == []
    assert len(resolved) == 2


def test_the_image_has_the_pods_user() -> None:
    for program in ("reprieve-webhooks", "reprieve-operator"):
        pod = manifests.named("Deployment", program)["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsUser"] == base.USER


@pytest.mark.parametrize(
    ("member", "place"),
    [
        ("./lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("./usr/lib/os-release", "usr/lib/os-release"),
        ("./lib", "lib"),
        (".", ""),
    ],
)
def test_files_of_folders_that_are_links_into_usr_lie_there(member: str, place: str) -> None:
    assert base.place_of(member) == place


@pytest.mark.parametrize(
    ("place", "is_wanted"),
    [
        ("usr/share/doc/libc6/copyright", True),
        ("usr/share/doc/libc6/changelog.Debian.gz", False),
        ("usr/share/man/man1/python3.11.1.gz", False),
        ("usr/lib/python3.11/asyncio/base_events.py", True),
        ("usr/lib/python3.11/unittest/case.py", True),
        ("usr/lib/python3.11/lib2to3/tests/data/bom.py", False),
        ("usr/bin/python3.11", True),
        ("usr/bin/perl", False),
        ("etc/ssl/openssl.cnf", True),
    ],
)
def test_manuals_and_commands_are_left_out_and_licences_stay(
    place: str, *, is_wanted: bool
) -> None:
    assert bool(base.NOT_WANTED.fullmatch(place)) is not is_wanted


@pytest.mark.parametrize(
    ("place", "is_wanted"),
    [
        ("kubernetes/aio/client/api_client.py", True),
        ("kubernetes/aio/client/api/core_v1_api.py", False),
        ("kubernetes/client/models/v1_pod.py", False),
        ("kubernetes/client/models/__init__.py", True),
        ("aiohttp/_websocket/reader_c.pyx", False),
        ("aiohttp-3.14.5.dist-info/METADATA", True),
        ("aiohttp-3.14.5.dist-info/RECORD", False),
        ("bin/pygmentize", False),
    ],
)
def test_what_no_program_imports_is_left_out_of_python_packages(
    place: str, *, is_wanted: bool
) -> None:
    assert bool(python_packages.NOT_WANTED.fullmatch(place)) is not is_wanted

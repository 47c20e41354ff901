"""`make release` in copies of this tree: what it refuses, and that two builds are byte-equal."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from release import dist, parts, version

ROOT = Path(__file__).resolve().parents[3]
OTHER_PARTS = ",".join(part.name for part in parts.PARTS if part.name != "packages")
WANTED = "987.65.4"
CHANGELOG = "# Changelog\n\n## [Unreleased]\n### Upgrade notes\nThere is nothing to do.\n"
COMMITTED = "2026-11-26T10:00:00Z"


def a_copy(folder: Path, *only: str) -> Path:
    """Return a repository of its own with the files that git tracks here, as they are now."""
    command = ("git", "ls-files", "-z", *only)
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    _git(folder, "init", "--quiet")
    _commit(folder)
    return folder


def run(tree: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `python -m release` of the copy."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "hack"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        (sys.executable, "-m", "release", *arguments), cwd=tree, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def _git(tree: Path, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    environment = {
        **os.environ,
        "GIT_AUTHOR_DATE": COMMITTED,
        "GIT_COMMITTER_DATE": COMMITTED,
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    subprocess.run(("git", *author, *arguments), cwd=tree, env=environment, check=True)


def _commit(tree: Path) -> None:
    _git(tree, "add", "--all")
    _git(tree, "commit", "--quiet", "--message", "all")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with what is read before anything is built."""
    folder = tmp_path_factory.mktemp("release") / "tree"
    return a_copy(folder, "hack/release", "Makefile", "pyproject.toml", "CHANGELOG.md")


def test_all_reasons_not_to_release_are_named_at_once(tree: Path) -> None:
    (tree / "new-file").write_text("")
    try:
        refused = run(tree, "build", WANTED, "--without", f"{OTHER_PARTS},nothing")
    finally:
        (tree / "new-file").unlink()
    assert (refused.returncode, refused.stdout) == (1, "")
    dirty, other_version, changelog, unknown = refused.stderr.splitlines()
    assert "the tree is not clean (new-file): commit or remove" in dirty
    assert f"run `make version VERSION={WANTED}`" in other_version
    assert f'CHANGELOG.md has no section "## [{WANTED}] - DATE"' in changelog
    assert "no part is called nothing: parts are chart, " in unknown
    assert not (tree / "dist").exists()


def test_a_version_that_is_none_is_refused(tree: Path) -> None:
    for command in ("build", "version"):
        refused = run(tree, command, "next")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "three numbers are needed" in refused.stderr


def test_one_image_name_is_for_the_image_the_chart_and_the_manifests(tmp_path: Path) -> None:
    """As `make release IMAGE=…` calls them: by `make TARGET` inside of a target of the Makefile."""
    targets = [part.target for part in parts.PARTS if part.target]
    outer = tmp_path / "Makefile"
    outer.write_text(f"all:\n\t@cd {ROOT} && make --dry-run {' '.join(targets)}\n")
    command = ("make", "--file", str(outer), "IMAGE=registry.example.com/reprieve")
    planned = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    named = [line for line in planned.splitlines() if '"registry.example.com/reprieve"' in line]
    assert len(named) == len(targets) == 3


@pytest.mark.slow
def test_two_builds_in_two_places_are_byte_equal(tmp_path: Path) -> None:
    sums = []
    for name, umask in (("one", 0o022), ("another-place", 0o077)):
        before = os.umask(umask)
        try:
            built = _release(a_copy(tmp_path / name))
        finally:
            os.umask(before)
        sums.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in built})
    assert sums[0] == sums[1]
    assert {f"reprieve-{WANTED}-py3-none-any.whl", f"reprieve-{WANTED}.tar.gz"} < sums[0].keys()
    assert {dist.NOTES, dist.SUMS} < sums[0].keys()


@pytest.mark.slow
def test_the_wheel_of_the_unpacked_sdist_is_the_released_one(tmp_path: Path) -> None:
    tree = a_copy(tmp_path / "tree")
    wheel, sdist = (file for file in _release(tree) if file.name.startswith("reprieve-"))
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    subprocess.run(
        command, cwd=tmp_path / "unpacked" / f"reprieve-{WANTED}", check=True, capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": _epoch(tree)},
    )  # fmt: skip
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def _epoch(tree: Path) -> str:
    shown = subprocess.run(
        ("git", "log", "-1", "--format=%ct"), cwd=tree, capture_output=True, text=True, check=True
    )
    return shown.stdout.strip()


def _release(tree: Path) -> list[Path]:
    """Release the copy, as a maintainer does; return the files of `dist/`."""
    # The changelog of this tree may be one from just after a release.
    (tree / "CHANGELOG.md").write_text(CHANGELOG)
    done = run(tree, "version", WANTED)
    assert done.returncode == 0, done.stderr
    assert "pyproject.toml" in done.stdout.splitlines()
    assert version.current(tree) == WANTED
    _commit(tree)
    done = run(tree, "build", WANTED, "--without", OTHER_PARTS)
    assert done.returncode == 0, done.stderr
    built = dist.files(tree / "dist")
    assert [line.split("/")[-1] for line in done.stdout.splitlines()[-len(built) :]] == [
        file.name for file in built
    ]
    subprocess.run(("sha256sum", "--check", "--quiet", dist.SUMS), cwd=tree / "dist", check=True)
    return built

"""Each content is built once; a failed or interrupted build leaves nothing that looks finished.

The compiler is a shell script that behaves like `go` where it matters here. The cluster tests run
the real one.
"""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from realcluster.binaries import build, pins, toolchain
from realcluster.errors import ClusterError
from realcluster.progress import Progress

GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
echo build >> {calls}
while [ "$1" != -o ]; do shift; done
echo some/package >&2
printf half > "$2"
{then}
printf whole > "$2"
"""


class Bench:
    """A cache of its own, a copy of the pins, and a pretended compiler."""

    def __init__(self, tmp_path: Path) -> None:
        self.calls = tmp_path / "calls"
        self.go = tmp_path / "tools" / "go"
        self.said = io.StringIO()
        self.compiles("")

    def compiles(self, then: str) -> None:
        self.go.parent.mkdir(exist_ok=True)
        self.go.write_text(GO.format(calls=self.calls, then=then))
        self.go.chmod(0o755)

    def ensure(self, *names: str) -> dict[str, Path]:
        return build.ensure(names, Progress(self.said))

    def builds(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path)
    shutil.copytree(pins.PINS, tmp_path / "pins")
    monkeypatch.setattr(pins, "PINS", tmp_path / "pins")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{bench.go.parent}:/usr/bin:/bin")
    return bench


def test_a_cached_program_is_not_built_again(bench: Bench) -> None:
    first = bench.ensure("etcd", "kwok")
    assert bench.ensure("etcd", "kwok") == first
    assert bench.builds() == 2
    assert first["etcd"].read_text() == "whole"


def test_the_first_build_reports_its_cost(bench: Bench) -> None:
    bench.ensure("kube-apiserver")
    assert (
        "building kube-apiserver from source: about 5 min on two cores the first time"
        in bench.said.getvalue()
    )


def test_a_failed_build_shows_the_compilers_words_and_leaves_no_program(bench: Bench) -> None:
    bench.compiles("echo 'x.go:1: undefined: y' >&2; exit 1")
    with pytest.raises(
        ClusterError, match=r"(?s)undefined: y.*building etcd failed; run the same command again"
    ):
        bench.ensure("etcd")
    assert not build.path_of("etcd").exists()


def test_a_build_after_a_failed_one_succeeds(bench: Bench) -> None:
    bench.compiles("exit 1")
    with pytest.raises(ClusterError):
        bench.ensure("etcd")
    bench.compiles("")
    assert bench.ensure("etcd")["etcd"].read_text() == "whole"
    assert [file.name for file in build.path_of("etcd").parent.iterdir()] == ["etcd"]


def test_the_directory_for_path_has_a_link_to_each_program(bench: Bench) -> None:
    programs = bench.ensure("etcd")
    assert (build.bin_directory() / "etcd").resolve() == programs["etcd"].resolve()


@pytest.mark.usefixtures("bench")
def test_changed_checksums_mean_another_program() -> None:
    before = build.path_of("etcd")
    go_sum = pins.pin_files("etcd")[1]
    go_sum.write_text(go_sum.read_text() + "\n")
    assert build.path_of("etcd") != before


@pytest.mark.usefixtures("bench")
def test_a_changed_source_of_our_own_means_another_program() -> None:
    before = build.path_of("pause")
    (source,) = pins.own_sources(pins.BINARIES["pause"])
    source.write_text(source.read_text() + "\n")
    assert build.path_of("pause") != before


@pytest.mark.parametrize(
    "change", [{"cgo": True}, {"tags": ("x",)}, {"variables": (("a.b", "c"),)}]
)
def test_changed_flags_mean_another_program(change: dict[str, object]) -> None:
    etcd = pins.BINARIES["etcd"]
    assert build.key(replace(etcd, **change)) != build.key(etcd)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", pins.BINARIES)
def test_every_program_has_a_pinned_version(name: str) -> None:
    assert pins.version(pins.BINARIES[name]).startswith("v")


def test_every_program_belongs_to_a_group() -> None:
    assert set(pins.GROUPS["all"]) == set(pins.BINARIES)


def test_a_replacement_decides_the_version() -> None:
    go_mod = "require (\n\tk8s.io/x v0.1.0 // indirect\n)\n\nreplace k8s.io/x => k8s.io/x v0.2.0\n"
    assert pins.module_version(go_mod, "k8s.io/x") == "v0.2.0"
    with pytest.raises(ClusterError, match=r"does not mention k8s\.io/y"):
        pins.module_version(go_mod, "k8s.io/y")


def test_a_kubernetes_program_reports_its_release() -> None:
    flags = pins.link_flags(pins.BINARIES["kube-apiserver"])
    release = pins.version(pins.BINARIES["kube-apiserver"])
    assert f"-X k8s.io/component-base/version.gitVersion={release} " in flags


def test_an_older_kubernetes_is_chosen_by_its_minor_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newest = pins.kubernetes_version()
    monkeypatch.setenv(pins.KUBERNETES_VERSION, "1.34")
    assert pins.kubernetes_version().startswith("v1.34.")
    assert pins.kubernetes_version() != newest
    monkeypatch.setenv(pins.KUBERNETES_VERSION, "1.2")
    with pytest.raises(ClusterError, match=r"REPRIEVE_KUBERNETES=1\.2: no such .* one of .*1\.34"):
        pins.kubernetes_version()


@pytest.mark.parametrize("pin", sorted(found.name for found in pins.PINS.glob("kubernetes*")))
def test_all_parts_of_kubernetes_are_of_one_release(pin: str) -> None:
    go_mod = pins.pin_files(pin)[0].read_text()
    minor_and_patch = pins.module_version(go_mod, pins.KUBERNETES).removeprefix("v1.")
    assert pin in ("kubernetes", f"kubernetes-1.{minor_and_patch.partition('.')[0]}")
    replaced = re.findall(r"^\t(k8s\.io/\S+) => \1 (v\S+)$", go_mod, re.MULTILINE)
    assert {version for _, version in replaced} == {f"v0.{minor_and_patch}"}


@pytest.mark.parametrize(
    ("said", "version"),
    [("go1.26.8\n", (1, 26, 8)), ("go1.26", (1, 26)), ("devel go1.27-abc", None), ("", None)],
)
def test_the_toolchains_version_is_read_from_its_output(
    said: str, version: tuple[int, ...] | None
) -> None:
    assert toolchain.parse_version(said) == version


def test_the_least_go_version_is_that_of_the_pins() -> None:
    assert pins.go_directive("module x\n\ngo 1.26.0\n") == (1, 26, 0)
    assert pins.go_directive("module x\n") == (1,)

"""`hack/cluster --provider kind`: the commands that it runs, and that kind accepts what it writes.

Stand-ins on PATH record the commands, because no Docker daemon is needed to make the tests pass.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from realcluster.binaries import build, pins
from realcluster.progress import Progress

HACK = Path(__file__).resolve().parents[3] / "hack"
STAND_IN = f"""#!{sys.executable}
import json, pathlib, sys
with pathlib.Path({{record!r}}).open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
{{rest}}
"""
KIND = "print('apiVersion: v1' if sys.argv[1:3] == ['get', 'kubeconfig'] else '')"
# What kind asks before it reads the configuration; all else fails.
DOCKER = """
answers = {"info": json.dumps({"CgroupVersion": "2"}), "ps": ""}
sys.exit("none here") if sys.argv[1] not in answers else print(answers[sys.argv[1]], end="")
"""
GATES = ("--feature-gates", "GenericWorkload=true", "--runtime-config", "api/all=true")


def stand_in(folder: Path, name: str, rest: str) -> Path:
    """Put a program on PATH that writes its arguments into the returned file."""
    record = folder / f"{name}.calls"
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(STAND_IN.format(record=str(record), rest=rest))
    program.chmod(0o755)
    return record


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run `hack/cluster`, with the stand-ins first on PATH and a home of its own."""
    path = os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "XDG_STATE_HOME": str(folder / "state")}
    command = (sys.executable, str(HACK / "cluster"), *words, "--name", "try")
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def calls(record: Path) -> list[list[str]]:
    return [json.loads(line) for line in record.read_text().splitlines()]


def configuration(folder: Path) -> Path:
    return folder / "state" / "reprieve" / "clusters" / "try" / "conf" / "kind.json"


def test_a_cluster_is_created_gets_an_image_and_is_deleted(tmp_path: Path) -> None:
    kind, _ = stand_in(tmp_path, "kind", KIND), stand_in(tmp_path, "docker", "")
    archive = tmp_path / "reprieve.oci.tar"
    archive.write_bytes(b"")
    commands = (
        ("up", "--provider", "kind", *GATES),
        ("load-image", str(archive)),
        ("load-image", "reprieve:0.1.0"),
        ("kubeconfig",),
    )
    for words in commands:
        done = run(tmp_path, *words)
        assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_text() == "apiVersion: v1\n"
    written = configuration(tmp_path)
    asked = json.loads(written.read_text())
    assert asked["featureGates"] == {"GenericWorkload": True}
    assert asked["runtimeConfig"] == {"api/all": "true"}
    assert [node["role"] for node in asked["nodes"]] == ["control-plane", "worker", "worker"]
    assert run(tmp_path, "down").returncode == 0
    name = ["--name", "try"]
    assert calls(kind) == [
        ["get", "clusters"],
        ["create", "cluster", *name, "--config", str(written), "--wait", "120s"],
        ["get", "kubeconfig", *name],
        ["load", "image-archive", str(archive), *name],
        ["load", "docker-image", "reprieve:0.1.0", *name],
        ["delete", "cluster", *name],
    ]


def test_a_cluster_that_kind_has_is_not_created_again(tmp_path: Path) -> None:
    kind = stand_in(tmp_path, "kind", "print('try' if sys.argv[2] == 'clusters' else '')")
    stand_in(tmp_path, "docker", "")
    assert run(tmp_path, "up", "--provider", "kind").returncode == 0
    assert [words[:2] for words in calls(kind)] == [["get", "clusters"], ["get", "kubeconfig"]]


def test_what_kind_says_is_shown(tmp_path: Path) -> None:
    stand_in(tmp_path, "kind", "sys.exit('ERROR: no space left' if 'create' in sys.argv else 0)")
    stand_in(tmp_path, "docker", "")
    failed = run(tmp_path, "up", "--provider", "kind")
    assert failed.returncode == 1
    assert "ERROR: no space left\n`kind create cluster` failed" in failed.stderr


def test_without_a_docker_daemon_nothing_is_begun(tmp_path: Path) -> None:
    stand_in(tmp_path, "kind", "")
    stand_in(tmp_path, "docker", "sys.exit(1)")
    refused = run(tmp_path, "up", "--provider", "kind")
    assert refused.returncode == 1
    assert "needs a Docker daemon, and none answers" in refused.stderr
    assert not configuration(tmp_path).exists()


@pytest.mark.slow
def test_kinds_own_program_accepts_the_configuration(tmp_path: Path) -> None:
    stand_in(tmp_path, "kind", KIND)
    stand_in(tmp_path, "docker", DOCKER)
    assert run(tmp_path, "up", "--provider", "kind", *GATES).returncode == 0
    written = configuration(tmp_path)
    # It gets as far as the node's image, which only a Docker daemon could fetch.
    assert "failed to pull image" in _refusal(tmp_path, written)
    asked = json.loads(written.read_text())
    written.write_text(json.dumps({**asked, "nodes": [{"role": "worker"}]}))
    assert "must have at least one control-plane node" in _refusal(tmp_path, written)
    written.write_text(json.dumps({**asked, "unknown": True}))
    assert "unable to decode config" in _refusal(tmp_path, written)


def _refusal(folder: Path, configuration: Path) -> str:
    """Return why the real kind does not create a cluster without Docker."""
    program = build.ensure(pins.GROUPS["kind"], Progress())["kind"]
    path = os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))
    done = subprocess.run(
        (str(program), "create", "cluster", "--name", "try", "--config", str(configuration)),
        env={**os.environ, "PATH": path, "KIND_EXPERIMENTAL_PROVIDER": "docker"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr

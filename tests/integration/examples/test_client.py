"""The examples with the client library, run as in their pods: they save, go on, and are resumed.

The one that is asked by a signal needs the agent's folder: `tests/cluster/agent/test_agent.py`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import reprieve_client as reprieve
from reprieve_testing import manifests
from reprieve_testing.servers.hinted_program import running

LAUNCHER = manifests.EXAMPLES / "launcher"
PROGRAM = manifests.EXAMPLES / "client" / "train.py"
UNFINISHED = 143
MOST_BYTES = 1 << 20  # of a ConfigMap


def test_the_example_saves_goes_on_and_its_replacement_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHECKPOINTS", str(tmp_path / "run"))
    monkeypatch.setenv("STEP_SECONDS", "0.01")
    monkeypatch.setenv("STEPS", "100000")
    with running(tmp_path, sys.executable, PROGRAM) as first:
        first.wait_for(lambda: first.lines("training from step 0 to 100000"))
        saved = first.ask("uid-1")
        path = Path(saved["path"])
        assert json.loads((path / "weights.json").read_text()) == [saved["step"] / 2]
        assert first.end() == UNFINISHED
    # The steps since that save are saved on SIGTERM.
    newest = reprieve.CheckpointFolder(tmp_path / "run").latest()
    assert newest is not None
    assert newest.step >= saved["step"]
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", str(path))
    monkeypatch.setenv("STEPS", str(newest.step + 1))
    with running(tmp_path, sys.executable, PROGRAM) as second:
        assert second.wait() == 0
    assert second.lines("resuming") == [f"resuming from step {newest.step}, saved in {newest.path}"]
    assert second.lines("finished")


@pytest.mark.parametrize("name", ["client", "launcher", "signal"])
def test_the_examples_import_the_library_from_the_zip_file_that_their_first_lines_make(
    name: str, tmp_path: Path
) -> None:
    told = (manifests.EXAMPLES / "client" / "job.yaml").read_text()
    (program, *words) = next(
        line.removeprefix("#   ").split() for line in told.splitlines() if " -m zipfile " in line
    )
    assert program == "python3"
    file = tmp_path / "library.zip"
    words = [str(file) if word == "/tmp/library.zip" else word for word in words]
    subprocess.run((sys.executable, *words), cwd=manifests.ROOT, check=True)
    assert "--from-file=/tmp/library.zip" in told
    assert file.stat().st_size < MOST_BYTES

    (job,) = manifests.read(manifests.EXAMPLES / name / "job.yaml")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (volume,) = (each for each in pod["volumes"] if each["name"] == "library")
    assert volume["configMap"] == {"name": "reprieve-client"}
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["PYTHONPATH"] == f"{places['library']}/{file.name}"
    # Without the library of this environment.
    script = "import reprieve_client; print(reprieve_client.__file__)"
    done = subprocess.run(
        (sys.executable, "-S", "-c", script),
        env={"PYTHONPATH": str(file)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(file / "reprieve_client" / "__init__.py")


def test_of_the_workers_of_a_launcher_one_saves_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `make test WORKERS=3` sets this variable for all programs.
    monkeypatch.setenv("WORKERS", "2")
    variables = {"CHECKPOINTS": str(tmp_path), "POD_NAME": "pod-1", "STEPS": "100000"}
    for name, value in {**variables, "STEP_SECONDS": "0.01", "SAVE_SECONDS": "0"}.items():
        monkeypatch.setenv(name, value)
    command = (sys.executable, LAUNCHER / "launch.py", LAUNCHER / "train.py")
    with running(tmp_path, *command) as first:
        first.wait_for(lambda: len(first.lines("rank")) == 2)
        saved = first.ask("uid-1")
        assert first.end() == UNFINISHED
    assert first.lines("rank 1: saved") == []
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", saved["path"])
    monkeypatch.setenv("STEPS", str(saved["step"] + 1))
    with running(tmp_path, *command) as second:
        assert second.wait() == 0
    resumed = [f"rank {rank}: resuming from step {saved['step']}" for rank in (0, 1)]
    assert [line.partition(",")[0] for line in sorted(second.lines("rank")) if "resum" in line] == (
        resumed
    )

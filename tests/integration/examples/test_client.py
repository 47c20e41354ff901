"""The examples with the client library, run as in their pods: they save, go on, and are resumed.

The one that is asked by a signal needs the agent's folder: `tests/cluster/agent/test_agent.py`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reprieve_testing import manifests
from reprieve_testing.servers.hinted_program import running

LAUNCHER = manifests.EXAMPLES / "launcher"
PROGRAM = manifests.EXAMPLES / "client" / "train.py"
CLIENT = manifests.ROOT / "client"
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
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", str(path))
    monkeypatch.setenv("STEPS", str(saved["step"] + 1))
    with running(tmp_path, sys.executable, PROGRAM) as second:
        assert second.wait() == 0
    assert second.lines("resuming") == [f"resuming from step {saved['step']}, saved in {path}"]
    assert second.lines("finished")


@pytest.mark.heavy
def test_the_example_installs_the_library_from_its_wheel_without_an_index(tmp_path: Path) -> None:
    wheel, library = tmp_path / "wheel", tmp_path / "library"
    # With the build tools of this environment, which a user's pip would download.
    words = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheel, CLIENT)
    subprocess.run((sys.executable, "-m", "pip", "--quiet", *words), check=True)
    (built,) = wheel.iterdir()
    assert built.stat().st_size < MOST_BYTES
    (job,) = manifests.read(manifests.EXAMPLES / "client" / "job.yaml")
    pod = job["spec"]["template"]["spec"]
    (installer,) = pod["initContainers"]
    places = {"/wheel": wheel, "/library": library}
    assert {mount["mountPath"] for mount in installer["volumeMounts"]} == places.keys()
    program, *arguments = installer["command"]
    for place, folder in places.items():
        arguments = [word.replace(place, str(folder)) for word in arguments]
    subprocess.run((sys.executable, "-m", program, *arguments), check=True)
    # Without the library of this environment.
    script = "import reprieve_client; print(reprieve_client.__file__)"
    command = (sys.executable, "-S", "-c", script)
    done = subprocess.run(
        command, env={"PYTHONPATH": str(library)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(library / "reprieve_client" / "__init__.py")


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

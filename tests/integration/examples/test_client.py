"""The example with the client library, run as in its pod: it saves, goes on, and is resumed."""

import json
import sys
from pathlib import Path

import pytest

from reprieve_testing import manifests
from reprieve_testing.servers.hinted_program import running

PROGRAM = manifests.EXAMPLES / "client" / "train.py"
UNFINISHED = 143


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

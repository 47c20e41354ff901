"""The example that saves on SIGTERM, run as in its pod: it ends unfinished, and is resumed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from reprieve_testing import manifests

PROGRAM = manifests.EXAMPLES / "sigterm" / "train.py"
SECONDS = 60.0
UNFINISHED = 143


def start(folder: Path, **settings: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "CHECKPOINTS": str(folder), "SAVE_SECONDS": "0", **settings}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM)], env=environment, stdout=subprocess.PIPE, text=True
    )


def test_the_example_saves_on_sigterm_and_its_replacement_resumes(tmp_path: Path) -> None:
    with start(tmp_path, STEP_SECONDS="0.01", STEPS="100000") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "training from step 0 to 100000\n"
        first.send_signal(signal.SIGTERM)
        assert first.wait(SECONDS) == UNFINISHED
    step = json.loads((tmp_path / "checkpoint.json").read_text())["step"]
    assert step > 0
    with start(tmp_path, STEP_SECONDS="0", STEPS=str(step)) as second:
        output, _ = second.communicate(timeout=SECONDS)
    assert output == f"training from step {step} to {step}\nfinished\n"
    assert second.returncode == 0

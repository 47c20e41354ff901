"""A program that is killed at random loses nothing that it has answered as saved.

It never has two different checkpoints of one step, and never half a checkpoint.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reprieve_testing import manifests

PARTS = 3
SECONDS = 60.0
"""For a save, however busy the machine is."""
LONGEST_DELAY_SECONDS = 0.3
"""Within this, a program usually takes some hundred steps and saves several times."""

# Each save writes other bytes, so that a second checkpoint of one step is told from the first.
PROGRAM = f"""
import os, sys, time
from pathlib import Path
import reprieve_client as reprieve

folder = reprieve.CheckpointFolder(sys.argv[1])

def write(path):
    mark = os.urandom(8).hex()
    for part in range({PARTS}):
        (path / str(part)).write_text(mark)
        time.sleep(0.002)

def save(step):
    return folder.write(step, write)

def resume(path):
    assert len({{part.read_text() for part in path.iterdir()}}) == 1

with reprieve.checkpointing(
    save, resume, folder=folder, hint=Path(sys.argv[2]).as_uri(), every_seconds=0.02
) as session:
    print(session.first_step, flush=True)
    for step in session.steps(10**9):
        time.sleep(0.001)
        if step == session.first_step:
            print("took a step", flush=True)
"""


class Run:
    """One start of the program after the other, with what each of them must find."""

    def __init__(self, tmp_path: Path, seed: int) -> None:
        self._folder, self._request = tmp_path / "run", tmp_path / "request"
        self._random = random.Random(seed)
        self._contents: dict[str, str] = {}
        self.acknowledged = 0
        self.saves = 0

    def start_ask_and_kill(self, eviction_id: str, *, waits_for_save: bool) -> None:
        """Start the program, ask it to save, and kill it at a random moment."""
        command = [sys.executable, "-c", PROGRAM, str(self._folder), str(self._request)]
        environment = {**os.environ, "PYTHONPATH": str(manifests.ROOT / "client")}
        program = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        with program:
            try:
                assert program.stdout is not None
                first = int(program.stdout.readline())
                assert first >= self.acknowledged
                if waits_for_save:
                    # Else a busy machine might save the step of its start only, again and again.
                    assert program.stdout.readline() == "took a step\n"
                new = self._request.with_suffix(".new")
                new.write_text(json.dumps({"id": eviction_id}))
                new.rename(self._request)
                if waits_for_save:
                    self._wait_for_save(eviction_id)
                time.sleep(self._random.uniform(0, LONGEST_DELAY_SECONDS))
            finally:
                program.kill()
        self._look()

    def _wait_for_save(self, eviction_id: str) -> None:
        deadline = time.monotonic() + SECONDS
        while (answer := self._answer()).get("id") != eviction_id or answer["state"] != "saved":
            assert time.monotonic() < deadline
            time.sleep(0.001)
        # By the end, a later save may be under way, and the answer says so.
        self.acknowledged = answer["step"]

    def _answer(self) -> dict[str, Any]:
        file = self._request.with_name("request.answer")
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def _look(self) -> None:
        for path in self._folder.glob("step-*"):
            marks = [part.read_text() for part in path.iterdir()]
            assert len(marks) == PARTS
            assert len(set(marks)) == 1
            assert self._contents.setdefault(path.name, marks[0]) == marks[0]
        self.saves = len(self._contents)
        answer = self._answer()
        if answer.get("state") == "saved":
            assert Path(answer["path"]).is_dir()
            self.acknowledged = answer["step"]


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_nothing_that_was_answered_as_saved_is_lost(tmp_path: Path, rounds: int) -> None:
    run = Run(tmp_path, seed=7)
    for number in range(rounds):
        # Every second one may be killed before its save, the others only after it.
        run.start_ask_and_kill(f"uid-{number}", waits_for_save=number % 2 == 0)
    assert run.acknowledged > 0
    assert run.saves >= rounds // 2

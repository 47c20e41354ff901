"""A training program that may be preempted at any time, with the client library.

The library receives the request, saves between two steps, answers, hands the checkpoint over to the
replacement, and exits with 143 on SIGTERM. What is left is the program's own.
"""

import json
import os
import time
from pathlib import Path

import reprieve_client as reprieve

STEPS = int(os.environ.get("STEPS", "600"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.2"))
FOLDER = reprieve.CheckpointFolder(os.environ.get("CHECKPOINTS", "/checkpoints/client"))

weights = [0.0]


def save(step: int) -> Path:
    """Save the state after `step` steps."""
    path = FOLDER.write(step, lambda path: (path / "weights.json").write_text(json.dumps(weights)))
    print(f"saved step {step} to {path}", flush=True)
    return path


def resume(path: Path) -> None:
    """Load a checkpoint. Its step is in its name."""
    weights[:] = json.loads((path / "weights.json").read_text())


with reprieve.checkpointing(save, resume, folder=FOLDER) as session:
    if session.resumed_from:
        print(f"resuming from step {session.first_step}, saved in {session.resumed_from}")
    print(f"training from step {session.first_step} to {STEPS}", flush=True)
    for _ in session.steps(STEPS):
        weights[0] += 0.5
        time.sleep(STEP_SECONDS)  # stands for the work
print("finished", flush=True)

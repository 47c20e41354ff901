"""A worker of a data-parallel training, with the client library.

All ranks hold the same weights, so rank 0 saves for all: the library asks the first process of each
pod only. SIGTERM ends a worker at once, because the checkpoint is saved before it comes.
"""

import json
import os
import time
from pathlib import Path

import reprieve_client as reprieve

RANK = int(os.environ.get("RANK", "0"))
STEPS = int(os.environ.get("STEPS", "600"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.2"))
SAVE_SECONDS = float(os.environ.get("SAVE_SECONDS", "1"))  # how long this model takes to write


def save(step: int) -> Path:
    """Save the state after `step` steps."""
    path = Path(os.environ["CHECKPOINTS"], f"{os.environ['POD_NAME']}.json")
    time.sleep(SAVE_SECONDS)  # a real model takes longer to write than one number
    reprieve.atomic_write(path, json.dumps({"step": step}))
    print(f"rank {RANK}: saved step {step} to {path}", flush=True)
    return path


def resume(path: Path) -> int:
    """Load the previous pod's checkpoint; return how many steps it has."""
    step = int(json.loads(path.read_text())["step"])
    print(f"rank {RANK}: resuming from step {step}, saved in {path}", flush=True)
    return step


with reprieve.checkpointing(save, resume, handle_sigterm=False) as session:
    print(f"rank {RANK}: training from step {session.first_step} to {STEPS}", flush=True)
    for _ in session.steps(STEPS):
        time.sleep(STEP_SECONDS)  # stands for the work
print(f"rank {RANK}: finished", flush=True)

"""A training program that is asked by a signal, with the client library.

The agent first writes the request and then sends SIGUSR1 to the first process of this container.
The library handles the signal, reads the request, saves between two steps, and writes the answer.
SIGUSR1 would end a program that does not handle it: the agent sends it to no such program.
"""

import json
import os
import time
from pathlib import Path

import reprieve_client as reprieve

STEPS = int(os.environ.get("STEPS", "600"))
STEP_SECONDS = 0.2
SAVE_SECONDS = 1.0  # how long this model takes to write


def save(step: int) -> Path:
    """Save the state after `step` steps."""
    path = Path(os.environ["CHECKPOINTS"], f"{os.environ['POD_NAME']}.json")
    time.sleep(SAVE_SECONDS)  # a real model takes longer to write than one number
    reprieve.atomic_write(path, json.dumps({"step": step}))
    print(f"saved step {step} to {path}", flush=True)
    return path


def resume(path: Path) -> int:
    """Load the previous pod's checkpoint; return how many steps it has."""
    step = int(json.loads(path.read_text())["step"])
    print(f"resuming from step {step}, saved in {path}", flush=True)
    return step


with reprieve.checkpointing(save, resume, hint="signal://USR1") as session:
    print(f"training from step {session.first_step} to {STEPS}", flush=True)
    for _ in session.steps(STEPS):
        time.sleep(STEP_SECONDS)  # stands for the work
print("finished", flush=True)

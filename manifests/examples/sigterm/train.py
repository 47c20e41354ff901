"""A training program that saves on SIGTERM: the contract "checkpoint now" without a request.

It is not asked before and answers nothing, so Reprieve cannot hand its checkpoint to the
replacement. It has one checkpoint, whose name is known, and resumes from that.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

STEPS = int(os.environ.get("STEPS", "600"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.2"))
SAVE_SECONDS = float(os.environ.get("SAVE_SECONDS", "1"))  # how long this model takes to write
CHECKPOINT = Path(os.environ.get("CHECKPOINTS", "."), "checkpoint.json")

IS_ENDING: list[int] = []


def main() -> None:
    """Train to the end, or until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda number, _: IS_ENDING.append(number))
    first = int(json.loads(CHECKPOINT.read_text())["step"]) if CHECKPOINT.exists() else 0
    print(f"training from step {first} to {STEPS}", flush=True)
    for step in range(first, STEPS):
        time.sleep(STEP_SECONDS)  # stands for the work
        if IS_ENDING:
            save(step + 1)
            # To a Job, 0 would mean that no work is left. The pod ends as soon as this exits.
            sys.exit(143)
    print("finished", flush=True)


def save(step: int) -> None:
    """Save the state after `step` steps, whole or not at all."""
    unfinished = CHECKPOINT.with_suffix(".new")
    with unfinished.open("w") as file:
        json.dump({"step": step}, file)
        time.sleep(SAVE_SECONDS)  # a real model takes longer to write than one number
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(CHECKPOINT)
    print(f"saved step {step} to {CHECKPOINT}", flush=True)


if __name__ == "__main__":
    main()

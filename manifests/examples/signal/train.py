"""A training program that is asked by a signal: the contract "checkpoint now" with a handler.

The agent first writes the request and then sends SIGUSR1 to the first process of this container.
What this program writes beside the request is the answer. SIGUSR1 would end a program that does not
handle it: the agent sends it to no such program.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

STEPS = int(os.environ.get("STEPS", "600"))
STEP_SECONDS = 0.2
SAVE_SECONDS = 1.0  # how long this model takes to write
REQUEST = Path("/run/reprieve/request")


class Flag:
    """Whether the signal came.

    A handler may run between any two instructions, so it does no more than set this.
    """

    is_set = False

    def set(self, *_: object) -> None:
        """Handle the signal."""
        self.is_set = True


def main() -> None:
    """Train to the end, or until SIGTERM."""
    asked = Flag()
    signal.signal(signal.SIGUSR1, asked.set)
    signal.signal(signal.SIGTERM, stop)
    first = resume()
    print(f"training from step {first} to {STEPS}", flush=True)
    for step in range(first, STEPS):
        time.sleep(STEP_SECONDS)  # stands for the work
        if asked.is_set:
            asked.is_set = False
            checkpoint(step + 1)
    print("finished", flush=True)


def checkpoint(step: int) -> None:
    """Save the state after `step` steps, and answer."""
    request_id = json.loads(REQUEST.read_text())["id"]
    answer(request_id, state="saving")
    path = Path(os.environ["CHECKPOINTS"], f"{os.environ['POD_NAME']}.json")
    time.sleep(SAVE_SECONDS)  # a real model takes longer to write than one number
    write(path, json.dumps({"step": step}))
    answer(request_id, state="saved", step=step, path=str(path))
    print(f"saved step {step} to {path}", flush=True)


def answer(request_id: str, **fields: object) -> None:
    """Write the progress."""
    write(REQUEST.with_name(REQUEST.name + ".answer"), json.dumps({"id": request_id, **fields}))


def write(path: Path, text: str) -> None:
    """Write a file by rename, so that a reader never sees half of it."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(text)
    unfinished.replace(path)


def resume() -> int:
    """Return the first step: that of the previous pod's checkpoint, or 0 without one."""
    path = os.environ.get("RESUME_FROM_CHECKPOINT")
    if not path:
        return 0
    step = int(json.loads(Path(path).read_text())["step"])
    print(f"resuming from step {step}, saved in {path}", flush=True)
    return step


def stop(*_: object) -> None:
    """Exit unfinished with 128 + SIGTERM: to a Job, 0 would mean that no work is left."""
    print("stopped by SIGTERM, unfinished", flush=True)
    sys.exit(143)


if __name__ == "__main__":
    main()

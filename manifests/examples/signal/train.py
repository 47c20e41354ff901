"""A training that is asked by a signal: the contract "checkpoint now" for programs that have a handler, and no loop of ours.

The agent writes the request first and sends SIGUSR1 then, to the first process of this container. What this program writes
beside the request is the answer. SIGUSR1 would end a program that does not handle it: the agent sends it to none such.
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


class Asked:
    """Whether the signal came. A handler may run between any two instructions, so it does no more than take note."""

    is_so = False

    def hear(self, *_: object) -> None:
        """Take note."""
        self.is_so = True


def main() -> None:
    """Train to the end, or until SIGTERM."""
    asked = Asked()
    signal.signal(signal.SIGUSR1, asked.hear)
    signal.signal(signal.SIGTERM, stop)
    first = resume()
    print(f"training from step {first} to {STEPS}", flush=True)
    for step in range(first, STEPS):
        time.sleep(STEP_SECONDS)  # the work
        if asked.is_so:
            asked.is_so = False
            checkpoint(step + 1)
    print("finished", flush=True)


def checkpoint(step: int) -> None:
    """Save that `step` steps are done, and say so."""
    request_id = json.loads(REQUEST.read_text())["id"]
    answer(request_id, state="saving")
    path = Path(os.environ["CHECKPOINTS"], f"{os.environ['POD_NAME']}.json")
    time.sleep(SAVE_SECONDS)  # a model takes longer than one number
    write(path, json.dumps({"step": step}))
    answer(request_id, state="saved", step=step, path=str(path))
    print(f"saved step {step} to {path}", flush=True)


def answer(request_id: str, **said: object) -> None:
    """Say how far it is."""
    write(REQUEST.with_name(REQUEST.name + ".answer"), json.dumps({"id": request_id, **said}))


def write(path: Path, text: str) -> None:
    """Put a file in its place, whole."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(text)
    unfinished.replace(path)


def resume() -> int:
    """Return the step to begin with: that of the checkpoint which the pod before this one saved, if there was one."""
    path = os.environ.get("RESUME_FROM_CHECKPOINT")
    if not path:
        return 0
    step = int(json.loads(Path(path).read_text())["step"])
    print(f"resuming from step {step}, saved in {path}", flush=True)
    return step


def stop(*_: object) -> None:
    """End unfinished, 128 + SIGTERM: for a Job, 0 would mean that nothing is left to do."""
    print("stopped by SIGTERM, unfinished", flush=True)
    sys.exit(143)


if __name__ == "__main__":
    main()

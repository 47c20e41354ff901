"""A worker of a data-parallel training: the contract "checkpoint now" by file.

All ranks hold the same weights, so rank 0 saves for all. Between two steps it checks whether the
agent has written a request. What it writes beside the request is the answer. SIGTERM needs no
handler: the checkpoint is saved before it comes.
"""

import json
import os
import time
from pathlib import Path

RANK = int(os.environ.get("RANK", "0"))
STEPS = int(os.environ.get("STEPS", "600"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.2"))
SAVE_SECONDS = float(os.environ.get("SAVE_SECONDS", "1"))  # how long this model takes to write
REQUEST = Path(os.environ.get("REQUEST", "/run/reprieve/request"))


class Hints:
    """The file of the request and the file of the answer."""

    def __init__(self) -> None:
        """Begin without an answer."""
        self._answered: object = None

    def pending(self) -> str | None:
        """Return the id of an unanswered request, if any; this reads a file in memory."""
        try:
            request = json.loads(REQUEST.read_text())
        except FileNotFoundError:
            return None
        return (
            None
            if request.get("cancelled") or request["id"] == self._answered
            else str(request["id"])
        )

    def answer(self, request_id: str, state: str, **more: object) -> None:
        """Write the progress."""
        answer = {"id": request_id, "state": state, **more}
        write(REQUEST.with_name(REQUEST.name + ".answer"), json.dumps(answer))
        self._answered = request_id


def main() -> None:
    """Train to the end, or until SIGTERM."""
    hints, first = Hints(), resume()
    print(f"rank {RANK}: training from step {first} to {STEPS}", flush=True)
    for step in range(first, STEPS):
        time.sleep(STEP_SECONDS)  # stands for the work
        request_id = hints.pending() if RANK == 0 else None
        if request_id is not None:
            hints.answer(request_id, "saving", step=step + 1)
            path = save(step + 1)
            hints.answer(request_id, "saved", step=step + 1, path=str(path))
    print(f"rank {RANK}: finished", flush=True)


def save(step: int) -> Path:
    """Save the state after `step` steps."""
    path = Path(os.environ["CHECKPOINTS"], f"{os.environ['POD_NAME']}.json")
    time.sleep(SAVE_SECONDS)  # a real model takes longer to write than one number
    write(path, json.dumps({"step": step}))
    print(f"rank {RANK}: saved step {step} to {path}", flush=True)
    return path


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
    print(f"rank {RANK}: resuming from step {step}, saved in {path}", flush=True)
    return step


if __name__ == "__main__":
    main()

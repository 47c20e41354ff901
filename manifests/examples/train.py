"""A training program that may be preempted at any time: the contract "checkpoint now" over HTTP.

It uses the standard library only.

A workload that keeps these four promises loses no work:

1. It answers the hint. `POST` asks for a checkpoint; `GET` asks for progress and changes nothing.
   Only "saved" means saved.
2. It saves by write and rename, so that a checkpoint is whole or is not there.
3. It exits with 0 only when it has finished. After SIGTERM it is unfinished, whatever it has saved.
4. The replacement resumes from the checkpoint that it is given.

After saving it trains on: if the eviction is cancelled, nothing was lost; if not, only the steps
since are repeated.
"""

import json
import os
import signal
import sys
import threading
import time
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STEPS = int(os.environ.get("STEPS", "600"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.2"))
SAVE_SECONDS = float(os.environ.get("SAVE_SECONDS", "1"))  # how long this model takes to write
# For demonstrations: "silent" never answers; "stubborn" also ignores SIGTERM.
MODE = os.environ.get("MODE", "saves")
PORT = 8080
MOST_BYTES = 16 * 1024  # of a request; Reprieve's are a few hundred


class Checkpoints:
    """The last request and its progress: the training loop writes it, the HTTP server reads it."""

    def __init__(self) -> None:
        """Begin without a request."""
        self._lock = threading.Lock()
        self._answer: dict[str, object] = {"state": "idle"}

    def ask(self, eviction_id: str) -> dict[str, object]:
        """Accept a request; the same one again changes nothing."""
        with self._lock:
            if self._answer.get("id") != eviction_id:
                self._answer = {"state": "accepted", "id": eviction_id}
            return self._answer

    def answer(self, **changes: object) -> dict[str, object]:
        """Apply `changes` to the answer and return it."""
        with self._lock:
            self._answer = {**self._answer, **changes}
            return self._answer


CHECKPOINTS = Checkpoints()


class Headers(HTTPMessage):
    """Headers whose `Content-Type` is not looked at: a very long one takes seconds."""

    def get_content_type(self) -> str:
        """Return a type without parts, for the parser."""
        return "text/plain"


class HintHandler(BaseHTTPRequestHandler):
    """The server side of `reprieve.dev/checkpoint-hint: http://:8080/checkpoint`."""

    MessageClass = Headers

    def do_POST(self) -> None:
        """Accept the request; the training loop saves between two steps."""
        length = int(self.headers.get("Content-Length", 0))
        if not 0 <= length <= MOST_BYTES:
            self.send_error(413)
            return
        request = json.loads(self.rfile.read(length))
        reason = request["reason"] or "no reason given"
        print(f"asked for a checkpoint by {request['deadline']}: {reason}", flush=True)
        self._send(CHECKPOINTS.ask(request["id"]))

    def do_GET(self) -> None:
        """Return the progress."""
        self._send(CHECKPOINTS.answer())

    def _send(self, answer: dict[str, object]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing for each poll."""


def main() -> None:
    """Train to the end, or until SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN if MODE == "stubborn" else stop)
    if MODE == "saves":
        # The pod's own address: Reprieve calls no other, and no other pod on a shared network is
        # affected.
        server = ThreadingHTTPServer((os.environ["POD_IP"], PORT), HintHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    first = resume()
    print(f"training from step {first} to {STEPS}", flush=True)
    for step in range(first, STEPS):
        time.sleep(STEP_SECONDS)  # stands for the work
        if CHECKPOINTS.answer()["state"] == "accepted":
            save(step + 1)
    print("finished", flush=True)


def save(step: int) -> None:
    """Save the state after `step` steps."""
    CHECKPOINTS.answer(state="saving", step=step)
    path = Path(os.environ["CHECKPOINTS"], f"{os.environ['POD_NAME']}.json")
    unfinished = path.with_suffix(".new")
    with unfinished.open("w") as file:
        json.dump({"step": step}, file)
        time.sleep(SAVE_SECONDS)  # a real model takes longer to write than one number
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    CHECKPOINTS.answer(state="saved", path=str(path))
    print(f"saved step {step} to {path}", flush=True)


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

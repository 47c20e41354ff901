"""A launcher that handles SIGTERM only: what `torchrun` does to its workers, without PyTorch.

On SIGTERM it passes the signal on, gives its workers 30 seconds, and kills those that remain. A
checkpoint of a large model takes longer. The launcher needs no change: the hint comes earlier, by a
file that a worker reads between two steps (train.py).
"""

import os
import signal
import subprocess
import sys
import time

WORKERS = int(os.environ.get("WORKERS", "2"))
STOP_SECONDS = 30.0


def main() -> int:
    """Start the workers, wait for them, and exit with their status."""
    signal.signal(signal.SIGTERM, stop)
    command = [sys.executable, *sys.argv[1:]]
    places = [
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORKERS)}
        for rank in range(WORKERS)
    ]
    workers = [
        subprocess.Popen(command, env={**os.environ, **place})  # noqa: S603 - our own arguments
        for place in places
    ]
    try:
        return max(abs(worker.wait()) for worker in workers)
    except SystemExit:
        end(workers)
        raise


def stop(*_: object) -> None:
    """Exit unfinished with 128 + SIGTERM: to a Job, 0 would mean that no work is left."""
    print("launcher: stopped by SIGTERM", flush=True)
    sys.exit(143)


def end(workers: list[subprocess.Popen[bytes]]) -> None:
    """Send SIGTERM to the workers, and kill those that still run after the deadline."""
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for worker in workers:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()


if __name__ == "__main__":
    sys.exit(main())

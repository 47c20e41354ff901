"""A launcher that knows one thing of preemption, SIGTERM: what `torchrun` does to its workers, without PyTorch.

On SIGTERM it passes the signal on, gives its workers 30 seconds, and kills what is left. No checkpoint of a large model is written
in that time. Nothing is changed here: the hint comes first, by a file that a worker looks at between two steps (train.py).
"""

import os
import signal
import subprocess
import sys
import time

WORKERS = int(os.environ.get("WORKERS", "2"))
STOP_SECONDS = 30.0


def main() -> int:
    """Start the workers, wait for them, and end as they end."""
    signal.signal(signal.SIGTERM, stop)
    command = [sys.executable, *sys.argv[1:]]
    places = [{"RANK": str(rank), "WORLD_SIZE": str(WORKERS)} for rank in range(WORKERS)]
    workers = [subprocess.Popen(command, env={**os.environ, **place}) for place in places]  # noqa: S603 - our own arguments
    try:
        return max(abs(worker.wait()) for worker in workers)
    except SystemExit:
        end(workers)
        raise


def stop(*_: object) -> None:
    """End unfinished, 128 + SIGTERM: for a Job, 0 would mean that nothing is left to do."""
    print("launcher: stopped by SIGTERM", flush=True)
    sys.exit(143)


def end(workers: list[subprocess.Popen[bytes]]) -> None:
    """Tell the workers to stop, and kill those that have not after a while."""
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

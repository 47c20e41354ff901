"""The frame of a command that needs a cluster: its exit status, and one sentence for an error."""

import signal
from collections.abc import Callable

from .errors import ClusterError
from .progress import Progress

INTERRUPTED = 130
"""128 + SIGINT, as a shell reports it."""


def run(
    name: str,
    work: Callable[[Progress], int],
    *,
    interrupted: str = "interrupted",
) -> int:
    """Return the exit status of `work`; report an error, or that it was interrupted.

    SIGTERM interrupts too. Without this, clusters and servers would outlive a `kill`.
    """
    progress = Progress()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return work(progress)
    except ClusterError as error:
        progress.say(f"{name}: {error}")
        return 1
    except KeyboardInterrupt:
        progress.say(interrupted)
        return INTERRUPTED

"""For programs in pods: save when Reprieve asks, and resume where the last pod stopped.

    import reprieve_client as reprieve

    with reprieve.checkpointing(save, resume) as session:
        for step in session.steps(1000):
            train(step)

The library uses the standard library only. `docs/authors.md` has a page of examples.
"""

from .agreement import Agreement, Outcome
from .checkpoints import Checkpoint, CheckpointFolder, atomic_write
from .contract import Request
from .session import Session, checkpointing
from .termination import UNFINISHED

__all__ = [
    "UNFINISHED",
    "Agreement",
    "Checkpoint",
    "CheckpointFolder",
    "Outcome",
    "Request",
    "Session",
    "atomic_write",
    "checkpointing",
]

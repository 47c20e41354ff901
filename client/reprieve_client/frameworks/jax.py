"""All processes of `jax.distributed` save after the same step.

Give the agreement to the session:

    with reprieve.checkpointing(save, resume, agreement=all_processes()) as session:
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.experimental import multihost_utils

from reprieve_client import contract
from reprieve_client.agreement import AllRanks, Outcome

MAX_BYTES = 8192
"""Of a process's outcome: all processes send as much. The longest path and error have less."""


def all_processes(every: int = 1) -> AllRanks:
    """Return the agreement of all processes.

    Args:
        every: How many steps apart the processes talk.
    """
    return AllRanks(_largest, _gather, every)


def _largest(numbers: Sequence[int]) -> Sequence[int]:
    # JAX has 32 bits for whole numbers by default, which is enough for a step.
    gathered = _of_all(np.array(numbers, np.int32))
    return [int(number) for number in gathered.max(axis=0)]


def _gather(own: Outcome) -> Sequence[Outcome]:
    error = None if own.error is None else own.error[: contract.MAX_MESSAGE_CHARACTERS]
    text = json.dumps([contract.printable_path(own.path), error]).encode()
    row = np.zeros(MAX_BYTES, np.uint8)
    row[: len(text)] = np.frombuffer(text, np.uint8)
    return [Outcome(*json.loads(bytes(each).rstrip(b"\0"))) for each in _of_all(row)]


def _of_all(row: Any) -> Any:
    """Return the rows of all processes, one below the other."""
    return np.asarray(multihost_utils.process_allgather(row)).reshape(-1, len(row))

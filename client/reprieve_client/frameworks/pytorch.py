"""All ranks of `torch.distributed` save after the same step.

    with reprieve.checkpointing(save, resume, agreement=TorchAgreement()) as session:

Any rank may have been asked: each pod of a job is asked by itself. A checkpoint counts as saved
when all ranks have saved.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from reprieve_client.agreement import Outcome

SAVE_HOURS = 6
"""How long the ranks wait for the slowest of them to save."""


class TorchAgreement:
    """Agrees by an all-reduce of two numbers, every few steps.

    Make it on all ranks, after `init_process_group`: it has a group of its own, on gloo, so that it
    neither waits for a GPU nor disturbs the order of other calls.

    Args:
        every: How many steps apart the ranks talk. One call takes some tenths of a millisecond; a
            request waits for the next.
    """

    def __init__(self, every: int = 1) -> None:
        self._every = every
        self._calls = 0
        self._target: int | None = None
        self._group: Any = dist.new_group(backend="gloo", timeout=timedelta(hours=SAVE_HOURS))

    def decide(self, step: int, is_wanted: bool) -> bool:  # noqa: FBT001 - the interface's
        """Return whether all ranks save after `step` steps.

        Ranks that are behind save when they reach the step of the one that is furthest.
        """
        if self._target is None:
            self._target = self._next_target(step, is_wanted=is_wanted)
        if self._target is None or step < self._target:
            return False
        if step > self._target:
            raise RuntimeError(f"step {step} follows on a step before {self._target}")
        self._target = None
        self._calls = 0
        return True

    def combine(self, own: Outcome) -> Outcome:
        """Wait for all ranks; saved is what all have saved, under the first path that one names."""
        outcomes: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(outcomes, tuple(own), group=self._group)
        paths = [path for path, _ in outcomes if path is not None]
        errors = [
            f"rank {rank}: {error}" for rank, (_, error) in enumerate(outcomes) if error is not None
        ]
        return Outcome(*paths[:1]) if not errors else Outcome(error=errors[0])

    def _next_target(self, step: int, *, is_wanted: bool) -> int | None:
        self._calls += 1
        if self._calls % self._every:
            return None
        votes = torch.tensor([int(is_wanted), step])
        dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=self._group)
        is_wanted_by_any, furthest = votes.tolist()
        return int(furthest) if is_wanted_by_any else None

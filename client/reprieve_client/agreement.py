"""When a save happens, where a program has several processes: all save after the same step.

`frameworks.pytorch` and `frameworks.jax` make the agreement of their processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class Outcome(NamedTuple):
    """How a save ended, in one process or in all."""

    path: str | None = None
    error: str | None = None
    """Why nothing is saved; `None` where all is."""


class Agreement(Protocol):
    """Makes the same decision in all processes. Each of them calls it after the same steps."""

    def decide(self, step: int, is_wanted: bool) -> bool:  # noqa: FBT001 - a vote
        """Return whether this process saves now, after `step` steps."""
        ...

    def defer(self, step: int) -> None:
        """Note that this process cannot save after `step` steps, in place of `decide`."""
        ...

    def combine(self, own: Outcome) -> Outcome:
        """Wait until all processes have saved; return the outcome of all."""
        ...


class Alone:
    """One process agrees with itself."""

    def decide(self, step: int, is_wanted: bool) -> bool:  # noqa: ARG002, FBT001 - the interface's
        """Save where this process wants it."""
        return is_wanted

    def defer(self, step: int) -> None:
        """Do nothing: no other process waits."""

    def combine(self, own: Outcome) -> Outcome:
        """Return the own outcome."""
        return own


class AllRanks:
    """The ranks of one program. Any of them may have been asked: each pod is asked by itself.

    Args:
        largest: Returns the largest of each number over all ranks; waits for all of them.
        gather: Returns the outcomes of all ranks, by rank; waits for all of them.
        every: How many steps apart the ranks talk. A request waits for the next time.
    """

    def __init__(
        self,
        largest: Callable[[Sequence[int]], Sequence[int]],
        gather: Callable[[Outcome], Sequence[Outcome]],
        every: int = 1,
    ) -> None:
        if every < 1:
            raise ValueError("every must be at least 1")
        self._largest = largest
        self._gather = gather
        self._every = every
        self._calls = 0
        self._target: int | None = None

    def decide(self, step: int, is_wanted: bool) -> bool:  # noqa: FBT001 - the interface's
        """Return whether this rank saves after `step` steps.

        Ranks that are behind save when they reach the step of the one that is furthest.
        """
        if self._target is None:
            self._target = self._next_target(step, is_wanted=is_wanted)
        if self._target is None or step < self._target:
            return False
        if step > self._target:
            raise RuntimeError(f"the ranks save at step {self._target}, which {step} has skipped")
        self._forget_target()
        return True

    def defer(self, step: int) -> None:
        """Where the ranks save at this step, let it fail for all of them, so that all try again.

        Without this, those that have saved would wait, and a later step of this one is no part of
        their checkpoint.
        """
        if self._target is not None and step >= self._target:
            self._forget_target()
            self._gather(Outcome(error=f"deferred at step {step}"))

    def combine(self, own: Outcome) -> Outcome:
        """Wait for all ranks; saved is what all have saved, under the first path that one names."""
        outcomes = self._gather(own)
        for rank, outcome in enumerate(outcomes):
            if outcome.error is not None:
                return Outcome(error=f"rank {rank}: {outcome.error}")
        return Outcome(next((each.path for each in outcomes if each.path is not None), None))

    def _forget_target(self) -> None:
        self._target = None
        self._calls = 0

    def _next_target(self, step: int, *, is_wanted: bool) -> int | None:
        self._calls += 1
        if self._calls % self._every:
            return None
        is_wanted_by_any, furthest = self._largest([int(is_wanted), step])
        return int(furthest) if is_wanted_by_any else None

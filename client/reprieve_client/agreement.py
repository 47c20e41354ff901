"""When a save happens, where a program has several processes: the interface, and one process.

`frameworks.pytorch` has the agreement of the ranks of `torch.distributed`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Outcome(NamedTuple):
    """How a save ended, in one process or in all."""

    path: str | None = None
    error: str | None = None
    """Why nothing is saved; `None` where all is."""


class Agreement(Protocol):
    """Makes the same decision in all processes. Each of them calls it after the same steps."""

    def decide(self, step: int, is_wanted: bool) -> bool:  # noqa: FBT001 - a vote
        """Return whether all processes save now, after `step` steps."""
        ...

    def combine(self, own: Outcome) -> Outcome:
        """Wait until all processes have saved; return the outcome of all."""
        ...


class Alone:
    """One process agrees with itself."""

    def decide(self, step: int, is_wanted: bool) -> bool:  # noqa: ARG002, FBT001 - the interface's
        """Save where this process wants it."""
        return is_wanted

    def combine(self, own: Outcome) -> Outcome:
        """Return the own outcome."""
        return own

"""A stand-in for the group of a framework, in which the ranks of a program agree."""

import threading
from collections.abc import Sequence

from reprieve_client.agreement import AllRanks, Outcome

SECONDS = 30.0
"""How long a rank waits for the others."""


class Group:
    """Ranks in threads: each call waits for all of them."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size)
        self._places: dict[int, object] = {}

    def agreement(self, rank: int, every: int = 1) -> AllRanks:
        def largest(numbers: Sequence[int]) -> Sequence[int]:
            rows = self._exchange(rank, list(numbers))
            return [max(column) for column in zip(*rows, strict=True)]

        def gather(own: Outcome) -> Sequence[Outcome]:
            return self._exchange(rank, own)  # type: ignore[return-value]

        return AllRanks(largest, gather, every)

    def _exchange(self, rank: int, value: object) -> list[object]:
        self._places[rank] = value
        self._barrier.wait(SECONDS)
        values = [self._places[each] for each in sorted(self._places)]
        self._barrier.wait(SECONDS)
        return values

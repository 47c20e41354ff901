"""Which gangs the next decision looks at, where its time does not suffice for all that wait.

It looks at as many as there is time for, in their usual order. They are chosen in rounds: one gang
of each Namespace, then a second of each. First comes the Namespace whose last turn is the longest
ago, and within it the gang whose last turn is. So the gangs of a tenant, however many and costly,
do not keep those of another Namespace from having a turn. Without this, the first gangs in the
order could use up the time of every decision.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_EVERY = 2**31
"""More gangs than can wait."""


def in_rounds(items: Iterable[T], namespace_of: Callable[[T], str]) -> list[T]:
    """Return one item of each Namespace, then a second of each, and so on; else in their order."""
    seen: Counter[str] = Counter()
    rounds: list[tuple[int, T]] = []
    for item in items:
        namespace = namespace_of(item)
        rounds.append((seen[namespace], item))
        seen[namespace] += 1
    return [item for _, item in sorted(rounds, key=lambda each: each[0])]


class GateRotation(Generic[K]):
    """Remembers which Namespaces and gangs had a turn, and how many there is time for."""

    def __init__(self, namespace_of: Callable[[K], str]) -> None:
        self._namespace_of = namespace_of
        self._most = _EVERY
        self._turn = 0
        self._namespaces: dict[str, int] = {}
        """The last turn of each Namespace, by its number."""
        self._gangs: dict[K, int] = {}
        """The same of each gang."""

    def next_gangs(self, queue: Sequence[K], tried: Collection[K]) -> Sequence[K]:
        """Return the gangs to look at now; like `queue`, in the order in which they are tried.

        `tried`: those for which a further look would tell nothing new.
        """
        untried = [key for key in queue if key not in tried]
        if len(queue) <= self._most:
            self._namespaces, self._gangs = {}, {}
            return untried
        self._gangs = {key: self._gangs[key] for key in queue if key in self._gangs}
        longest_first = sorted(untried, key=self._last_turns)
        chosen = set(in_rounds(longest_first, self._namespace_of)[: self._most])
        return [key for key in untried if key in chosen]

    def record(self, looked_at: Sequence[K], without_turn: Collection[K]) -> Sequence[K]:
        """Record for which of these gangs there was no time; return those that had their turn.

        If there was none for any, the first had its turn: it had all the time that there is.
        """
        had_turn = [key for key in looked_at if key not in without_turn] or looked_at[:1]
        if without_turn:
            self._most = max(1, len(looked_at) // 2)
        elif len(looked_at) >= self._most:
            self._most *= 2
        self._turn += 1
        for key in had_turn:
            self._gangs[key] = self._namespaces[self._namespace_of(key)] = self._turn
        return had_turn

    def _last_turns(self, key: K) -> tuple[int, int]:
        return self._namespaces.get(self._namespace_of(key), 0), self._gangs.get(key, 0)

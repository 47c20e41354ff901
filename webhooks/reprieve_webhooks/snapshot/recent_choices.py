"""The sets of victims that were returned to a scheduler lately: whoever is refused one victim's deletion marks its whole set.

A hint, never a right: a set is of one preemptor, and counts only for that one, while a scheduler has it nominated; and it is known to
the replica that was asked and no other. Where it is missing, victims are found out one by one, as without the extender.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

TTL_SECONDS = 600.0
"""A scheduler that is asked to come back in 30 s does so eleven times before it waits for an event: 330 s, and some more."""
_MAX_PREEMPTORS = 2000
"""More than are ever under way at once; some 2 MB."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """One pod, as a write to it must name it."""

    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class VictimSet:
    """The victims of one node for one preemptor, the most important first."""

    preemptor: PodIdentity
    node: str
    victims: tuple[PodIdentity, ...]
    victims_on_other_nodes: tuple[PodIdentity, ...] = ()
    """Of their gangs, who goes with them and is not taken with them by the operator: not by its own word the gang goes as a whole."""
    whole_gang_uids: frozenset[str] = frozenset()
    """The uids of such gangs' pods, here and elsewhere: each is to be marked, also where it wants no notice. Without this, a
    scheduler would take those that are here, and the others would run on below their minimum."""

    def contains(self, node: str, victim_uid: str) -> bool:
        """True where this pod of this node is one of them."""
        return self.node == node and any(victim.uid == victim_uid for victim in self.victims)


class VictimSetLookup(Protocol):
    """What the guard may ask."""

    def find(self, node: str, victim_uid: str, *, by: str) -> VictimSet | None:
        """Return the latest set of the preemptor `by`, where this victim of `node` is in it; `None` where none is remembered."""

    def preemptor_uids(self, node: str, victim_uid: str) -> Collection[str]:
        """Return the uids of those in whose latest set this victim of `node` is."""

    def takes_whole_gang(self, victim_uid: str, *, by: str) -> bool:
        """True where this victim goes with others that the operator does not take with it, in the latest set of the preemptor `by`."""


@dataclass(frozen=True, slots=True)
class _RecordedVictimSet:
    recorded_at: float
    victim_set: VictimSet


class RecentVictimSets:
    """`LastChoices`, one for each preemptor, as long as it can matter."""

    def __init__(
        self, *, max_entries: int = _MAX_PREEMPTORS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_entries, self._monotonic = max_entries, monotonic
        self._by_preemptor: dict[str, _RecordedVictimSet] = {}

    def record(self, victim_set: VictimSet) -> None:
        """Take in what was just returned; it replaces what the same preemptor was told before."""
        self._by_preemptor.pop(victim_set.preemptor.uid, None)
        self._by_preemptor[victim_set.preemptor.uid] = _RecordedVictimSet(
            self._monotonic(), victim_set
        )
        self._expire()

    def find(self, node: str, victim_uid: str, *, by: str) -> VictimSet | None:
        """Return the latest set of the preemptor `by`, where this victim of `node` is in it; `None` where none is remembered."""
        self._expire()
        remembered = self._by_preemptor.get(by)
        return (
            remembered.victim_set
            if remembered is not None and remembered.victim_set.contains(node, victim_uid)
            else None
        )

    def preemptor_uids(self, node: str, victim_uid: str) -> Collection[str]:
        """Return the uids of those in whose latest set this victim of `node` is."""
        self._expire()
        return {
            uid
            for uid, one in self._by_preemptor.items()
            if one.victim_set.contains(node, victim_uid)
        }

    def takes_whole_gang(self, victim_uid: str, *, by: str) -> bool:
        """True where this victim goes with others that the operator does not take with it, in the latest set of the preemptor `by`."""
        self._expire()
        remembered = self._by_preemptor.get(by)
        return remembered is not None and victim_uid in remembered.victim_set.whole_gang_uids

    def _expire(self) -> None:
        """Forget what is old, and the oldest of what is too much."""
        oldest_allowed = self._monotonic() - TTL_SECONDS
        while self._by_preemptor:
            uid, oldest = next(iter(self._by_preemptor.items()))
            if oldest.recorded_at > oldest_allowed and len(self._by_preemptor) <= self._max_entries:
                return
            del self._by_preemptor[uid]

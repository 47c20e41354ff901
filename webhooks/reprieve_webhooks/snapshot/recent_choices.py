"""The sets of victims that the extender returned recently.

When the guard refuses the deletion of one victim, it marks the whole set. A set is a hint and
grants no right: it belongs to one preemptor and counts only for that preemptor, while a scheduler
has it nominated. Only the replica that answered the scheduler knows it. Without the set, victims
are found one by one, as without the extender, but for a gang that can spare no pod.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, Self

from reprieve_policy.preemption.selection.snapshot import ScheduledPod
from reprieve_runtime.bounded_dict import BoundedDict

TTL_SECONDS = 600.0
"""A scheduler that is told to retry after 30 s retries eleven times before it waits for an event:
330 s, and some more."""
_MAX_PREEMPTORS = 2000
"""More than are ever active at once; some 2 MB."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """One pod, as a write to it must name it."""

    uid: str
    namespace: str
    name: str

    @classmethod
    def of(cls, pod: ScheduledPod) -> Self:
        """Return the identity of a pod on a node."""
        return cls(pod.uid, pod.namespace, pod.name)


@dataclass(frozen=True, slots=True)
class VictimSet:
    """The victims of one node for one preemptor, the most important first."""

    preemptor: PodIdentity
    node: str
    victims: tuple[PodIdentity, ...]
    victims_on_other_nodes: tuple[PodIdentity, ...] = ()
    """Members of the victims' gangs that must go too and that the operator does not take with them,
    because the gang does not ask to be evicted as a unit."""
    whole_gang_uids: frozenset[str] = frozenset()
    """The uids of all pods of such gangs, on this node and elsewhere. Each must be marked, also if
    it wants no notice. Without this, a scheduler would delete those on this node, and the others
    would run on below their gang's minimum."""

    def contains(self, node: str, victim_uid: str) -> bool:
        """True where this pod of this node is one of them."""
        return self.node == node and any(victim.uid == victim_uid for victim in self.victims)


class VictimSetLookup(Protocol):
    """What the guard may ask."""

    def find(self, node: str, victim_uid: str, *, by: str) -> VictimSet | None:
        """Return the latest set of the preemptor `by` if it contains this victim of `node`."""

    def preemptor_uids(self, node: str, victim_uid: str) -> Collection[str]:
        """Return the uids of the preemptors whose latest set contains this victim of `node`."""

    def takes_whole_gang(self, victim_uid: str, *, by: str) -> bool:
        """True where the latest set of `by` takes all of a gang that is not evicted as a unit.

        The operator then does not take the other members with this victim.
        """


class NoVictimSets:
    """A `VictimSetLookup` for a program without the extender."""

    def find(self, node: str, victim_uid: str, *, by: str) -> VictimSet | None:  # noqa: ARG002 - always empty
        """Return `None`."""
        return None

    def takes_whole_gang(self, victim_uid: str, *, by: str) -> bool:  # noqa: ARG002 - always empty
        """Return `False`."""
        return False

    def preemptor_uids(self, node: str, victim_uid: str) -> Collection[str]:  # noqa: ARG002 - always empty
        """Return no uid."""
        return ()


@dataclass(frozen=True, slots=True)
class _RecordedVictimSet:
    recorded_at: float
    victim_set: VictimSet


class RecentVictimSets:
    """A `VictimSetLookup` that remembers one set for each preemptor, as long as it can matter."""

    def __init__(
        self, *, max_entries: int = _MAX_PREEMPTORS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._by_preemptor: BoundedDict[str, _RecordedVictimSet] = BoundedDict(max_entries)

    def record(self, victim_set: VictimSet) -> None:
        """Remember a set that was just returned; it replaces the preemptor's earlier one."""
        self._by_preemptor[victim_set.preemptor.uid] = _RecordedVictimSet(
            self._monotonic(), victim_set
        )
        self._expire()

    def find(self, node: str, victim_uid: str, *, by: str) -> VictimSet | None:
        """Return the latest set of the preemptor `by` if it contains this victim of `node`."""
        self._expire()
        recorded = self._by_preemptor.get(by)
        return (
            recorded.victim_set
            if recorded is not None and recorded.victim_set.contains(node, victim_uid)
            else None
        )

    def preemptor_uids(self, node: str, victim_uid: str) -> Collection[str]:
        """Return the uids of the preemptors whose latest set contains this victim of `node`."""
        self._expire()
        return {
            uid
            for uid, recorded in self._by_preemptor.items()
            if recorded.victim_set.contains(node, victim_uid)
        }

    def takes_whole_gang(self, victim_uid: str, *, by: str) -> bool:
        """True where the latest set of `by` takes all of a gang that is not evicted as a unit."""
        self._expire()
        recorded = self._by_preemptor.get(by)
        return recorded is not None and victim_uid in recorded.victim_set.whole_gang_uids

    def _expire(self) -> None:
        """Forget sets older than `TTL_SECONDS`; the oldest come first."""
        oldest_allowed = self._monotonic() - TTL_SECONDS
        while self._by_preemptor:
            uid, oldest = next(iter(self._by_preemptor.items()))
            if oldest.recorded_at > oldest_allowed:
                return
            del self._by_preemptor[uid]

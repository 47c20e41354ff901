"""Whom a victim makes room for: a scheduler's DELETE names no preemptor, but what it preempts for it nominates to the node.

kube-scheduler writes `status.nominatedNodeName` in the same moment as it deletes the victims where preemption is
asynchronous (the default since 1.33), and only after the last deletion was accepted where it is not: a nomination that
appears while a deletion is being reviewed tells one from the other, too. One that was there before may be another pod's.

Since 1.35 it nominates as well who has found room and waits for a volume or a device there (`bindingCycle`, the feature gate
`NominatedNodeNameForExpectation`): such a pod makes nobody go. A preemptor is nominated in the same patch that says that it
was turned away (`handleSchedulingFailure`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .choosing import reading
from .choosing.objects import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Nominee:
    """A pending pod that a scheduler means to place on a node."""

    pod: Pod

    @property
    def uid(self) -> str:
        """Which pod it is, whatever its name was before."""
        return self.pod.metadata.uid or ""

    @property
    def priority(self) -> int:
        """What it is scheduled with."""
        return self.pod.spec.priority or 0

    @property
    def is_grouped(self) -> bool:
        """True for one of a native PodGroup, by whose priority it preempts (`native_group`)."""
        return self.pod.spec.schedulingGroup is not None

    @property
    def is_exempt(self) -> bool:
        """True for one of Kubernetes' own, or of an exempt Namespace."""
        return reading.is_exempt(self.pod, self.priority)

    @property
    def was_turned_away(self) -> bool:
        """False for one that has found room at once, and needs nobody's: no scheduler preempts for it."""
        found = self.pod.status.conditions or ()
        return any((one.type, one.status) == ("PodScheduled", "False") for one in found)

    @property
    def node(self) -> str:
        """Where it is to be placed."""
        return self.pod.status.nominatedNodeName or ""


def possible(nominees: Iterable[Nominee], node: str, victim_priority: int) -> list[Nominee]:
    """Return the pods that a victim on this node may make room for, the highest priority first, then the oldest.

    Those that were not turned away are last: some other scheduler than kube-scheduler may preempt for them all the same.

    One of a PodGroup may be among them whatever its own priority. Without this, its scheduler would be taken for one that
    nominates nobody, and storm.
    """
    here = (one for one in nominees if one.node == node and one.pod.wants_room)
    return sorted((one for one in here if one.is_grouped or one.priority > victim_priority), key=_rank)


def _rank(nominee: Nominee) -> tuple[bool, int, str, str]:
    created = nominee.pod.metadata.creationTimestamp or ""
    return not nominee.was_turned_away, -nominee.priority, created, nominee.uid

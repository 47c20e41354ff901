"""Whom a victim makes room for: a scheduler's DELETE names no preemptor, but what it preempts for it nominates to the node.

kube-scheduler writes `status.nominatedNodeName` in the same moment as it deletes the victims where preemption is
asynchronous (the default since 1.33), and only after the last deletion was accepted where it is not: a nomination that
appears while a deletion is being reviewed tells one from the other, too. One that was there before may be another pod's.

Since 1.35 it nominates as well who has found room and waits for a volume or a device there (`bindingCycle`, the feature gate
`NominatedNodeNameForExpectation`): such a pod makes nobody go. A preemptor is nominated in the same patch that says that it
was turned away (`handleSchedulingFailure`).

Where native groups are scheduled (1.37, the feature gate `GenericWorkload`), one that is disrupted as a whole is deleted on all of
its nodes, for a preemptor on one of them (`getCrossNodesVictims`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from reprieve_policy.kube.objects import pod_group_name_of

from .selection import snapshot_builder
from .selection.api_objects import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class NominatedPod:
    """A pending pod that a scheduler means to place on a node."""

    pod: Pod

    @property
    def uid(self) -> str:
        """Which pod it is, whatever its name was before."""
        return self.pod.metadata.uid or ""

    @property
    def preemptor_key(self) -> str:
        """For whom its scheduler preempts: for the pod, or for all of its native group at once."""
        group = pod_group_name_of(self.pod.spec.schedulingGroup)
        return f"{self.pod.metadata.namespace}/{group}" if group else self.uid

    @property
    def priority(self) -> int:
        """What it is scheduled with."""
        return self.pod.spec.priority or 0

    @property
    def is_in_pod_group(self) -> bool:
        """True for one of a native PodGroup, by whose priority it preempts (`native_group`)."""
        return self.pod.spec.schedulingGroup is not None

    @property
    def is_exempt(self) -> bool:
        """True for one of Kubernetes' own, or of an exempt Namespace."""
        return snapshot_builder.is_exempt(self.pod, self.priority)

    @property
    def was_unschedulable(self) -> bool:
        """False for one that has found room at once, and needs nobody's: no scheduler preempts for it.

        Of one that had scheduling gates the API server says so from the start (`applySchedulingGatedCondition`), and nobody takes
        that back before it is bound.
        """
        found = (one for one in self.pod.status.conditions or () if one.reason != "SchedulingGated")
        return any((one.type, one.status) == ("PodScheduled", "False") for one in found)

    @property
    def node(self) -> str:
        """Where it is to be placed."""
        return self.pod.status.nominatedNodeName or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedCapacity:
    """What a victim leaves."""

    node: str
    priority: int
    """Who is not above this did not preempt."""
    spans_nodes: bool = False
    """Its native group goes with it: who preempts may be nominated to any of the nodes where that runs. Which these are, is not known here."""


def possible_preemptors(
    nominees: Iterable[NominatedPod], vacancy: FreedCapacity
) -> list[NominatedPod]:
    """Return the pods that a victim may make room for: on its own node first, the highest priority first, then the oldest.

    Those that were not turned away are last: some other scheduler than kube-scheduler may preempt for them all the same.

    One of a PodGroup may be among them whatever its own priority. Without this, its scheduler would be taken for one that
    nominates nobody, and storm.
    """
    there = (one for one in nominees if _is_there(one, vacancy) and one.pod.is_pending)
    found = (one for one in there if one.is_in_pod_group or one.priority > vacancy.priority)
    return sorted(
        found, key=lambda one: (not one.was_unschedulable, one.node != vacancy.node, *_rank(one))
    )


def _is_there(nominee: NominatedPod, vacancy: FreedCapacity) -> bool:
    return bool(nominee.node) if vacancy.spans_nodes else nominee.node == vacancy.node


def _rank(nominee: NominatedPod) -> tuple[int, str, str]:
    return -nominee.priority, nominee.pod.metadata.creationTimestamp or "", nominee.uid

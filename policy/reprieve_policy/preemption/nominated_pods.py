"""The pods that a victim may make room for.

A scheduler's DELETE names no preemptor, but kube-scheduler nominates the preemptor to the node.

With asynchronous preemption (the default since 1.33) kube-scheduler writes
`status.nominatedNodeName` in the same moment as it deletes the victims; without, only after the
last deletion was accepted. So a nomination that appears while a deletion is reviewed identifies a
preemptor, too. One that was there before may be another pod's.

Since 1.35 it also nominates a pod that has found room and waits for a volume or a device there
(`bindingCycle`, feature gate `NominatedNodeNameForExpectation`): such a pod has no victims. A
preemptor is nominated in the same patch that marks it unschedulable (`handleSchedulingFailure`).

With native groups (1.37, feature gate `GenericWorkload`), a group that is disrupted as a whole is
deleted on all of its nodes, for a preemptor on one of them (`getCrossNodesVictims`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from reprieve_policy.kube.objects import pod_group_name_of
from reprieve_policy.kube.pods import Pod

from .selection import snapshot_builder


@dataclass(frozen=True, slots=True, kw_only=True)
class NominatedPod:
    """A pending pod that a scheduler means to place on a node."""

    pod: Pod

    @property
    def uid(self) -> str:
        """The identity of the pod, whatever its name was before."""
        return self.pod.metadata.uid or ""

    @property
    def preemptor_key(self) -> str:
        """What its scheduler preempts for: the pod, or all of its native group at once."""
        group = pod_group_name_of(self.pod.spec.schedulingGroup)
        return f"{self.pod.metadata.namespace}/{group}" if group else self.uid

    @property
    def priority(self) -> int:
        """The priority that it is scheduled with."""
        return self.pod.spec.priority or 0

    @property
    def is_in_pod_group(self) -> bool:
        """True for a member of a native PodGroup, whose priority it preempts with."""
        return self.pod.spec.schedulingGroup is not None

    @property
    def is_exempt(self) -> bool:
        """True for a system-critical pod, or one in an exempt Namespace."""
        return snapshot_builder.is_exempt(self.pod, self.priority)

    @property
    def was_unschedulable(self) -> bool:
        """False for a pod that found room at once: no scheduler preempts for it.

        For a pod with scheduling gates the API server sets the condition from the start
        (`applySchedulingGatedCondition`), and it stays until the pod is bound.
        """
        preemptors = (
            one for one in self.pod.status.conditions or () if one.reason != "SchedulingGated"
        )
        return any((one.type, one.status) == ("PodScheduled", "False") for one in preemptors)

    @property
    def node(self) -> str:
        """The node that it is nominated to."""
        return self.pod.status.nominatedNodeName or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedCapacity:
    """The room that a victim leaves."""

    node: str
    priority: int
    """A pod whose priority is not above this one did not preempt."""
    spans_nodes: bool = False
    """Its native group is deleted, too: the preemptor may be nominated to any of its nodes.

    Which nodes these are is not known here.
    """


def possible_preemptors(
    nominated_pods: Iterable[NominatedPod], freed: FreedCapacity
) -> list[NominatedPod]:
    """Return the pods that a victim may make room for, the most likely first.

    First those on its own node, then by priority, then the oldest. Pods that were not unschedulable
    are last: a scheduler other than kube-scheduler may preempt for them all the same.

    A member of a PodGroup may be among them whatever its own priority. Without this, its scheduler
    would count as one that nominates no pod, and would retry without pause.
    """
    on_node = (one for one in nominated_pods if _is_there(one, freed) and one.pod.is_pending)
    preemptors = (one for one in on_node if one.is_in_pod_group or one.priority > freed.priority)
    return sorted(
        preemptors, key=lambda one: (not one.was_unschedulable, one.node != freed.node, *_rank(one))
    )


def _is_there(nominated: NominatedPod, freed: FreedCapacity) -> bool:
    return bool(nominated.node) if freed.spans_nodes else nominated.node == freed.node


def _rank(nominated: NominatedPod) -> tuple[int, str, str]:
    return -nominated.priority, nominated.pod.metadata.creationTimestamp or "", nominated.uid

"""The pods of a node in groups of which any pod may go in the place of any other.

A decision looks at each group once. Without this, a call about 5,000 nodes would look at each of
150,000 pods. The groups are made once for each state of a node, and kept with it.

Pods are alike if they are equal in all that decides whether, and at what loss, they may be victims.
What changes with the time for one pod and not for the other makes a group of its own: a gang, a
release, a walltime, a save, a toleration that ends. Within a group the first pod goes first: the
one that started last loses least and is the least important (`least_loss`), now and later.
"""

from collections.abc import Sequence
from operator import attrgetter

from . import anti_affinity
from .snapshot import AlikePods, NodeInfo, ScheduledPod

_by_start = attrgetter("progress.started_at", "uid")


def on(node_info: NodeInfo) -> AlikePods:
    """Return the groups of a node's pods, which are made at the first call."""
    if not node_info.alike_pods:
        index = anti_affinity.index_of(node_info.pods, node_info.labels)
        node_info.alike_pods.append(AlikePods(_group(node_info.pods), index))
    return node_info.alike_pods[0]


def _group(pods: Sequence[ScheduledPod]) -> Sequence[Sequence[ScheduledPod]]:
    groups: dict[tuple[object, ...], list[ScheduledPod]] = {}
    for pod in pods:
        key = _common(pod) if _may_be_alike(pod) else (pod.uid,)
        groups.setdefault(key, []).append(pod)
    return tuple(
        tuple(sorted(group, key=_by_start, reverse=True)) if len(group) > 1 else (group[0],)
        for group in groups.values()
    )


def _may_be_alike(pod: ScheduledPod) -> bool:
    """True if time changes nothing about the pod but its loss, which grows from its start on."""
    work = pod.progress
    return (
        pod.gang is None
        and pod.release is None
        and work.walltime is None
        and work.saved_at is None
        and work.started_at is not None
        and not _has_toleration_that_ends(pod)
    )


def _has_toleration_that_ends(pod: ScheduledPod) -> bool:
    policy = pod.toleration.policy
    # A preemptor of a higher priority than the pod's is above the minimum, as by default.
    return (
        policy is not None
        and policy.seconds >= 0
        and policy.minimum_preemptable_priority > pod.preemption_priority + 1
    )


def _common(pod: ScheduledPod) -> tuple[object, ...]:
    """Return what alike pods have in common."""
    return (
        pod.namespace,
        pod.preemption_priority,
        pod.preemption_class,
        pod.is_non_preemptible,
        pod.is_service,
        pod.lacks_priority_class,
        pod.toleration.has_priority_class,
        pod.toleration.policy,
        pod.cost_inputs,
        pod.loss_inputs,
        pod.states_preferences,
        tuple(pod.amounts.items()),
        pod.ports,
        pod.quota,
        pod.counts_against_min,
    )

"""The preemption fields of a native PodGroup (`scheduling.k8s.io/v1beta1`, GenericWorkload).

A pod names its group in `spec.schedulingGroup` (read in `membership`). The group's priority
replaces that of all its pods, as in kube-scheduler 1.37 (framework/preemption, `GetPodPriority`).
Controllers make groups from a Workload by copying its templates, so for running pods the group
counts. They copy no annotations: the webhook does, when a group is created. A parent of groups
(CompositePodGroup) is not read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from reprieve_policy.keys import DISRUPTION_MODE, PREEMPTION_PRIORITY_CLASS
from reprieve_policy.kube.names import is_object_name
from reprieve_policy.kube.objects import Spec, annotations_of
from reprieve_policy.kube.pod_groups import PodGroup, PodGroupSpec

from .disruption import DisruptionMode, is_evicted_whole, read_disruption_mode


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupInfo:
    """What preemption needs to know of a group."""

    priority: int = 0
    """Of all its pods. A group without one was created when no PriorityClass was the default, and
    has 0."""
    disruption_mode: DisruptionMode = DisruptionMode.SINGLE
    min_count: int | None = None
    """How many of its pods must be placed together; `None`: they are placed one by one."""
    priority_class: str | None = None
    """The PriorityClass that its priority is of."""
    preemption_priority_class: str | None = None
    """The PriorityClass with whose value its pods are protected (document 003), by annotation."""


WORKLOAD_KEYS = (PREEMPTION_PRIORITY_CLASS, DISRUPTION_MODE)
"""The annotations of a Workload that its PodGroups have as well."""


def inherited_annotations(
    spec: Spec, annotations: Mapping[str, str], workload: Mapping[str, str]
) -> Mapping[str, str]:
    """Return what a new PodGroup takes over from the annotations of its Workload.

    What the group states itself stays. A group whose field says `all` does not go pod by pod.
    """
    is_whole = is_evicted_whole(spec.disruptionMode)
    return {
        key: workload[key]
        for key in WORKLOAD_KEYS
        if key in workload and key not in annotations and not (is_whole and key == DISRUPTION_MODE)
    }


def read(group: PodGroup) -> PodGroupInfo:
    """Return what preemption needs to know of a PodGroup."""
    spec, annotations = group.spec or PodGroupSpec(), annotations_of(group.metadata)
    policy = spec.schedulingPolicy.gang if spec.schedulingPolicy is not None else None
    # It is kept: an annotation may have a quarter of a megabyte.
    defence = annotations.get(PREEMPTION_PRIORITY_CLASS, "")
    return PodGroupInfo(
        priority=spec.priority or 0,
        disruption_mode=read_disruption_mode(spec.disruptionMode, annotations),
        min_count=policy.minCount if policy is not None else None,
        priority_class=spec.priorityClassName,
        preemption_priority_class=defence if is_object_name(defence) else None,
    )


def priority_of(priority: int | None, group: PodGroupInfo | None) -> int:
    """Return the priority of a pod in a preemption: its group's, if it has one."""
    return (priority or 0) if group is None else group.priority

"""The preemption fields of a native PodGroup (`scheduling.k8s.io/v1beta1`, GenericWorkload).

A pod names its group in `spec.schedulingGroup` (read in `membership`). The group's priority
replaces that of all its pods, as in kube-scheduler 1.37 (framework/preemption, `GetPodPriority`).
Controllers make groups from a Workload by copying its templates, so for running pods the group
counts. A parent of groups (CompositePodGroup) is not read.
"""

from dataclasses import dataclass

from reprieve_policy.kube.pod_groups import PodGroup, PodGroupSpec

from .disruption import DisruptionMode, read_disruption_mode


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupInfo:
    """What preemption needs to know of a group."""

    priority: int = 0
    """Of all its pods. A group without one was created when no PriorityClass was the default, and
    has 0."""
    disruption_mode: DisruptionMode = DisruptionMode.SINGLE
    min_count: int | None = None
    """How many of its pods must be placed together; `None`: they are placed one by one."""


def read(group: PodGroup) -> PodGroupInfo:
    """Return what preemption needs to know of a PodGroup."""
    spec = group.spec or PodGroupSpec()
    policy = spec.schedulingPolicy.gang if spec.schedulingPolicy is not None else None
    return PodGroupInfo(
        priority=spec.priority or 0,
        disruption_mode=read_disruption_mode(spec.disruptionMode),
        min_count=policy.minCount if policy is not None else None,
    )


def priority_of(priority: int | None, group: PodGroupInfo | None) -> int:
    """Return the priority of a pod in a preemption: its group's, if it has one."""
    return (priority or 0) if group is None else group.priority

# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""A native PodGroup (`scheduling.k8s.io/v1beta1`, feature gate GenericWorkload): what it says of being preempted.

A pod names its group in `spec.schedulingGroup` (`gang` reads that). The group's priority stands for that of all its pods, as
kube-scheduler 1.37 has it (framework/preemption, `GetPodPriority`). A Workload is what controllers make groups from: they copy
its templates, so that what counts for pods that run is in the group. A parent of groups (CompositePodGroup) is not read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .disruption import DisruptionMode, read_disruption_mode


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPolicy:
    """`spec.schedulingPolicy.gang`."""

    minCount: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    """`spec.schedulingPolicy`: a gang's, or `basic`, where pods are placed one by one."""

    gang: GangPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupSpec:
    """The part of a PodGroup's spec that is read."""

    priority: int | None = None
    priorityClassName: str | None = None
    """What admission resolves the priority from."""
    disruptionMode: Mapping[str, object] | None = None
    schedulingPolicy: SchedulingPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A PodGroup as it is served; whoever asks for one knows its name."""

    spec: PodGroupSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupInfo:
    """What is to be known of a group."""

    priority: int = 0
    """Of all its pods. One that says nothing was made where no PriorityClass is the default, and has 0."""
    disruption_mode: DisruptionMode = DisruptionMode.SINGLE
    min_count: int | None = None
    """So many of its pods are placed together, or none; `None`: one by one."""


def read(group: PodGroup) -> PodGroupInfo:
    """Return what a PodGroup says."""
    spec = group.spec or PodGroupSpec()
    policy = spec.schedulingPolicy.gang if spec.schedulingPolicy is not None else None
    return PodGroupInfo(
        priority=spec.priority or 0,
        disruption_mode=read_disruption_mode(spec.disruptionMode),
        min_count=policy.minCount if policy is not None else None,
    )


def priority_of(priority: int | None, group: PodGroupInfo | None) -> int:
    """Return the priority that a pod is preempted by: its group's, where there is one."""
    return (priority or 0) if group is None else group.priority

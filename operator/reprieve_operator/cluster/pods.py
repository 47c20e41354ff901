# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""The few fields of a pod that its eviction depends on, decoded from the API server's JSON.

The watch keeps thousands of victims. So `VictimPod` is a root of its own, without the environment,
volumes, ports and affinity that `Pod` (`reprieve_policy.kube.pods`) has; its parts are the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reprieve_policy.config.namespace import UNTOUCHED
from reprieve_policy.kube.objects import (
    Quantities,
    ResourceRequirements,
    SchedulingGroup,
    VersionedMeta,
)
from reprieve_policy.kube.pods import PodStatus

PAGE_SIZE = 50
"""Objects in one page of a list: each may have 256 KiB of annotations, all in memory at once."""
MAX_ENTRIES = 250
"""Finalizers or scheduling gates of a pod that the operator writes to, as in the policy
`reprieve-operator-limits`: one with more counts as full."""
FINALIZERS_REMOVED = "$deleteFromPrimitiveList/finalizers"
"""What a strategic merge patch removes from the finalizers, whatever others are there."""
WRITABLE: Mapping[str, str] = {"fieldSelector": f"metadata.namespace!={UNTOUCHED}"}
"""Selects the pods that the operator may write to. Without this, it would try for ever to write to
a pod of kube-system that was marked before a mark there was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedObject:
    """Any object of which only the metadata is read."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)


def metadata_after(
    metadata: VersionedMeta, changes: Mapping[str, Any], version: str, *, adds_to_lists: bool
) -> VersionedMeta:
    """Return an object's metadata after a patch of its labels, annotations and finalizers.

    A strategic merge patch adds to lists or removes from them, a merge patch replaces them.
    """
    before, finalizers = metadata.finalizers or (), changes.get("finalizers")
    if finalizers is None:
        after = before
    elif adds_to_lists:
        after = (*before, *(name for name in finalizers if name not in before))
    else:
        after = tuple(finalizers)
    removed = changes.get(FINALIZERS_REMOVED, ())
    after = tuple(name for name in after if name not in removed)
    return replace(
        metadata,
        labels=_merged(metadata.labels, changes.get("labels")),
        annotations=_merged(metadata.annotations, changes.get("annotations")),
        finalizers=after,
        resourceVersion=version,
    )


def _merged(
    before: Mapping[str, str] | None, changes: Mapping[str, str | None] | None
) -> Mapping[str, str]:
    """Return labels or annotations after a merge patch, in which null removes a key."""
    after = {**(before or {}), **(changes or {})}
    return {key: value for key, value in after.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimContainer:
    """The name and the resources of a container; nothing else of it is kept."""

    name: str = ""
    resources: ResourceRequirements | None = None
    restartPolicy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimPodSpec:
    """The pod's grace period, node, resources and time limit."""

    terminationGracePeriodSeconds: int | None = None
    hostNetwork: bool | None = None
    hostPID: bool | None = None
    shareProcessNamespace: bool | None = None
    restartPolicy: str = "Always"
    nodeName: str = ""
    activeDeadlineSeconds: int | None = None
    containers: Sequence[VictimContainer] | None = None
    initContainers: Sequence[VictimContainer] | None = None
    resources: ResourceRequirements | None = None
    overhead: Quantities | None = None
    schedulingGroup: SchedulingGroup | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStateTerminated:
    """How a container ended."""

    exitCode: int = 0
    finishedAt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStateRunning:
    """A container that runs; since when is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """The state of a container; at most one field is set."""

    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    """Whether a container runs."""

    state: ContainerState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddress:
    """One of the addresses of a pod's node."""

    ip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimPodStatus(PodStatus):
    """A pod's status with its addresses and the states of its containers."""

    podIP: str = ""
    hostIP: str = ""
    hostIPs: tuple[HostAddress, ...] | None = None
    containerStatuses: Sequence[ContainerStatus] | None = None
    initContainerStatuses: Sequence[ContainerStatus] | None = None
    ephemeralContainerStatuses: Sequence[ContainerStatus] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimPod:
    """A victim, or a pod that may become one."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: VictimPodSpec = field(default_factory=VictimPodSpec)
    status: VictimPodStatus = field(default_factory=VictimPodStatus)


def without_version(pod: VictimPod) -> VictimPod:
    """Return the pod as one that is written by its uid alone (`writes`)."""
    return replace(pod, metadata=metadata_without_version(pod.metadata))


def metadata_without_version(metadata: VersionedMeta) -> VersionedMeta:
    """Return the metadata of a pod that is written by its uid alone."""
    return replace(metadata, resourceVersion="")

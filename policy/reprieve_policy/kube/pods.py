"""Pods with their status and everything that their placement depends on.

`Pod` is the pod that the API server serves. Rules read `objects.Resource` with `objects.Spec`,
which lack what only a placement depends on: each field costs time in every review, and a review of
another project's kind must not fail because of a field that no rule reads. The operator keeps
thousands of victims, so it has a narrower root, `VictimPod`, with the status of this module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .conditions import Condition
from .label_selector import LabelSelector
from .objects import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeToleration,
    ObjectMeta,
    PodView,
    Spec,
    Volume,
    annotations_of,
    labels_of,
)

FAILED = "Failed"
ENDED_PHASES = ("Succeeded", FAILED)
"""The phases of a pod that has ended: it no longer occupies its node."""
DEFAULT_GRACE_SECONDS = 30
"""The grace period of a pod that states none; the API server fills it in."""
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On static pods, which a kubelet runs from a file: a deleted one only appears again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStatus:
    """A pod's status."""

    phase: str = ""
    startTime: str | None = None
    nominatedNodeName: str | None = None
    conditions: Sequence[Condition] | None = None


class PodWithStatus(Protocol):
    """A decoded pod, whatever of its spec is decoded."""

    @property
    def metadata(self) -> ObjectMeta: ...  # noqa: D102 - the API's own name
    @property
    def status(self) -> PodStatus: ...  # noqa: D102


def own_grace_seconds(stated: int | None) -> int:
    """Return a pod's own grace period, of its `terminationGracePeriodSeconds`."""
    return DEFAULT_GRACE_SECONDS if stated is None else stated


def has_ended(pod: PodWithStatus) -> bool:
    """True if the pod has succeeded or failed."""
    return pod.status.phase in ENDED_PHASES


def is_terminating(pod: PodWithStatus) -> bool:
    """True if the pod has ended or is being deleted."""
    return pod.metadata.deletionTimestamp is not None or has_ended(pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort(ContainerPort):
    """A port of a container, with the host port if there is one."""

    hostPort: int = 0
    hostIP: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingContainer(Container):
    """A container with its host ports."""

    ports: Sequence[HostPort] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingToleration(NodeToleration):
    """A toleration with its effect."""

    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingNodeSelectorTerm(NodeSelectorTerm):
    """A term of required node affinity, with the names of nodes."""

    matchFields: Sequence[NodeSelectorRequirement] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingNodeSelector(NodeSelector):
    """Terms, one of which a node must satisfy."""

    nodeSelectorTerms: Sequence[SchedulingNodeSelectorTerm] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingNodeAffinity(NodeAffinity):
    """The node affinity of a pod."""

    requiredDuringSchedulingIgnoredDuringExecution: SchedulingNodeSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinityTerm:
    """A term of pod affinity or anti-affinity."""

    topologyKey: str = ""
    labelSelector: LabelSelector | None = None
    namespaces: Sequence[str] | None = None
    namespaceSelector: LabelSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinity:
    """Pod affinity, or anti-affinity."""

    requiredDuringSchedulingIgnoredDuringExecution: Sequence[PodAffinityTerm] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingAffinity(Affinity):
    """The affinity of a pod."""

    nodeAffinity: SchedulingNodeAffinity | None = None
    podAffinity: PodAffinity | None = None
    podAntiAffinity: PodAffinity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpreadConstraint:
    """A constraint on how pods are spread; `ScheduleAnyway` only prefers."""

    whenUnsatisfiable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingVolume(Volume):
    """A volume of a pod; of each source that binds it to some nodes, only whether it is there."""

    persistentVolumeClaim: Mapping[str, object] | None = None
    ephemeral: Mapping[str, object] | None = None
    csi: Mapping[str, object] | None = None
    awsElasticBlockStore: Mapping[str, object] | None = None
    gcePersistentDisk: Mapping[str, object] | None = None
    azureDisk: Mapping[str, object] | None = None
    cinder: Mapping[str, object] | None = None
    portworxVolume: Mapping[str, object] | None = None
    vsphereVolume: Mapping[str, object] | None = None
    iscsi: Mapping[str, object] | None = None
    rbd: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec(Spec):
    """A pod's spec with the fields that its placement depends on."""

    activeDeadlineSeconds: int | None = None
    schedulerName: str = ""
    affinity: SchedulingAffinity | None = None
    tolerations: Sequence[SchedulingToleration] | None = None
    containers: Sequence[SchedulingContainer] | None = None
    initContainers: Sequence[SchedulingContainer] | None = None
    topologySpreadConstraints: Sequence[TopologySpreadConstraint] | None = None
    volumes: Sequence[SchedulingVolume] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod.

    Its metadata has no resourceVersion. With it, the webhooks' cache of pods would take every
    update for a change of what decisions read.
    """

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def view(self) -> PodView:
        """The pod as the admission rules see it."""
        return PodView(
            "",
            labels_of(self.metadata),
            annotations_of(self.metadata),
            self.spec,
            is_template=False,
        )

    @property
    def occupies_node(self) -> bool:
        """True for a pod that is on a node and has not ended, as kube-scheduler counts."""
        return bool(self.spec.nodeName) and not has_ended(self)

    @property
    def is_pending(self) -> bool:
        """True for a pod that waits for a node."""
        return (
            not self.spec.nodeName
            and not has_ended(self)
            and self.metadata.deletionTimestamp is None
        )

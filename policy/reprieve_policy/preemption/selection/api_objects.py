# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""The API objects that a snapshot is built from: pods with status, nodes, PodDisruptionBudgets.

Only the fields that are read, beyond those of the admission rules (`reprieve_policy.kube.objects`).
No cache keeps these objects: `snapshot_builder` turns them into scheduled pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprieve_policy.kube import objects
from reprieve_policy.kube.objects import (
    NodeToleration,
    ObjectMeta,
    PodView,
    VersionedMeta,
    annotations_of,
    labels_of,
)

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort(objects.ContainerPort):
    """A port of a container, with the host port if there is one."""

    hostPort: int = 0
    hostIP: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingContainer(objects.Container):
    """A container with its host ports."""

    ports: Sequence[HostPort] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerated(NodeToleration):
    """A toleration with its effect."""

    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term(objects.NodeSelectorTerm):
    """A term of required node affinity."""

    matchFields: Sequence[objects.NodeSelectorRequirement] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(objects.NodeSelector):
    """Terms, one of which a node must satisfy."""

    nodeSelectorTerms: Sequence[Term] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingNodeAffinity(objects.NodeAffinity):
    """The node affinity of a pod."""

    requiredDuringSchedulingIgnoredDuringExecution: Choice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """A label selector."""

    matchLabels: Mapping[str, str] | None = None
    matchExpressions: Sequence[objects.NodeSelectorRequirement] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinityTerm:
    """A term of pod affinity or anti-affinity.

    Of `namespaceSelector` only its presence is read.
    """

    labelSelector: LabelSelector | None = None
    namespaces: Sequence[str] | None = None
    namespaceSelector: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinity:
    """Pod affinity, or anti-affinity."""

    requiredDuringSchedulingIgnoredDuringExecution: Sequence[PodAffinityTerm] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingAffinity(objects.Affinity):
    """The affinity of a pod."""

    nodeAffinity: SchedulingNodeAffinity | None = None
    podAffinity: PodAffinity | None = None
    podAntiAffinity: PodAffinity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpreadConstraint:
    """A constraint on how pods are spread; `ScheduleAnyway` only prefers."""

    whenUnsatisfiable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec(objects.Spec):
    """A pod's spec with the fields that its placement depends on."""

    activeDeadlineSeconds: int | None = None
    schedulerName: str = ""
    affinity: SchedulingAffinity | None = None
    tolerations: Sequence[Tolerated] | None = None
    containers: Sequence[SchedulingContainer] | None = None
    initContainers: Sequence[SchedulingContainer] | None = None
    topologySpreadConstraints: Sequence[TopologySpreadConstraint] | None = None
    resourceClaims: Sequence[Mapping[str, object]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCondition:
    """One of a pod's conditions."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    lastTransitionTime: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStatus:
    """A pod's status."""

    phase: str = ""
    startTime: str | None = None
    nominatedNodeName: str | None = None
    conditions: Sequence[PodCondition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod."""

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
        return bool(self.spec.nodeName) and self.status.phase not in _ENDED

    @property
    def is_pending(self) -> bool:
        """True for a pod that waits for a node."""
        return (
            not self.spec.nodeName
            and self.status.phase not in _ENDED
            and self.metadata.deletionTimestamp is None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTaint:
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """The taints and the cordon of a node."""

    unschedulable: bool | None = None
    taints: Sequence[NodeTaint] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node's capacity."""

    allocatable: objects.Quantities | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudgetSpec:
    """The selector of a budget, and its policy for unhealthy pods."""

    selector: LabelSelector | None = None
    unhealthyPodEvictionPolicy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudgetStatus:
    """What is left of the budget, as of which generation, and the pods evicted already, by name."""

    disruptionsAllowed: int = 0
    observedGeneration: int = 0
    currentHealthy: int = 0
    desiredHealthy: int = 0
    disruptedPods: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudget:
    """A PodDisruptionBudget."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)

# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""The objects that a scene is made from, as far as they are read: pods with their status, nodes, PodDisruptionBudgets.

Beyond what the rules at admission read (`reprieve_policy.kube.objects`). Nobody keeps these: `reading` makes tenants of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprieve_policy.kube import objects
from reprieve_policy.kube.objects import (
    NodeToleration,
    ObjectMeta,
    PodView,
    annotations_of,
    labels_of,
)

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort(objects.ContainerPort):
    """A port of a container, and of the node where it says so."""

    hostPort: int = 0
    hostIP: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container(objects.Container):
    """A container with its host ports."""

    ports: Sequence[HostPort] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerated(NodeToleration):
    """A toleration with the effect that it is about."""

    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term(objects.NodeSelectorTerm):
    """A term of required node affinity."""

    matchFields: Sequence[objects.NodeSelectorRequirement] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(objects.NodeSelector):
    """Terms of which a node must satisfy one."""

    nodeSelectorTerms: Sequence[Term] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinity(objects.NodeAffinity):
    """Which nodes a pod must have."""

    requiredDuringSchedulingIgnoredDuringExecution: Choice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """A label selector."""

    matchLabels: Mapping[str, str] | None = None
    matchExpressions: Sequence[objects.NodeSelectorRequirement] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinityTerm:
    """Certain pods: near which, or far from which. That Namespaces are selected is all that is read of their selector."""

    labelSelector: LabelSelector | None = None
    namespaces: Sequence[str] | None = None
    namespaceSelector: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinity:
    """Near which pods, or far from which."""

    requiredDuringSchedulingIgnoredDuringExecution: Sequence[PodAffinityTerm] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity(objects.Affinity):
    """Where a pod wants to run."""

    nodeAffinity: NodeAffinity | None = None
    podAffinity: PodAffinity | None = None
    podAntiAffinity: PodAffinity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpreadConstraint:
    """A constraint on how pods are spread; `ScheduleAnyway` only prefers."""

    whenUnsatisfiable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec(objects.Spec):
    """A pod's spec with what placing it depends on."""

    activeDeadlineSeconds: int | None = None
    schedulerName: str = ""
    affinity: Affinity | None = None
    tolerations: Sequence[Tolerated] | None = None
    containers: Sequence[Container] | None = None
    initContainers: Sequence[Container] | None = None
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
    """How far a pod is."""

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
        """The pod as the rules see one."""
        return PodView(
            "",
            labels_of(self.metadata),
            annotations_of(self.metadata),
            self.spec,
            is_template=False,
        )

    @property
    def occupies_node(self) -> bool:
        """True for one that is on a node and has not ended, as kube-scheduler counts them."""
        return bool(self.spec.nodeName) and self.status.phase not in _ENDED

    @property
    def is_pending(self) -> bool:
        """True for one that waits for a node."""
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
    """What keeps pods out of a node."""

    unschedulable: bool | None = None
    taints: Sequence[NodeTaint] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """How much there is."""

    allocatable: objects.Quantities | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudgetSpec:
    """Whom a budget protects."""

    selector: LabelSelector | None = None
    unhealthyPodEvictionPolicy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudgetStatus:
    """What is left of it, as of which of its generations, and who was evicted already, by name."""

    disruptionsAllowed: int = 0
    observedGeneration: int = 0
    currentHealthy: int = 0
    desiredHealthy: int = 0
    disruptedPods: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudgetMeta(ObjectMeta):
    """Metadata with the number of times that the spec was changed."""

    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudget:
    """A budget of disruptions."""

    metadata: PodDisruptionBudgetMeta = field(default_factory=PodDisruptionBudgetMeta)
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)

"""The input of a decision: nodes with their pods, budgets, gangs, and the preemptor.

Everything that a pod is judged by is decided once, when the pod, its Namespace or its PriorityClass
changes (`snapshot_builder`). Only what depends on the time is left to the decision: tolerations,
walltimes and costs. So a watch keeps scheduled pods, not objects, and a decision reads numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from reprieve_policy.config.preemption_class import DEFAULT
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.toleration import VictimToleration
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.kube.limits.quota import Amounts, Quota, QuotaKey
from reprieve_policy.kube.limits.quota_admission import QuotaUsage
from reprieve_policy.preemption import cost, loss
from reprieve_policy.preemption.cost import Cost, CostInputs, WorkProgress
from reprieve_policy.preemption.loss import LossInputs, SaveWay

NO_TOLERATION = VictimToleration(has_priority_class=False, policy=None, scheduled_at=None)
"""A pod without a PriorityClass, which tolerates nothing."""


class GangKey(NamedTuple):
    """The identity of a gang in the cluster."""

    namespace: str
    identity: str
    """Within the namespace; see `disruption.identity_of`."""


class HostPortInfo(NamedTuple):
    """A port of the node itself. Address `0.0.0.0` is every address."""

    address: str
    protocol: str
    number: int


PortNumber = tuple[str, int]
"""A protocol and a port's number."""


class Requirement(NamedTuple):
    """What a label must be: `In`, `NotIn`, `Exists`, `DoesNotExist`; on nodes `Gt`, `Lt`."""

    key: str
    operator: str
    values: Sequence[str] = ()


class NodeAffinityTerm(NamedTuple):
    """A term of required node affinity, all of which must hold. An empty term matches no node."""

    label_requirements: Sequence[Requirement] = ()
    name_requirements: Sequence[Requirement] = ()
    """What the node's name must be (`matchFields`)."""


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str


class TaintToleration(NamedTuple):
    """A toleration of a pod. Empty fields match all taints."""

    key: str
    operator: str
    value: str
    effect: str


class AntiAffinity(NamedTuple):
    """The pods that one keeps away: those in these Namespaces that satisfy all requirements."""

    namespaces: frozenset[str]
    requirements: tuple[Requirement, ...]
    topology_key: str = ""
    """The label of nodes that share a topology domain, such as a zone: from all of them.

    From no node without that label. Empty: from its own node.
    """
    namespace_requirements: tuple[Requirement, ...] | None = None
    """Also of each Namespace whose labels satisfy all of these; `None`: of no other."""


TOO_LARGE = AntiAffinity(frozenset(), ())
"""Of a pod whose terms are too large to be kept: whom it keeps away is unknown."""


LabelKey = tuple[str, str, str | None]
"""Whose label it is, its key, and its value; `None`: any value."""


class PostedTerm(NamedTuple):
    """A term of anti-affinity, by the labels of a preemptor that decide whether it matches."""

    topology_key: str
    asked: int
    """How many of the wanted labels a preemptor must have: one for each requirement."""
    wanted: Sequence[LabelKey]
    excluded: Sequence[LabelKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingConstraints:
    """Which nodes a pod may run on at all."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity_terms: Sequence[NodeAffinityTerm] | None = None
    """Required node affinity: a node must satisfy one of them; `None`: none is required."""
    tolerations: Sequence[TaintToleration] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """What a pending pod requests."""

    uid: str
    priority: int = 0
    amounts: Amounts = field(default_factory=dict)
    ports: frozenset[HostPortInfo] = frozenset()
    port_numbers: frozenset[PortNumber] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """What `node_fit` has made of them, once."""
    constraints: SchedulingConstraints = field(default_factory=SchedulingConstraints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """The pod that needs victims: a pending pod, with the rest of its gang."""

    demand: PodDemand
    namespace: str = ""
    name: str = ""
    preemption_class: int = DEFAULT
    is_exempt: bool = False
    """It is system-critical or in an exempt Namespace: the scheduler's own choice stands."""
    never_preempts: bool = False
    """Its `preemptionPolicy` is `Never`."""
    can_preempt: bool = True
    """By document 000's label, the scheduler's argument and the policy."""
    quota: QuotaKey | None = None
    counts_against_min: bool = False
    """By Koordinator's label it is not preemptible: its quota's `min` bounds it (000)."""
    gang: GangKey | None = None
    gang_minimum: int = 0
    """How many of its gang must have room before any of it takes victims; 0: all."""
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    pending_members: Sequence[PodDemand] = ()
    """Other members of its gang that need room and are nominated to no node."""
    member_nominated_nodes: Sequence[str] = ()
    """Nodes that other members are nominated to, and where victims may be leaving for them."""
    nominated_member_uids: frozenset[str] = frozenset()
    """The uids of those members."""
    nominated_node: str | None = None
    """Where victims of an earlier round may still be leaving."""
    devices: float = 0.0
    """Requested by it and the rest of its gang; see `cost.devices_of`."""
    walltime_seconds: int | None = None
    """The longest that it may run."""
    scheduler: str = ""
    """The name of its scheduler."""
    is_gated: bool = False
    """No scheduler places it yet."""
    unschedulable_since: datetime | None = None
    """Since when its scheduler finds no node for it; `None`: it has not said so yet."""
    takes_back_nodes: bool = False
    """Its Namespace takes back nodes that it lent (document 001): pods of its own priority, and of
    other quotas, may be victims."""
    depends_on_other_pods: bool = False
    """Its affinities and spread depend on other pods and cannot be evaluated here."""
    volumes_limit_nodes: bool = False
    """It has volumes that may be usable from some nodes only, which is not evaluated here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Why and when a pod leaves its node, by its mark, the operator's state or its deletion."""

    expected_at: datetime | None = None
    """When it was notified, or when its deletion ends; `None`: it is only marked, or unknown."""
    notified: bool = False
    """The operator evicts it: if waiting for it is enough, no node takes other victims."""
    is_being_deleted: bool = False
    is_held_by_budget: bool = False
    """It is only evicted, and waits for a budget: beyond the ceiling it counts as staying."""
    preemptor_uid: str = ""
    """The uid of the preemptor, if it leaves for one; see `release.preemptor_uid_of`."""
    leaves_for_none: bool = False
    """It leaves for no preemptor, known or not."""
    leaves_with_gang: bool = False
    """The operator takes it because others of its gang go."""

    @property
    def is_requested(self) -> bool:
        """True for a pod that was asked to leave, by itself and for no preemptor.

        It is not being deleted yet.
        """
        is_asked = self.notified and not (self.is_being_deleted or self.leaves_with_gang)
        return is_asked and self.leaves_for_none

    @property
    def is_only_marked(self) -> bool:
        """True for a pod that is marked and not yet notified: the operator is about to do so."""
        return self.expected_at is None

    @property
    def is_only_deleted(self) -> bool:
        """True for a pod that only a user deletes: without eviction, and without its gang."""
        return self.is_being_deleted and not (self.notified or self.is_held_by_budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledPod:
    """A pod on a node."""

    uid: str
    namespace: str = ""
    name: str = ""
    node: str = ""
    priority: int = 0
    """The priority that it is scheduled with."""
    preemption_priority: int = 0
    """The priority that it is defended with: never lower."""
    preemption_class: int = DEFAULT
    is_non_preemptible: bool = False
    """By its class and checkpoint (document 001), or by Koordinator's label (000)."""
    is_service: bool = False
    """Its Namespace runs services (document 001)."""
    release: Release | None = None
    """How it is leaving; `None`: it stays. A leaving pod is no victim again."""
    lacks_priority_class: bool = False
    """The PriorityClass that it names does not exist."""
    toleration: VictimToleration = NO_TOLERATION
    cost_inputs: CostInputs = cost.NO_COST
    loss_inputs: LossInputs = loss.NO_LOSS
    progress: WorkProgress = field(default_factory=WorkProgress)
    refused_since: datetime | None = None
    """When it was first refused on a ground that its owner can renew (`first_refusal`)."""
    states_preferences: bool = False
    """It states a class, a checkpoint, an eviction cost or a walltime of its own."""
    amounts: Amounts = field(default_factory=dict)
    ports: frozenset[HostPortInfo] = frozenset()
    port_numbers: frozenset[PortNumber] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """What `node_fit` has made of them, once."""
    labels: Mapping[str, str] = field(default_factory=dict)
    quota: QuotaKey | None = None
    counts_against_min: bool = False
    """As for a preemptor; what it uses is non-preemptible usage of its quota."""
    gang: GangKey | None = None
    disruption_mode: DisruptionMode = DisruptionMode.SINGLE
    """How its gang is disrupted, as this pod says; never `FROM_POD_GROUP`: already resolved."""
    gang_minimum: int = 0
    """How many of its gang are needed, as this pod says."""
    is_guarded: bool = False
    """The guard reviews a scheduler's deletion: it has the operator evict the rest of its gang."""
    anti_affinity: tuple[AntiAffinity, ...] = ()
    """The pods that it keeps away."""
    posted_terms: Sequence[PostedTerm] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """What `anti_affinity` has made of them, once."""

    @property
    def is_leaving(self) -> bool:
        """True for a pod that is marked, evicted or being deleted."""
        return self.release is not None

    @property
    def saves_at_its_end(self) -> bool:
        """True for a pod that saves when it is asked, or on SIGTERM."""
        return self.loss_inputs.way is not SaveWay.NOT_AT_THE_END

    def cost(self, now: datetime) -> Cost:
        """Return what preempting it costs now."""
        return cost.cost_of(self.cost_inputs, self.progress, now)

    def loss(self, now: datetime) -> float:
        """Return the device-seconds that preempting it is expected to lose now."""
        return loss.expected_loss(self.loss_inputs, self.progress, now)


Repelling = tuple[int, str]
"""A pod that keeps others away, by its place on its node, and the topology key of a term."""


class AntiAffinityIndex(NamedTuple):
    """The terms of a node's pods, by number; see `anti_affinity`."""

    owners: list[Repelling]
    asked: list[int]
    """How many labels each asks for."""
    asking_for_nothing: list[int]
    postings: dict[LabelKey, list[int]]
    """The terms that ask for a label, and each `~term` that excludes it."""


class AlikePods(NamedTuple):
    """The pods of a node, by what decides whether they may be victims; see `alike_pods`."""

    groups: Sequence[Sequence[ScheduledPod]]
    anti_affinity: AntiAffinityIndex | None
    """The anti-affinities of all of them; `None`: they have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """A node."""

    name: str
    allocatable: Amounts = field(default_factory=dict)
    """Nanos by resource, `pods` among them."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    is_unschedulable: bool = False
    pods: Sequence[ScheduledPod] = ()
    nominated_pods: Sequence[PodDemand] = ()
    """Pending pods that victims were selected for here."""
    alike_pods: list[AlikePods] = field(default_factory=list, init=False, repr=False, compare=False)
    """What `alike_pods.on` has made of the pods; a node whose pods change is another `NodeInfo`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    namespace: str
    requirements: Sequence[Requirement] = ()
    """All requirements of its selector; none select nothing, as in kube-scheduler."""
    disruptions_allowed: int = 0
    disrupted_pods: frozenset[str] = frozenset()
    """Names of pods evicted already: they do not count again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangInfo:
    """A gang."""

    key: GangKey
    disruption_mode: DisruptionMode = DisruptionMode.SINGLE
    min_available: int = 0
    members: Sequence[ScheduledPod] = ()
    """All members on nodes, wherever they run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaInfo:
    """What the pods of an ElasticQuota use."""

    usage: QuotaUsage = field(default_factory=QuotaUsage)
    """Of all of its pods on nodes, also of those that are leaving."""
    leaving: Sequence[ScheduledPod] = ()
    """Its pods that are leaving."""
    nominated: Sequence[Preemptor] = ()
    """Its pending pods that victims were selected for."""


NO_QUOTA_INFO = QuotaInfo()
"""Of a quota without known pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster at one moment."""

    now: datetime
    nodes: Mapping[str, NodeInfo] = field(default_factory=dict)
    """By name."""
    budgets: Mapping[str, Sequence[DisruptionBudget]] = field(default_factory=dict)
    """By namespace."""
    gangs: Mapping[GangKey, GangInfo] = field(default_factory=dict)
    quotas: Mapping[QuotaKey, Quota] = field(default_factory=dict)
    """The ElasticQuotas with the figures that Koordinator publishes."""
    quota_infos: Mapping[QuotaKey, QuotaInfo] = field(default_factory=dict)
    """Of the quotas that known pods use."""
    settings: PolicySettings = field(default_factory=PolicySettings)
    operator_is_live: bool = True
    """Without an operator, marked and notified pods do not leave."""

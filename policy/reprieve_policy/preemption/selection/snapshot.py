"""What a choice is made from: the nodes with who has room on them, the budgets, the gangs, and who wants room.

Everything that a tenant is judged by is decided once, when its pod, Namespace or PriorityClass changes (`reading`);
only what moves with the clock is left to the decision: tolerations, walltimes and costs. So a watch keeps tenants, not
objects, and a decision reads numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from reprieve_policy.config.preemption_class import DEFAULT
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.toleration import VictimToleration
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.kube.quota import Amounts, QuotaKey
from reprieve_policy.preemption import cost
from reprieve_policy.preemption.cost import Cost, CostInputs, WorkProgress

NO_TOLERATION = VictimToleration(has_priority_class=False, policy=None, scheduled_at=None)
"""A pod without a PriorityClass, which tolerates nothing."""


class GangKey(NamedTuple):
    """What tells a gang from all others of the cluster."""

    namespace: str
    identity: str
    """Within the namespace; see `disruption.identity_of`."""


class HostPortInfo(NamedTuple):
    """A port of the node itself. Address `0.0.0.0` is every address."""

    address: str
    protocol: str
    number: int


class Requirement(NamedTuple):
    """What one label of a pod or a node must say: `In`, `NotIn`, `Exists`, `DoesNotExist`; of a node also `Gt`, `Lt`."""

    key: str
    operator: str
    values: Sequence[str] = ()


class NodeAffinityTerm(NamedTuple):
    """Of required node affinity: what hold together. An empty one holds for no node."""

    label_requirements: Sequence[Requirement] = ()
    name_requirements: Sequence[Requirement] = ()
    """What the node's name must be (`matchFields`)."""


class Taint(NamedTuple):
    """Of a node: keeps out who does not tolerate it."""

    key: str
    value: str
    effect: str


class TaintToleration(NamedTuple):
    """Of a pod: which taints it may stand. Empty fields match any."""

    key: str
    operator: str
    value: str
    effect: str


class AntiAffinity(NamedTuple):
    """Which pods one keeps away: those of these Namespaces that satisfy all of it."""

    namespaces: frozenset[str] | None
    """`None`: of any."""
    requirements: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingConstraints:
    """Which nodes a pod may run on at all."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity_terms: Sequence[NodeAffinityTerm] | None = None
    """Required node affinity: a node must satisfy one of them; `None`: none is required."""
    tolerations: Sequence[TaintToleration] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """A pod that has no room yet."""

    uid: str
    priority: int = 0
    amounts: Amounts = field(default_factory=dict)
    ports: frozenset[HostPortInfo] = frozenset()
    constraints: SchedulingConstraints = field(default_factory=SchedulingConstraints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """For whom victims are looked for: a pending pod, and the rest of its gang."""

    demand: PodDemand
    namespace: str = ""
    name: str = ""
    preemption_class: int = DEFAULT
    is_exempt: bool = False
    """It is Kubernetes' own or of an exempt Namespace: its victims are the scheduler's choice, by no policy of ours."""
    never_preempts: bool = False
    """Its `preemptionPolicy` is `Never`."""
    can_preempt: bool = True
    """As document 000's label, argument and the policy have it."""
    quota: QuotaKey | None = None
    gang: GangKey | None = None
    gang_minimum: int = 0
    """So many of its gang must have room before any of it is worth a victim; 0: all."""
    labels: Mapping[str, str] = field(default_factory=dict)
    pending_members: Sequence[PodDemand] = ()
    """Others of its gang that must find room too: they have none, nor a node that they are nominated to."""
    member_nominated_nodes: Sequence[str] = ()
    """Nodes where others of its gang are to run, and where victims may be going for them."""
    nominated_member_uids: frozenset[str] = frozenset()
    """The uids of those others."""
    nominated_node: str | None = None
    """Where victims of an earlier round may still be going."""
    devices: float = 0.0
    """That it and the rest of its gang ask for; see `cost.devices_of`."""
    walltime_seconds: int | None = None
    """The longest that it may run."""
    scheduler: str = ""
    """The name of the scheduler that is to place it."""
    is_gated: bool = False
    """No scheduler places it yet."""
    depends_on_other_pods: bool = False
    """Whether it fits depends on which pods are near: its affinities and its spread cannot be judged here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledPod:
    """A pod that has room on a node."""

    uid: str
    namespace: str = ""
    name: str = ""
    node: str = ""
    priority: int = 0
    """That it is scheduled with."""
    preemption_priority: int = 0
    """The priority that it is defended with: never less."""
    preemption_class: int = DEFAULT
    is_non_preemptible: bool = False
    """By its class and checkpoint (document 001), or by Koordinator's label (000)."""
    is_service: bool = False
    """Its Namespace runs services (document 001)."""
    is_leaving: bool = False
    """Somebody asked it to go, or it is being deleted: it is no victim again."""
    release_expected_at: datetime | None = None
    """When it was told to go, or when its deletion ends; `None`: nobody knows. See `departing`."""
    notified: bool = False
    """The operator has it go: where waiting for it is enough, nobody else goes, on no node."""
    is_being_deleted: bool = False
    """It is being deleted."""
    preemptor_uid: str = ""
    """The uid of the preemptor, where it goes for one; see `departing.goes_for`."""
    is_held_by_budget: bool = False
    """It is only to be evicted, and waits for a budget: once that takes longer than anybody waits, it stays."""
    lacks_priority_class: bool = False
    """The PriorityClass that it names does not exist."""
    toleration: VictimToleration = NO_TOLERATION
    cost_inputs: CostInputs = cost.NO_COST
    progress: WorkProgress = field(default_factory=WorkProgress)
    states_preferences: bool = False
    """It says something of its preemption: a class of its own, a checkpoint, what its eviction costs, how long it runs."""
    amounts: Amounts = field(default_factory=dict)
    ports: frozenset[HostPortInfo] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    quota: QuotaKey | None = None
    gang: GangKey | None = None
    disruption_mode: DisruptionMode = DisruptionMode.SINGLE
    """How its gang goes, as this pod says it; never `AS_ITS_GROUP_SAYS`: that was asked before."""
    gang_minimum: int = 0
    """So many of its gang are needed, as this pod says it."""
    is_guarded: bool = False
    """The guard is asked before a scheduler deletes it: it has the operator take whoever goes with it."""
    anti_affinity: tuple[AntiAffinity, ...] = ()
    """Pods that it lets not be near: how near, and whether one of them fits, cannot be judged here."""

    @property
    def is_only_marked(self) -> bool:
        """True for one that is asked to go, and was not told yet: the operator is about to."""
        return self.is_leaving and self.release_expected_at is None

    @property
    def is_only_deleted(self) -> bool:
        """True for one that somebody deletes, and that goes by itself: nobody has asked for it, nor for its gang."""
        return self.is_being_deleted and not (self.notified or self.is_held_by_budget)

    def cost(self, now: datetime) -> Cost:
        """Return what preempting it costs now."""
        return cost.cost_of(self.cost_inputs, self.progress, now)


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
    """Pending pods that victims were taken for here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    namespace: str
    requirements: Sequence[Requirement] = ()
    """All of its selector; none select nothing, as in kube-scheduler."""
    disruptions_allowed: int = 0
    disrupted_pods: frozenset[str] = frozenset()
    """Names of pods that were evicted already: they do not count again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangInfo:
    """A gang."""

    key: GangKey
    disruption_mode: DisruptionMode = DisruptionMode.SINGLE
    min_available: int = 0
    members: Sequence[ScheduledPod] = ()
    """All that have room, wherever they run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster, at one moment."""

    now: datetime
    nodes: Mapping[str, NodeInfo] = field(default_factory=dict)
    """By name."""
    budgets: Mapping[str, Sequence[DisruptionBudget]] = field(default_factory=dict)
    """By namespace."""
    gangs: Mapping[GangKey, GangInfo] = field(default_factory=dict)
    settings: PolicySettings = field(default_factory=PolicySettings)
    operator_is_live: bool = True
    """Without one, a mark or a state has nobody go."""

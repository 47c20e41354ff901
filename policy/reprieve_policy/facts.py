"""What a rule may know besides the object: the admin's policy and the few objects it refers to.

Also how a pod's class and priority follow from these facts. Reading the cluster does not belong
here: the programs fill `Facts` from their caches.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from .checkpointing import checkpoint_plan
from .checkpointing.agent import CheckpointService
from .config import koordinator, preemption_class
from .config.namespace import OFF, WORKLOAD_TYPE_CLASS, NamespacePolicy
from .config.settings import PolicySettings
from .keys import DEFAULT_PREEMPTION_CLASS, PREEMPTION_CLASS, PREEMPTION_PRIORITY_CLASS
from .kube.limits.quota import Amounts, Quotas
from .kube.objects import PodView, Resource, annotations_of, pod_group_name_of
from .lifecycle import ledger

HIGHEST_USER_PRIORITY = 1_000_000_000
"""Higher priorities are Kubernetes' own (`scheduling.HighestUserDefinablePriority`)."""


class Permission(NamedTuple):
    """A verb on a virtual resource of `reprieve.dev`, cluster-wide; see `admission.permissions`."""

    verb: str
    resource: str


class GangTraits(NamedTuple):
    """The values that all pods of one gang share, as one pod states them.

    Documents 000, 003 and 004: a scheduler takes or spares a gang as a whole, so its pods must
    agree on them.
    """

    preemptible: bool
    can_preempt: bool
    preemption_class: int
    priority: int
    preemption_priority: int
    min_available: int | None
    size: int | None
    disruption_mode: str = ""
    """`pod` or `gang`, as the annotation states it; empty: the default."""


class GangStatement(NamedTuple):
    """What the objects of a gang state for all its pods: its JobSet or PodGroup, for example."""

    disruption_mode: str = ""
    """`pod` or `gang`; empty: none is stated."""
    min_member: int | None = None
    """How many pods its PodGroup needs."""
    is_known: bool = True
    """False: the objects could not be read, so nothing else here is set."""


class JobRequests(NamedTuple):
    """What the other pods of a job request from its quota, in nanos by resource."""

    requested: Amounts = MappingProxyType({})
    placed: Amounts = MappingProxyType({})
    """By those on a node: it is in the quota's used figures already."""


NO_JOB_REQUESTS = JobRequests()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of the cluster, as recent as the caches of the calling program."""

    settings: PolicySettings = field(default_factory=PolicySettings)
    namespace: NamespacePolicy = field(default_factory=NamespacePolicy)
    priority_classes: Mapping[str, Resource] = field(default_factory=dict)
    """By name."""
    quotas: Quotas = field(default_factory=Quotas)
    """Koordinator's ElasticQuotas, if they are installed."""
    missing_permissions: frozenset[Permission] = frozenset()
    """The permissions that the object needs (`permissions.required_permissions`) and the requesting
    user lacks."""
    ledger_entry: ledger.LedgerEntry | None = None
    """What the pod's owner keeps for this pod; `None`: the pod is not a replacement."""
    gang_traits: GangTraits | None = None
    """The traits of this pod's gang, from its live members; `None`: it has none, or they are
    unknown."""
    gang_statement: GangStatement | None = None
    """What the objects of a new pod's gang state for it; `None`: there is none."""
    job_requests: JobRequests = NO_JOB_REQUESTS
    """What the other pods of a new pod's job request; nothing where no quota counts them."""
    workload_annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations of the native Workload that a new PodGroup is made from."""
    policy_config_map: tuple[str, str] = ("reprieve-system", "reprieve-policy")
    """Namespace and name of the ConfigMap that holds `settings`."""
    is_offline: bool = False
    """True if no API server checks permissions afterwards: the result then names the ones
    needed."""
    operator_is_live: bool = False
    """True if an operator leads, or has not been absent for longer than a failover takes: evictions
    that have begun continue."""
    operator_opens_gates: bool = False
    """True if new pods may wait for their gang: an operator leads, or was killed just now."""
    pods_created_together: int = 1
    """Number of pods that this pod's controller creates without waiting for one of them to run.

    Looked up only for the pods of a gang.
    """
    checkpoint_service: CheckpointService | None = None
    """Where agents report when their workload saved; `None`: they report nothing."""
    own_image: str = "reprieve"
    """The image of the webhooks themselves: agents run it, unless the settings name another."""


def default_class(view: PodView, facts: Facts) -> int:
    """Return the class of a pod that names none.

    The first of these that is set and that the Namespace allows: the default of the PriorityClass,
    of the Namespace, of its workload type, of the cluster. If none of them is allowed, the highest
    class that is. In a `sensitive` Namespace always 10.
    """
    policy = facts.namespace
    if policy.is_sensitive:
        return preemption_class.HIGHEST
    candidates = (
        _priority_class_default(view, facts),
        policy.default_class,
        WORKLOAD_TYPE_CLASS.get(policy.workload_type or ""),
        facts.settings.default_class,
    )
    allowed = (
        value for value in candidates if value is not None and value in policy.allowed_classes
    )
    return next(allowed, max(policy.allowed_classes.classes))


def effective_class(view: PodView, facts: Facts) -> int:
    """Return the class of a pod: the one on its label if that is readable, else the default.

    Never more than its Namespace allows, and 10 in a `sensitive` Namespace. Without this, a label
    written while no webhook was running would protect its pod for the pod's whole life.
    """
    labelled = preemption_class.parse(view.labels.get(PREEMPTION_CLASS, ""), "")
    if facts.namespace.is_sensitive or not isinstance(labelled, int):
        return default_class(view, facts)
    return facts.namespace.allowed_classes.clamp(labelled)


def is_non_preemptible(view: PodView, facts: Facts) -> bool:
    """True for a pod that may never be preempted.

    Either its class and checkpoint say so (document 001), or Koordinator's label does (document
    000).
    """
    if counts_against_min(view, facts):
        return True
    value = effective_class(view, facts)
    if value < preemption_class.NON_PREEMPTIBLE_WITHOUT_CHECKPOINT:
        return False
    plan = checkpoint_plan.read_leniently(view.annotations, facts.settings)
    return preemption_class.is_non_preemptible(value, has_checkpoint=plan.gives_notice)


def counts_against_min(view: PodView, facts: Facts) -> bool:
    """True for a pod that Koordinator's label, or its default, makes non-preemptible.

    The `min` of its ElasticQuota bounds such pods (document 000).
    """
    disabled = facts.settings.default_preemptible is False
    return not koordinator.is_preemptible(view.labels, disable_default_preemptiable=disabled)


def priority_class_of(view: PodView, facts: Facts) -> Resource | None:
    """Return the PriorityClass of a pod.

    It is the one that the pod names. If it names none, a pod that is not created yet (it has no
    priority) gets the one of its class; any other has the cluster's global default, if any.
    """
    given = class_priority_class(view, facts) if view.spec.priority is None else None
    return priority_class_named(view.spec.priorityClassName, facts) if given is None else given


def class_priority_class(view: PodView, facts: Facts) -> Resource | None:
    """Return the PriorityClass that a new pod gets for its class; `None` if it gets none."""
    if not gets_class_priority(view, facts):
        return None
    name = preemption_class.priority_class_name(effective_class(view, facts))
    return facts.priority_classes.get(name)


def gets_class_priority(view: PodView, facts: Facts) -> bool:
    """True if a new pod gets the PriorityClass of its class, as far as that exists.

    That is a pod which names no PriorityClass, where `classPriorities` is on. The API server writes
    the global default before it calls a webhook, so a pod that names that one counts as one that
    names none. A pod of a native group keeps the group's priority: kube-scheduler places no group
    whose pods have another.
    """
    if (
        not facts.settings.classes_give_priorities
        or facts.namespace.enforcement == OFF
        or pod_group_name_of(view.spec.schedulingGroup)
    ):
        return False
    name = view.spec.priorityClassName
    named = facts.priority_classes.get(name) if name else None
    return not name or (named is not None and bool(named.globalDefault))


def priority_class_named(name: str | None, facts: Facts) -> Resource | None:
    """Return the PriorityClass `name`; without a name, the global default.

    Of several global defaults the one with the lowest value counts, as in Kubernetes 1.37.
    """
    if name:
        return facts.priority_classes.get(name)
    defaults = (row for row in facts.priority_classes.values() if row.globalDefault)
    return min(defaults, key=lambda row: row.value or 0, default=None)


def class_preemption_priority(priority: int, named: Resource | None, facts: Facts) -> int:
    """Return the priority that protects pods of the PriorityClass `named` from preemption.

    It is the value of the class that `named` refers to, else the pods' own `priority`.
    """
    name = annotations_of(named.metadata).get(PREEMPTION_PRIORITY_CLASS) if named else None
    defence = facts.priority_classes.get(name) if name else None
    return priority if defence is None or defence.value is None else defence.value


def highest_preemption_priority(priority: int, own_class: Resource | None, facts: Facts) -> int:
    """Return the highest priority that may protect a pod or group from preemption."""
    own = max(priority, class_preemption_priority(priority, own_class, facts))
    return own + (
        facts.settings.max_preemption_priority_lift if may_be_lifted(own_class, facts) else 0
    )


def may_be_lifted(own_class: Resource | None, facts: Facts) -> bool:
    """True if an annotation may protect workloads of this PriorityClass better than it does."""
    liftable = facts.settings.liftable_priority_classes
    return liftable is None or (own_class is not None and own_class.metadata.name in liftable)


def preemption_priority_of(view: PodView, priority: int, facts: Facts) -> int:
    """Return the priority that protects a pod of `priority` from preemption.

    It is the value of the class that the pod's annotation names, at most the highest that is
    allowed, else that of the class that its PriorityClass names, else `priority`.
    """
    own_class = priority_class_of(view, facts)
    annotated = view.annotations.get(PREEMPTION_PRIORITY_CLASS)
    return preemption_priority_from(priority, annotated, own_class, facts)


def preemption_priority_from(
    priority: int, annotated: str | None, own_class: Resource | None, facts: Facts
) -> int:
    """Return the preemption priority of a pod or group by its annotation and its PriorityClass.

    Never more than is allowed. Without this, an annotation written where the rules are off, or
    while no webhook was running, would protect its pod for the pod's whole life.
    """
    named = facts.priority_classes.get(annotated) if annotated else None
    if named is not None and named.value is not None:
        return min(named.value, highest_preemption_priority(priority, own_class, facts))
    return class_preemption_priority(priority, own_class, facts)


def preemption_policy(view: PodView, facts: Facts) -> str | None:
    """Return the `preemptionPolicy` of a pod; of a template, the one its pods will have."""
    named = None if view.spec.preemptionPolicy else priority_class_of(view, facts)
    return view.spec.preemptionPolicy if named is None else named.preemptionPolicy


def _priority_class_default(view: PodView, facts: Facts) -> int | None:
    named = priority_class_named(view.spec.priorityClassName, facts)
    text = annotations_of(named.metadata).get(DEFAULT_PREEMPTION_CLASS, "") if named else ""
    value = preemption_class.parse(text, "")
    return value if isinstance(value, int) else None

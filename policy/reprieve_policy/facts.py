"""What a rule may know beside the object: the admin's policy and the few cluster objects that it refers to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .checkpointing import checkpoint_plan
from .config import koordinator, preemption_class
from .config.namespace import WORKLOAD_TYPE_CLASS, NamespacePolicy
from .config.settings import PolicySettings
from .keys import DEFAULT_PREEMPTION_CLASS, PREEMPTION_CLASS, PREEMPTION_PRIORITY_CLASS
from .kube.objects import PodView, Resource, annotations_of
from .kube.quota import Quotas
from .lifecycle import ledger
from .traits import GangTraits


class Permission(NamedTuple):
    """A verb on a virtual resource of `reprieve.dev`, cluster-wide; see `rights`."""

    verb: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Cluster knowledge, as fresh as the shell's caches."""

    settings: PolicySettings = field(default_factory=PolicySettings)
    namespace: NamespacePolicy = field(default_factory=NamespacePolicy)
    priority_classes: Mapping[str, Resource] = field(default_factory=dict)
    """By name."""
    quotas: Quotas = field(default_factory=Quotas)
    """Koordinator's, where they are installed."""
    missing_permissions: frozenset[Permission] = frozenset()
    """Of the rights that the object needs (`rights.needed`), those that whoever asks does not have."""
    ledger_entry: ledger.LedgerEntry | None = None
    """What the pod's owner keeps for this very pod; `None` where it replaces nobody."""
    gang_traits: GangTraits | None = None
    """What the living members of this pod's gang say; `None` where there are none, or nobody knows."""
    policy_config_map: tuple[str, str] = ("reprieve-system", "reprieve-policy")
    """Namespace and name of the ConfigMap that `settings` are read from."""
    is_offline: bool = False
    """True where no API server checks rights afterwards: then what needs one is said."""
    operator_is_live: bool = False
    """One leads, and has said so in time."""
    eviction_api_served: bool = False
    """The API server serves native Evictions, as far as the object has anything to do with them."""
    pods_created_together: int = 1
    """Pods that this pod's controller makes without waiting for one of them to run; looked up for a gang's pods only."""


def default_class(view: PodView, facts: Facts) -> int:
    """Return the class of a pod that names none.

    First that says and that the Namespace allows: PriorityClass, Namespace, its workload type, the cluster's default;
    `sensitive` overrides all. Where none is allowed, the highest class that is.
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
    """Return the class that a pod has: its label's where that is readable, else the default.

    Never more than its Namespace allows, and 10 where workloads are sensitive. Without this, a label that was written while
    no webhook watched would protect its pod for as long as it lives.
    """
    labelled = preemption_class.parse(view.labels.get(PREEMPTION_CLASS, ""), "")
    if facts.namespace.is_sensitive or not isinstance(labelled, int):
        return default_class(view, facts)
    return facts.namespace.allowed_classes.clamp(labelled)


def is_non_preemptible(view: PodView, facts: Facts) -> bool:
    """True for a pod that nobody may preempt: by its class and checkpoint (document 001), or by Koordinator's label (000)."""
    disabled = facts.settings.default_preemptible is False
    if not koordinator.is_preemptible(view.labels, disable_default_preemptiable=disabled):
        return True
    value = effective_class(view, facts)
    if value < preemption_class.NON_PREEMPTIBLE_WITHOUT_CHECKPOINT:
        return False
    plan = checkpoint_plan.read_leniently(view.annotations, facts.settings)
    return preemption_class.is_non_preemptible(value, has_checkpoint=plan.gives_notice)


def priority_class_of(view: PodView, facts: Facts) -> Resource | None:
    """Return the PriorityClass of a pod; where it names none, the global default of the cluster, if there is one."""
    return priority_class_named(view.spec.priorityClassName, facts)


def priority_class_named(name: str | None, facts: Facts) -> Resource | None:
    """Return the PriorityClass `name`; where nothing is named, the global default: of several, the lowest as in 1.37."""
    if name:
        return facts.priority_classes.get(name)
    defaults = (found for found in facts.priority_classes.values() if found.globalDefault)
    return min(defaults, key=lambda found: found.value or 0, default=None)


def class_preemption_priority(priority: int, named: Resource | None, facts: Facts) -> int:
    """Return what a PriorityClass's pods of `priority` are defended with: the class that it names, else `priority`."""
    name = annotations_of(named.metadata).get(PREEMPTION_PRIORITY_CLASS) if named else None
    defence = facts.priority_classes.get(name) if name else None
    return priority if defence is None or defence.value is None else defence.value


def preemption_priority_of(view: PodView, priority: int, facts: Facts) -> int:
    """Return what a pod of `priority` is defended with: the class that it names, else what its own class names, else that."""
    named = facts.priority_classes.get(view.annotations.get(PREEMPTION_PRIORITY_CLASS, ""))
    if named is not None and named.value is not None:
        return named.value
    return class_preemption_priority(priority, priority_class_of(view, facts), facts)


def preemption_policy(view: PodView, facts: Facts) -> str | None:
    """Return the `preemptionPolicy` of a pod; of a template, what its PriorityClass will give its pods."""
    named = None if view.spec.preemptionPolicy else priority_class_of(view, facts)
    return view.spec.preemptionPolicy if named is None else named.preemptionPolicy


def _priority_class_default(view: PodView, facts: Facts) -> int | None:
    named = priority_class_of(view, facts)
    text = annotations_of(named.metadata).get(DEFAULT_PREEMPTION_CLASS, "") if named else ""
    value = preemption_class.parse(text, "")
    return value if isinstance(value, int) else None

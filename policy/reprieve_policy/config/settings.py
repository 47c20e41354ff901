"""The cluster's policy: one frozen dataclass, read from the ConfigMap `reprieve-policy`.

Each key of the ConfigMap is the text of one field. Every field has a default that is safe without a
ConfigMap. Koordinator's switches keep its names.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from reprieve_policy.kube import template_kinds
from reprieve_policy.kube.names import OBJECT_NAME
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_policy.kube.values import duration
from reprieve_policy.verdict import Violation, ViolationKind, unknown

from . import koordinator, preemption_class
from .annotation_values import Duration, Matches, OneOf, WholeNumber

_DURATION = Duration(7 * 24 * 3600)
"""At most a week. A longer notice than any spot market or scheduler gives is a mistake."""

_DURATION_OR_NONE = Duration(_DURATION.longest, may_be_zero=True)

_WORTH = Duration(366 * 24 * 3600)
"""At most a year, longer than any job runs."""

_NAMES = Matches(
    f"{OBJECT_NAME}(?: *, *{OBJECT_NAME})*",
    "must be names of PriorityClasses, separated by commas",
)

_IDENTITY = "[A-Za-z0-9][A-Za-z0-9:._@-]{0,251}"
_IDENTITIES = Matches(
    f"{_IDENTITY}(?: *, *{_IDENTITY})*",
    "must be users of the API server, separated by commas, "
    'like "system:serviceaccount:kube-system:my-scheduler"',
)

_SCHEDULERS = frozenset(
    {"system:kube-scheduler", "system:serviceaccount:reprieve-system:reprieve-scheduler"}
)
"""The cluster's scheduler, and the second one in `manifests/scheduler`."""

_IMAGE = Matches(
    "[A-Za-z0-9][A-Za-z0-9._-]*(?::[0-9]{1,5})?(?:/[a-z0-9][a-z0-9._-]*)*"
    "(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    'must be the name of an image, like "registry.example.com/reprieve:0.1.0"',
    longest=512,
)

OFF, WARN, REFUSE = "off", "warn", "refuse"
DELETE, EVICT = "delete", "evict"
AUTO, ASYNCHRONOUS, SYNCHRONOUS = "auto", "asynchronous", "synchronous"
MANUAL = "manual"
LOSS, PRIORITY = "loss", "priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """What an admin may set; see `FIELDS` for the names and readers. Durations in seconds."""

    default_class: int = preemption_class.DEFAULT
    class_priorities: str = OFF
    """Whether a pod without a PriorityClass gets the one of its class, and what happens to a pod
    whose priority contradicts its class: `off` (neither), `warn` or `refuse`."""
    default_preemptible: bool | None = None
    """`None`: not set, and no label is written. Set by `disableDefaultPreemptiable`."""
    default_can_preempt: bool | None = None
    """`None`: not set. Set by `disableDefaultTriggerPreemption`."""
    deletes_preempted: bool = False
    """A scheduler that deletes an unprotected pod succeeds at once, without notice. Set by
    `podShouldBeDeletedWhenPreempted`."""
    quota_fit: str = WARN
    """What happens to a job that does not fit into its ElasticQuota: `warn` or `refuse`."""
    max_preemption_priority_lift: int = 0
    liftable_priority_classes: frozenset[str] | None = None
    """PriorityClasses whose workloads may have a preemption priority above their priority; `None`:
    all, within the bound above."""
    non_preemptible_on_borrowed_nodes: str = WARN
    reclaim: str = MANUAL
    """Who reclaims lent nodes: only a user, by command (`manual`), or also the operator (`auto`),
    for pods of the home Namespace that find no node."""
    reclaim_after_seconds: int = 300
    """How long such a pod waits first, and again after each round."""
    # Not part of the hash: plans are cached by their settings, and hashing these would cost more
    # than reading a plan.
    template_kinds: TemplateKinds = field(default=template_kinds.WELL_KNOWN, hash=False)
    checkpoint_timeout_seconds: int = 600
    extension_percent: int = 50
    max_deferral_seconds: int = 300
    grace_cap_seconds: int = 30
    ceiling_seconds: int = 1800
    """Longest time in all that a victim waits, whatever its annotations say."""
    near_completion_seconds: int = 300
    """A pod that will be complete within this time is left to finish; 0: never."""
    end_with: str = DELETE
    """How a victim is ended: `delete`, or `evict`, which honours PodDisruptionBudgets until the
    ceiling."""
    cleanup_finalizer: bool = True
    """A victim is kept by a finalizer until its containers have ended, and what its replacement
    inherits is written; see `lifecycle.cleanup`."""
    force_delete_on_lost_nodes: bool = False
    """A victim whose node is certainly gone is deleted with grace 0; see `lifecycle.lost_node`."""
    suspend_jobs: bool = False
    """A Job of which all pods must leave is suspended instead, and resumed after the back-off."""
    suspended_job_backoff_seconds: int = 300
    recreate_bare_pods: bool = False
    """Victims without a controller are created again, in namespaces that gave the operator the
    permission."""
    unreachable_min_available: str = WARN
    """What happens if a gang's minimum is more than its workload will ever create: `warn` or
    `refuse`."""
    unknown_keys: str = WARN
    """What happens to an object with a key that is misspelled, or that stands where it is not read:
    `warn` or `refuse`."""
    agent_image: str | None = None
    """The image of the agent, in pods that ask for it; `None`: that of the webhooks themselves."""
    gang_gate: bool = False
    """Pods of a gang are not scheduled before enough of them exist and have room."""
    gang_gate_timeout_seconds: int = 600
    """How long a gang may take to become complete, and then to be placed, before it failed."""
    class_rule: str = preemption_class.STRICT
    """Which classes a preemptor may take: `strict` or `banded`; see
    `preemption_class.may_preempt`."""
    max_victims: int = 3
    """Most victims of one decision; a gang that is evicted as a unit counts as one."""
    victim_order: str = LOSS
    """Which victims are preferred among those that the policy allows: those with the least
    expected loss (`loss`), or those of the lowest priority (`priority`)."""
    patience_seconds: int = 120
    """How long a preemptor waits for room instead of taking victims that cannot save, and would
    lose more than it loses by that; see `preemption.selection.patience`. 0: not at all."""
    preemptor_worth_seconds: int | None = None
    """Worth of each device of a preemptor, as time: victims must cost less; `None`: no bound."""
    schedulers: frozenset[str] = _SCHEDULERS
    """Users whose deletions of pods are preemptions; see `preemption.guard`."""
    scheduler_preemption: str = AUTO
    """Whether a refused scheduler waits outside its scheduling loop (`asynchronous`) or in it."""

    @property
    def classes_give_priorities(self) -> bool:
        """True if pods get the PriorityClass of their class."""
        return self.class_priorities != OFF


_LONGEST_KEY = 253
"""Letters of a key that the API server accepts in a ConfigMap; a review of another sender may have
more, and its response repeats the key."""


@dataclass(frozen=True, slots=True)
class SettingReader:
    """How one key of the ConfigMap is read, and the field that it sets."""

    attribute: str
    parse: Callable[[str, str], object]


def parse(
    data: Mapping[str, str], base: PolicySettings | None = None
) -> PolicySettings | tuple[Violation, ...]:
    """Read the ConfigMap's `data`, or return all its violations, unknown keys included.

    `base` provides the values of the keys that `data` lacks.
    """
    values: dict[str, object] = {}
    violations: list[Violation] = []
    for key, text in data.items():
        value = _parse_field(key, text)
        if isinstance(value, Violation):
            violations.append(value)
        else:
            values[FIELDS[key].attribute] = value
    if violations:
        return tuple(violations)
    settings = _replace(base or PolicySettings(), values)
    return tuple(_contradictions(settings, data)) or settings


def _replace(base: PolicySettings, values: Mapping[str, object]) -> PolicySettings:
    fields = {name: getattr(base, name) for name in PolicySettings.__dataclass_fields__}
    return PolicySettings(**{**fields, **values})


def _parse_field(key: str, text: str) -> object:
    if key not in FIELDS:
        shown = key[:_LONGEST_KEY]
        return unknown(f"data[{shown}]", shown, FIELDS, "keys")
    return FIELDS[key].parse(text.strip(), f"data[{key}]")


def _contradictions(settings: PolicySettings, data: Mapping[str, str]) -> Iterator[Violation]:
    """Yield settings that can have no effect.

    Only keys in `data` are checked. Defaults adapt: a default timeout ends at a lower ceiling.
    """
    for key in ("checkpointTimeout", "maxDeferral", "nearCompletion"):
        if key in data and getattr(settings, FIELDS[key].attribute) > settings.ceiling_seconds:
            detail = f"must be at most {duration.render(settings.ceiling_seconds)}, the ceiling"
            yield Violation(f"data[{key}]", ViolationKind.INVALID, data[key], detail)
    if (
        settings.liftable_priority_classes is not None
        and settings.max_preemption_priority_lift == 0
    ):
        key = "liftablePriorityClasses"
        detail = "has no effect unless maxPreemptionPriorityLift is above 0"
        yield Violation(f"data[{key}]", ViolationKind.INVALID, data.get(key, ""), detail)


def _parse_default_class(text: str, path: str) -> int | Violation:
    """Read the cluster's default class.

    A Namespace without a list of classes caps it. Without this check, a higher default would there
    silently be a lower class.
    """
    value = preemption_class.parse(text, path)
    if not isinstance(value, Violation) and value in preemption_class.UNLISTED:
        return value
    detail = (
        f"must be between {preemption_class.LOWEST} and {preemption_class.HIGHEST_UNLISTED}, in "
        "plain digits: only Namespaces and PriorityClasses can give a higher class"
    )
    return Violation(path, ViolationKind.INVALID, text, detail)


def _names(accepted: Matches) -> Callable[[str, str], frozenset[str] | Violation]:
    def parse_names(text: str, path: str) -> frozenset[str] | Violation:
        match = accepted.parse(text, path)
        return (
            match
            if isinstance(match, Violation)
            else frozenset(name.strip() for name in text.split(","))
        )

    return parse_names


def _schedulers(text: str, path: str) -> frozenset[str] | Violation:
    """Read the users; a component's own name is the user that Kubernetes makes of it, or none."""
    names = _names(_IDENTITIES)(text, path)
    if isinstance(names, Violation):
        return names
    for name in sorted(names):
        user = f"system:{name}"
        if user in _SCHEDULERS:
            detail = f'no user has the name "{name}": did you mean "{user}"?'
            return Violation(path, ViolationKind.INVALID, text, detail)
    return names


def _image_name(text: str, path: str) -> str | Violation:
    match = _IMAGE.parse(text, path)
    return text if isinstance(match, re.Match) else match


def _negated(text: str, path: str) -> object:
    value = koordinator.parse_boolean(text, path)
    return value if isinstance(value, Violation) else not value


FIELDS: Mapping[str, SettingReader] = {
    "defaultPreemptionClass": SettingReader("default_class", _parse_default_class),
    "classPriorities": SettingReader("class_priorities", OneOf((OFF, WARN, REFUSE)).parse),
    "disableDefaultPreemptiable": SettingReader("default_preemptible", _negated),
    "disableDefaultTriggerPreemption": SettingReader("default_can_preempt", _negated),
    "podShouldBeDeletedWhenPreempted": SettingReader(
        "deletes_preempted", koordinator.parse_boolean
    ),
    "quotaFit": SettingReader("quota_fit", OneOf((WARN, REFUSE)).parse),
    "maxPreemptionPriorityLift": SettingReader(
        "max_preemption_priority_lift", WholeNumber(0, 2_000_000_000).parse
    ),
    "liftablePriorityClasses": SettingReader("liftable_priority_classes", _names(_NAMES)),
    "nonPreemptibleOnBorrowedNodes": SettingReader(
        "non_preemptible_on_borrowed_nodes", OneOf((WARN, REFUSE)).parse
    ),
    "reclaim": SettingReader("reclaim", OneOf((MANUAL, AUTO)).parse),
    "reclaimAfter": SettingReader("reclaim_after_seconds", _DURATION.parse),
    "templateKinds": SettingReader("template_kinds", template_kinds.parse),
    "checkpointTimeout": SettingReader("checkpoint_timeout_seconds", _DURATION.parse),
    "extensionPercent": SettingReader("extension_percent", WholeNumber(0, 100).parse),
    "maxDeferral": SettingReader("max_deferral_seconds", _DURATION.parse),
    "gracePeriodCap": SettingReader("grace_cap_seconds", _DURATION.parse),
    "ceiling": SettingReader("ceiling_seconds", _DURATION.parse),
    "nearCompletion": SettingReader("near_completion_seconds", _DURATION_OR_NONE.parse),
    "endWith": SettingReader("end_with", OneOf((DELETE, EVICT)).parse),
    "cleanupFinalizer": SettingReader("cleanup_finalizer", koordinator.parse_boolean),
    "forceDeleteOnLostNodes": SettingReader(
        "force_delete_on_lost_nodes", koordinator.parse_boolean
    ),
    "suspendJobs": SettingReader("suspend_jobs", koordinator.parse_boolean),
    "suspendedJobBackoff": SettingReader("suspended_job_backoff_seconds", _DURATION.parse),
    "recreateBarePods": SettingReader("recreate_bare_pods", koordinator.parse_boolean),
    "unreachableMinAvailable": SettingReader(
        "unreachable_min_available", OneOf((WARN, REFUSE)).parse
    ),
    "unknownKeys": SettingReader("unknown_keys", OneOf((WARN, REFUSE)).parse),
    "agentImage": SettingReader("agent_image", _image_name),
    "gangGate": SettingReader("gang_gate", koordinator.parse_boolean),
    "gangGateTimeout": SettingReader("gang_gate_timeout_seconds", _DURATION.parse),
    "classRule": SettingReader(
        "class_rule", OneOf((preemption_class.STRICT, preemption_class.BANDED)).parse
    ),
    "maxVictims": SettingReader("max_victims", WholeNumber(1, 1000).parse),
    "victimOrder": SettingReader("victim_order", OneOf((LOSS, PRIORITY)).parse),
    "patience": SettingReader("patience_seconds", _DURATION_OR_NONE.parse),
    "preemptorWorth": SettingReader("preemptor_worth_seconds", _WORTH.parse),
    "schedulers": SettingReader("schedulers", _schedulers),
    "schedulerPreemption": SettingReader(
        "scheduler_preemption", OneOf((AUTO, ASYNCHRONOUS, SYNCHRONOUS)).parse
    ),
}

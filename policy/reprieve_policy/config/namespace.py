"""A Namespace's policy: its workload type, its classes, and how strictly the rules are enforced.

A Namespace is the specification's vCluster (document 001, "Per-vCluster Preemption Policy").
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from reprieve_policy.keys import (
    ALLOWED_PREEMPTION_CLASSES,
    DEFAULT_PREEMPTION_CLASS,
    ENFORCEMENT,
    WORKLOAD_TYPE,
)
from reprieve_policy.verdict import Violation, ViolationKind, annotation_path, label_path

from . import preemption_class
from .annotation_values import OneOf
from .preemption_class import UNLISTED, ClassSet

SENSITIVE = "sensitive"

WORKLOAD_TYPE_CLASS: Mapping[str, int] = {
    "hpc-batch": 4,
    "ml-training": 5,
    "service": 6,
    SENSITIVE: 10,
    "interactive": 3,
}
"""The class of a workload whose Namespace states only its type. Document 001 orders the types by
what a preemption costs: interactive is "short-lived, low cost", a service comes last. Only
`sensitive` has a number there. All other types stay within what a Namespace may claim without
`allowed-preemption-classes`."""

EXEMPT = ("kube-system", "reprieve-system")
"""Namespaces to which no rule applies, as in `manifests/base`."""
UNTOUCHED = "kube-system"
"""Where Reprieve's operator writes nothing but Events; `manifests/base/program-limits.yaml` refuses
it all else."""

_NAME_LABEL = "kubernetes.io/metadata.name"
_MAX_LABELS_LENGTH = 16 * 1024
"""Characters of all labels of a Namespace; a usual one has some hundreds."""

ENFORCE, WARN, OFF = "enforce", "warn", "off"
ENFORCEMENTS = OneOf((ENFORCE, WARN, OFF))
WORKLOAD_TYPES = OneOf(tuple(WORKLOAD_TYPE_CLASS))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacePolicy:
    """A Namespace's policy; the defaults hold for one without labels and annotations."""

    workload_type: str | None = None
    allowed_classes: ClassSet = UNLISTED
    default_class: int | None = None
    enforcement: str = ENFORCE
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """All labels of the Namespace, as `namespaceSelector` reads them; of too many, its name."""

    @property
    def is_sensitive(self) -> bool:
        """True if every workload is of class 10, without exception."""
        return self.workload_type == SENSITIVE


def parse(
    labels: Mapping[str, str], annotations: Mapping[str, str]
) -> NamespacePolicy | tuple[Violation, ...]:
    """Read a Namespace's policy, or return all its violations."""
    fields = {
        key: _READERS[key](annotations[key], annotation_path("", key))
        for key in _READERS
        if key in annotations
    }
    path = label_path("", ENFORCEMENT)
    labelled = (
        {ENFORCEMENT: ENFORCEMENTS.parse(labels[ENFORCEMENT], path)}
        if ENFORCEMENT in labels
        else {}
    )
    read = (*labelled.values(), *fields.values())
    violations = tuple(value for value in read if isinstance(value, Violation))
    # The label takes precedence, because `namespaceSelector` reads it: without this, the two could
    # differ.
    return violations or _consistent(fields | labelled)


def read_leniently(labels: Mapping[str, str], annotations: Mapping[str, str]) -> NamespacePolicy:
    """Read a Namespace that may not have been validated: an unreadable value counts as absent."""
    every = labels
    policy = parse(labels, annotations)
    while not isinstance(policy, NamespacePolicy):
        bad = {violation.path for violation in policy}
        labels = {key: value for key, value in labels.items() if label_path("", key) not in bad}
        annotations = {
            key: value for key, value in annotations.items() if annotation_path("", key) not in bad
        }
        policy = parse(labels, annotations)
    return replace(policy, labels=_kept_labels(every))


def _kept_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return all labels; of too many, only the name, which the API server sets.

    All programs keep those of all Namespaces. Without this, some dozens of Namespaces of a megabyte
    of labels each would have the programs killed for their memory.
    """
    if sum(len(key) + len(value) for key, value in labels.items()) <= _MAX_LABELS_LENGTH:
        return labels
    return {_NAME_LABEL: labels[_NAME_LABEL]} if _NAME_LABEL in labels else {}


def _consistent(fields: Mapping[str, object]) -> NamespacePolicy | tuple[Violation, ...]:
    workload_type = fields.get(WORKLOAD_TYPE)
    default = fields.get(DEFAULT_PREEMPTION_CLASS)
    allowed = fields.get(ALLOWED_PREEMPTION_CLASSES, UNLISTED)
    assert isinstance(allowed, ClassSet)
    assert default is None or isinstance(default, int)
    path = annotation_path("", DEFAULT_PREEMPTION_CLASS)
    if workload_type == SENSITIVE:
        if default not in (None, preemption_class.HIGHEST):
            return (
                Violation(
                    path,
                    ViolationKind.INVALID,
                    str(default),
                    "must be 10 where the workload type is sensitive",
                ),
            )
        allowed = ClassSet(frozenset({preemption_class.HIGHEST}))
    elif default is not None and default not in allowed:
        return (
            Violation(
                path,
                ViolationKind.UNSUPPORTED,
                str(default),
                f"classes allowed in this namespace: {allowed}",
            ),
        )
    return NamespacePolicy(
        workload_type=None if workload_type is None else str(workload_type),
        allowed_classes=allowed,
        default_class=default,
        enforcement=str(fields.get(ENFORCEMENT, ENFORCE)),
    )


_READERS: Mapping[str, Callable[[str, str], object]] = {
    WORKLOAD_TYPE: WORKLOAD_TYPES.parse,
    ALLOWED_PREEMPTION_CLASSES: preemption_class.parse_set,
    DEFAULT_PREEMPTION_CLASS: preemption_class.parse,
    ENFORCEMENT: ENFORCEMENTS.parse,
}

"""Defaults from the object and its Namespace, as MutatingAdmissionPolicies.

Two defaults stay with the webhooks: the class from a PriorityClass (a pod names one, or has the
cluster's default one before any policy runs), and the ledger of a replacement.
"""

from collections.abc import Mapping

from reprieve_policy import keys
from reprieve_policy.config import toleration
from reprieve_policy.config.namespace import OFF
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.kinds import KINDS

from . import check, document, namespace, priority_classes, term
from .document import Document, MatchCondition

_LACKS_A_CLASS: Document = {
    "matchExpressions": [{"key": keys.PREEMPTION_CLASS, "operator": "DoesNotExist"}]
}


def of_pods(settings: PolicySettings) -> list[Document]:
    """Return the policy for a pod's class, and Koordinator's labels with a default."""
    labels = "object.metadata.?labels"
    names_none = "object.spec.?priorityClassName.orValue('') == ''"
    lacking = [f"!{labels}[?{term.text(keys.PREEMPTION_CLASS)}].hasValue() && {names_none}"]
    by_setting = _koordinator(settings)
    lacking += [f"!{labels}[?{term.text(key)}].hasValue()" for key in by_setting]
    values = ["variables.defaultClass", *map(term.text, by_setting.values())]
    patches = [
        f"[{_add('labels', key, value)}]"
        for key, value in zip((keys.PREEMPTION_CLASS, *by_setting), values, strict=True)
    ]
    # A single one is lacking wherever the condition is true.
    added = (
        [f"({condition} ? {patch} : [])" for condition, patch in zip(lacking, patches, strict=True)]
        if by_setting
        else patches
    )
    return document.mutating(
        "reprieve-defaults-pods",
        document.constraints(
            [KINDS["Pod"]],
            operations=["CREATE"],
            # The labels of most pods are complete: they end here, before the pod is converted.
            object_selector=None if by_setting else _LACKS_A_CLASS,
        ),
        MatchCondition("lacks-what-it-is-given", "\n|| ".join(lacking)),
        [("enforcement", namespace.enforcement()), *namespace.classes(settings)],
        f"variables.enforcement == '{OFF}' ? [] :\n{_with_map('labels', added)}",
    )


def of_priority_classes() -> list[Document]:
    """Return the policy that writes the half of a toleration that upstream would assume."""
    minimum, seconds = toleration.annotation_keys(keys.TOLERATION_PREFIX)
    halves = [
        (minimum, "string(object.value + 1)", seconds, toleration.SECONDS),
        (seconds, "'0'", minimum, toleration.MINIMUM),
    ]
    entries = {
        key: f"object.metadata.?annotations[?{term.text(key)}]" for key in (minimum, seconds)
    }
    added = [
        f"({entries[other]}.optMap(t, {check.is_accepted(value, 't')}).orValue(false)"
        f" ? [{_add('annotations', key, filled)}] : [])"
        for key, filled, other, value in halves
    ]
    return document.mutating(
        "reprieve-defaults-priority-classes",
        priority_classes.CONSTRAINTS,
        MatchCondition(
            "says-half-a-toleration",
            f"{document.NOT_DELETED}\n"
            f"&& {entries[minimum]}.hasValue() != {entries[seconds]}.hasValue()",
        ),
        [],
        "\n+ ".join(added),
    )


def _koordinator(settings: PolicySettings) -> Mapping[str, str]:
    by_setting = {
        keys.PREEMPTIBLE: settings.default_preemptible,
        keys.CAN_PREEMPT: settings.default_can_preempt,
    }
    return {key: str(value).lower() for key, value in by_setting.items() if value is not None}


def _with_map(part: str, added: list[str]) -> str:
    """Return these patches, after one that adds the map that they change, if it is absent."""
    patch = f"JSONPatch{{op: 'add', path: '/metadata/{part}', value: {{}}}}"
    empty = f"(has(object.metadata.{part}) ? [] : [{patch}])"
    return "\n+ ".join([empty, *added])


def _add(part: str, key: str, value: str) -> str:
    escaped = key.replace("~", "~0").replace("/", "~1")
    return (
        f"JSONPatch{{op: 'add', path: {term.text(f'/metadata/{part}/{escaped}')}, value: {value}}}"
    )

"""Policies and their bindings as API objects: the parts that they share."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reprieve_policy import keys
from reprieve_policy.config.namespace import EXEMPT, OFF
from reprieve_policy.kube.kinds import ServedKind

from . import term
from .namespace import Variable

Document = dict[str, Any]
MetadataKey = tuple[str, str]
"""A part of the metadata, and a key."""

_API_VERSION = "admissionregistration.k8s.io/v1"


class Validation(NamedTuple):
    """A condition, and the expression of the message if it is false."""

    condition: str
    message: str
    fallback: str
    """Used if the message cannot be evaluated: the API server takes up to 5 KB of one line."""


class MatchCondition(NamedTuple):
    """If it is false, nothing else of the policy is evaluated."""

    name: str
    expression: str


NOT_DELETED = MatchCondition("is-not-being-deleted", "!has(object.metadata.deletionTimestamp)")
"""Without this, a controller could not remove its finalizer from an object being deleted."""


def validating(
    name: str,
    action: str,
    constraints: Document,
    conditions: Sequence[MatchCondition],
    variables: Sequence[Variable],
    validations: Sequence[Validation],
) -> list[Document]:
    """Return a ValidatingAdmissionPolicy and its binding; `action` is `Deny` or `Warn`."""
    spec = _spec(constraints, conditions, variables) | {
        "validations": [
            {"expression": condition, "message": fallback, "messageExpression": message}
            for condition, message, fallback in validations
        ],
    }
    binding = {"policyName": name, "validationActions": [action]}
    return [
        _document("ValidatingAdmissionPolicy", name, spec),
        _document("ValidatingAdmissionPolicyBinding", name, binding),
    ]


def mutating(
    name: str,
    constraints: Document,
    conditions: Sequence[MatchCondition],
    variables: Sequence[Variable],
    patch: str,
) -> list[Document]:
    """Return a MutatingAdmissionPolicy and its binding.

    `patch` is the expression of a list of JSON patches.
    """
    spec = _spec(constraints, conditions, variables) | {
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    return [
        _document("MutatingAdmissionPolicy", name, spec),
        _document("MutatingAdmissionPolicyBinding", name, {"policyName": name}),
    ]


def constraints(
    kinds: Sequence[ServedKind],
    *,
    operations: Sequence[str] = ("CREATE", "UPDATE"),
    subresources: Sequence[str] = (),
) -> Document:
    """Return the constraints for these kinds, outside of the namespaces that are always exempt."""
    by_group: dict[str, list[str]] = {}
    for kind in kinds:
        by_group.setdefault(kind.group, []).append(kind.resource)
        by_group[kind.group].extend(
            f"{kind.resource}/{subresource}" for subresource in subresources
        )
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "operations": list(operations),
            "resources": resources,
        }
        for group, resources in by_group.items()
    ]
    selected: Document = {"resourceRules": rules}
    if kinds[0].is_namespaced:
        selected["namespaceSelector"] = {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(EXEMPT)},
                {"key": keys.ENFORCEMENT, "operator": "NotIn", "values": [OFF]},
            ]
        }
    return selected


def preemption_changed(
    keys_read: Sequence[MetadataKey], new: Mapping[str, str], old: Mapping[str, str]
) -> MatchCondition:
    """Return the condition that one of these keys has changed. At creation, every present key has.

    `new` and `old` give the expression of each part: its labels, its annotations.
    """
    by_part: dict[str, list[str]] = {}
    for part, key in keys_read:
        by_part.setdefault(part, []).append(key)
    expressions = (
        f"{term.texts(names)}\n.exists(key, {new[part]}[?key] != {old[part]}[?key])"
        for part, names in by_part.items()
    )
    return MatchCondition("says-something-new-about-preemption", "\n|| ".join(expressions))


def _spec(
    constraints: Document, conditions: Sequence[MatchCondition], variables: Sequence[Variable]
) -> Document:
    return {
        # As for the webhooks: our own errors refuse nothing.
        "failurePolicy": "Ignore",
        "matchConstraints": constraints,
        "matchConditions": [
            {"name": name, "expression": expression} for name, expression in conditions
        ],
        "variables": [{"name": name, "expression": expression} for name, expression in variables],
    }


def _document(kind: str, name: str, spec: Document) -> Document:
    labels = {"app.kubernetes.io/name": "reprieve"}
    return {
        "apiVersion": _API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }

"""Policies and their bindings as API objects: the parts that they share.

What the API server does for a request decides where something is written. It reads the selectors of
each policy for each request of any kind, before the resource rules, but those of a binding only
where the rules match: selectors of Namespaces are in bindings, and those that nearly every created
pod would reach are expressions that only a violation reaches. It evaluates all match conditions of
a policy, also after a false one: there is at most one. It prepares each variable whenever it
evaluates validations, and again for their messages: a policy has only the variables that it uses.
It evaluates each message, whether or not it is shown: a message that never changes is a text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
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
    """A condition, and the message if it is false: a text, or what an expression returns."""

    condition: str
    message: str
    """Shown if there is no expression, or if it cannot be evaluated: the API server takes up to 5
    KB of one line.
    """
    expression: str | None = None


class MatchCondition(NamedTuple):
    """If it is false, nothing else of the policy is evaluated."""

    name: str
    expression: str


class Constraints(NamedTuple):
    """What a policy is about: resources, objects by their labels, and Namespaces."""

    rules: list[Document]
    exempts_by_selector: bool
    """Whether the binding leaves out the Namespaces that are always exempt."""
    object_selector: Document | None = None


NOT_DELETED = "!has(object.metadata.deletionTimestamp)"
"""Without this, a controller could not remove its finalizer from an object being deleted.

Not for templates: controllers still use that of an object that is being deleted, and removing a
finalizer does not change it.
"""
REFUSED = "its preemption settings are not accepted"
"""The message if the expression with the violations cannot be evaluated."""
_EXEMPT = {
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(EXEMPT)},
            {"key": keys.ENFORCEMENT, "operator": "NotIn", "values": [OFF]},
        ]
    }
}
_VARIABLE = re.compile(r"\bvariables\.(\w+)")


def validating(
    name: str,
    action: str,
    constraints: Constraints,
    condition: MatchCondition | None,
    variables: Sequence[Variable],
    validations: Sequence[Validation],
) -> list[Document]:
    """Return a ValidatingAdmissionPolicy and its binding; `action` is `Deny` or `Warn`."""
    texts = [text for found in validations for text in (found.condition, found.expression or "")]
    spec = _spec(constraints, condition, _used(variables, texts)) | {
        "validations": [_validation(found) for found in validations]
    }
    binding = _binding(name, constraints) | {"validationActions": [action]}
    return [
        _document("ValidatingAdmissionPolicy", name, spec),
        _document("ValidatingAdmissionPolicyBinding", name, binding),
    ]


def mutating(
    name: str,
    constraints: Constraints,
    condition: MatchCondition,
    variables: Sequence[Variable],
    patch: str,
) -> list[Document]:
    """Return a MutatingAdmissionPolicy and its binding.

    `patch` is the expression of a list of JSON patches.
    """
    spec = _spec(constraints, condition, _used(variables, [patch])) | {
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    return [
        _document("MutatingAdmissionPolicy", name, spec),
        _document("MutatingAdmissionPolicyBinding", name, _binding(name, constraints)),
    ]


def constraints(
    kinds: Sequence[ServedKind],
    *,
    operations: Sequence[str] = ("CREATE", "UPDATE"),
    subresources: Sequence[str] = (),
    object_selector: Document | None = None,
    exempts_by_selector: bool = True,
) -> Constraints:
    """Return the constraints for these kinds, outside of the Namespaces that are always exempt.

    Without `exempts_by_selector`, the policy's own expressions must leave them out: the API server
    parses a selector anew for each request, which takes as long as a few comparisons.
    """
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
    return Constraints(rules, kinds[0].is_namespaced and exempts_by_selector, object_selector)


def preemption_changed(
    keys_read: Sequence[MetadataKey],
    new: Mapping[str, str],
    old: Mapping[str, str],
    *others: str,
) -> MatchCondition:
    """Return the condition that one of these keys has changed; at creation, every present key has.

    `new` and `old` give the expression of each part: its labels, its annotations. `others` are
    conditions that must also hold.
    """
    by_part: dict[str, list[str]] = {}
    for part, key in keys_read:
        by_part.setdefault(part, []).append(key)
    # Most updates are of the status: that the whole part is the same is known at once.
    changed = "\n|| ".join(
        f"{new[part]} != {old[part]} && {term.texts(names)}\n"
        f".exists(key, {new[part]}[?key] != {old[part]}[?key])"
        for part, names in by_part.items()
    )
    conditions = (*others, f"({changed})")
    return MatchCondition("says-something-new-about-preemption", "\n&& ".join(conditions))


def _used(variables: Sequence[Variable], texts: Iterable[str]) -> list[Variable]:
    """Return the variables that these expressions need, in their order."""
    expressions, used = dict(variables), set[str]()
    wanted = set(_VARIABLE.findall(" ".join(texts)))
    while wanted - used:
        used |= wanted
        wanted = set(_VARIABLE.findall(" ".join(expressions[name] for name in used)))
    return [variable for variable in variables if variable[0] in used]


def _validation(found: Validation) -> Document:
    written = {"expression": found.condition, "message": found.message}
    return (
        written if found.expression is None else written | {"messageExpression": found.expression}
    )


def _spec(
    constraints: Constraints, condition: MatchCondition | None, variables: Sequence[Variable]
) -> Document:
    selected: Document = {"resourceRules": constraints.rules}
    if constraints.object_selector is not None:
        selected["objectSelector"] = constraints.object_selector
    # As for the webhooks: our own errors refuse nothing.
    spec: Document = {"failurePolicy": "Ignore", "matchConstraints": selected}
    if condition is not None:
        spec["matchConditions"] = [condition._asdict()]
    if variables:
        spec["variables"] = [{"name": name, "expression": text} for name, text in variables]
    return spec


def _binding(name: str, constraints: Constraints) -> Document:
    selected = {"matchResources": deepcopy(_EXEMPT)} if constraints.exempts_by_selector else {}
    return {"policyName": name, **selected}


def _document(kind: str, name: str, spec: Document) -> Document:
    labels = {"app.kubernetes.io/name": "reprieve"}
    return {
        "apiVersion": _API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }

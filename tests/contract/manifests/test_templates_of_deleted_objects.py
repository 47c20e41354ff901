"""A template that changes while its object is being deleted is checked like any other.

Controllers still use it: that of StatefulSets writes a revision of it, which another StatefulSet
may adopt, and that of Deployments rolls back to the template of a ReplicaSet.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.template_kinds import WELL_KNOWN
from reprieve_testing import manifests

TEMPLATED = {(row.group, row.resource) for row in KINDS.values() if row.template} | {
    (row.group, row.kind.lower() + "s") for row in WELL_KNOWN.rows if row.paths
}
IS_DELETED = "deletionTimestamp"
STAYS = "!has(object.metadata.deletionTimestamp)"
EXCUSES = {
    "templates.reprieve.dev": f"{STAYS} || object.spec.?template != oldObject.?spec.?template"
    " || object.spec.?jobTemplate != oldObject.?spec.?jobTemplate",
    "custom.reprieve.dev": f"{STAYS} || object.?spec != oldObject.?spec",
}
"""The only expressions about templates that read whether the object is being deleted."""


class Check(NamedTuple):
    """A webhook or a policy about objects that make pods, and its expressions."""

    name: str
    expressions: list[str]


def expressions_in(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from expressions_in(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if isinstance(part, str) and key in ("expression", "messageExpression"):
                yield part
            else:
                yield from expressions_in(part)


def concerns_templates(rules: list[Any]) -> bool:
    return any(
        (group, resource) in TEMPLATED
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    )


def checks() -> Iterator[Check]:
    """Yield each check of a templated kind in the manifests, with what overlays add to it."""
    for path in sorted(manifests.MANIFESTS.rglob("*.yaml")):
        documents: list[Any] = manifests.read(path)
        for document in documents:
            if isinstance(document, list):
                yield from _patched(document)
            elif document.get("kind") == "ValidatingAdmissionPolicy":
                spec = document["spec"]
                if concerns_templates(spec["matchConstraints"]["resourceRules"]):
                    yield Check(document["metadata"]["name"], list(expressions_in(spec)))
            elif document.get("kind") == "ValidatingWebhookConfiguration":
                for webhook in document["webhooks"]:
                    if concerns_templates(webhook["rules"]):
                        yield Check(webhook["name"], list(expressions_in(webhook)))


def _patched(operations: list[Any]) -> Iterator[Check]:
    """Yield what a JSON patch does to webhooks about templates, which it tests by their names."""
    name = ""
    for operation in operations:
        if operation["op"] == "test":
            name = operation["value"]
        elif name in EXCUSES:
            yield Check(name, list(expressions_in(operation["value"])))


@pytest.mark.parametrize("check", [pytest.param(found, id=found.name) for found in checks()])
def test_no_condition_excuses_a_changed_template_of_an_object_that_is_being_deleted(
    check: Check,
) -> None:
    found = [text for text in check.expressions if IS_DELETED in text]
    assert found in ([], [EXCUSES.get(check.name)])


def test_each_way_to_check_a_template_is_among_them() -> None:
    assert {
        "reprieve-templates",
        "reprieve-rules-templates",
        "reprieve-rules-cronjobs",
        "template-claims.reprieve.dev",
        *EXCUSES,
    } <= {found.name for found in checks()}

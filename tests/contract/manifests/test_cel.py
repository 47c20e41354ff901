"""The overlay `cel`: what it leaves to the webhooks, with the base's rules and the policies."""

import re
from typing import Any

import pytest
import yaml

from reprieve_policy import keys
from reprieve_policy.admission.key_places import OWNERS, PODS, PRIORITY_CLASSES
from reprieve_policy.admission.rules import RULES
from reprieve_policy.cel import policies
from reprieve_policy.config.toleration import annotation_keys
from reprieve_policy.gangs import gang_objects
from reprieve_testing import manifests

OVERLAY = manifests.MANIFESTS / "overlays" / "cel"
NAME = "is-not-left-to-the-api-server"
COVERED = {
    keys.PREEMPTION_CLASS,
    keys.CHECKPOINT,
    keys.CHECKPOINT_TIMEOUT,
    keys.CLEANERS_BEFORE,
    keys.MAX_DEFERRAL,
    keys.REQUEUE,
    keys.REQUEUE_ENV,
}
"""Keys of pods about which no rule but the policies' has a word."""
IN_TEMPLATES = {keys.SOFT_EVICTION, keys.KOORDINATOR_SOFT_EVICTION}
"""Any mark in a template is refused, whatever its value."""


def patches(kind: str) -> dict[str, Any]:
    """Return the patch of each webhook by its name; a test of that name precedes every patch."""
    operations = yaml.safe_load((OVERLAY / f"{kind}-webhooks.yaml").read_text())
    base = manifests.named(f"{kind.capitalize()}WebhookConfiguration", "reprieve-webhooks")[
        "webhooks"
    ]
    found = {}
    for tested, patched in zip(operations[::2], operations[1::2], strict=True):
        index = int(tested["path"].split("/")[2])
        assert (tested["op"], tested["value"]) == ("test", base[index]["name"])
        assert patched["path"].startswith(f"/webhooks/{index}/matchConditions")
        value = patched["value"]
        found[tested["value"]] = (value[0] if isinstance(value, list) else value, base[index])
    return found


def keys_of(patched: tuple[Any, Any]) -> tuple[set[str], set[str]]:
    """Return the keys for which the base calls the webhook, and those for which it is still
    called.
    """
    condition, webhook = patched
    assert condition["name"] == NAME
    called = {
        key
        for found in webhook["matchConditions"]
        for key in manifests.read_keys_in(found["expression"])
    }
    return called, manifests.read_keys_in(left(patched))


def left(patched: tuple[Any, Any]) -> str:
    """Return the expression of what is left to the webhook, without the base's conditions.

    The patch of a webhook that is asked about each new pod replaces them with one condition that
    ends with them.
    """
    condition, webhook = patched
    expression: str = condition["expression"]
    base = "".join(f" && ({found['expression']})" for found in webhook["matchConditions"])
    return expression.removesuffix(base)


def test_the_overlay_renders_all_policies() -> None:
    (kustomization,) = manifests.read(OVERLAY / "kustomization.yaml")
    assert kustomization["resources"] == ["../../base", "policies.yaml"]
    assert set(policies.RULES) <= {rule.id for rule in RULES}


def test_a_pod_is_reviewed_for_fields_that_the_policies_do_not_cover() -> None:
    called, still_called = keys_of(patches("validating")["pods.reprieve.dev"])
    assert still_called - {keys.HOME_NAMESPACE} == called - COVERED - {keys.HOME_NAMESPACE}
    assert keys.HOME_NAMESPACE in still_called


def test_a_template_is_reviewed_for_fields_that_the_policies_do_not_cover() -> None:
    called, still_called = keys_of(patches("validating")["templates.reprieve.dev"])
    # A key of ours in the object's own metadata has no list of its own.
    # Without the overlay, any label of ours in a template is reviewed.
    also = {keys.GANG_GATE_LABEL}
    assert still_called | {keys.DISRUPTION_MODE} == (called - COVERED - IN_TEMPLATES) | also


def test_a_priority_class_is_reviewed_for_fields_that_the_policies_do_not_cover() -> None:
    called, still_called = keys_of(patches("validating")["priorityclasses.reprieve.dev"])
    assert still_called == called - {keys.DEFAULT_PREEMPTION_CLASS}


KEYS_LEFT_OUT: dict[str, list[frozenset[str]]] = {
    # Those for which the webhook is called in any case are not in the list.
    "pods": [
        PODS.labels | {keys.CAN_PREEMPT},
        PODS.annotations
        - {
            keys.AGENT,
            keys.CHECKPOINT_HINT,
            keys.DISRUPTION_MODE,
            keys.ESTIMATED_CHECKPOINT_TIME,
            keys.PREEMPTION_PRIORITY_CLASS,
        },
    ],
    "templates": [
        OWNERS.labels,
        OWNERS.annotations - {keys.DISRUPTION_MODE},
        PODS.labels | {keys.CAN_PREEMPT},
        PODS.annotations,
    ],
    "priorityclasses": [
        PRIORITY_CLASSES.annotations.union(
            annotation_keys(keys.TOLERATION_PREFIX), annotation_keys(keys.OLD_TOLERATION_PREFIX)
        )
    ],
}


@pytest.mark.parametrize("name", KEYS_LEFT_OUT)
def test_a_key_of_ours_that_is_read_nowhere_there_is_still_reviewed(name: str) -> None:
    expression = left(patches("validating")[f"{name}.reprieve.dev"])
    assert any(prefix in expression for prefix in (f"'{keys.PREFIX}'", "'^(reprieve[.]dev|"))
    assert manifests.keys_left_out(expression) == KEYS_LEFT_OUT[name]


def test_about_a_new_pod_one_condition_is_evaluated_that_includes_those_of_the_base() -> None:
    patched = patches("validating")["pods.reprieve.dev"]
    condition, webhook = patched
    assert left(patched) != condition["expression"]
    assert all(
        found["expression"] in condition["expression"] for found in webhook["matchConditions"]
    )


def test_the_prefixes_of_a_pods_keys_are_those_of_the_base() -> None:
    patched = patches("validating")["pods.reprieve.dev"]
    _, webhook = patched
    base = " ".join(found["expression"] for found in webhook["matchConditions"])
    prefixes = set(re.findall(r"'([a-z0-9.-]+/)'", base))
    (pattern,) = set(re.findall(r"key\.matches\('(.*?)'\)", left(patched)))
    places = (*PODS.labels, *PODS.annotations, *(f"{prefix}x" for prefix in prefixes))
    others = ("app", "example.com/reprieve.dev/", "xreprieve.dev/a", "scheduling.koordinator.sh/a")
    for key in (*places, *others):
        assert bool(re.search(pattern, key)) == key.startswith(tuple(prefixes)), key


def test_every_other_webhook_is_unchanged() -> None:
    assert set(patches("validating")) == {
        f"{name}.reprieve.dev" for name in ("pods", "templates", "priorityclasses")
    }
    assert set(patches("mutating")) == {"pods.reprieve.dev", "priorityclasses.reprieve.dev"}


def test_a_created_pod_is_reviewed_for_rules_that_need_facts() -> None:
    condition, _ = patches("mutating")["pods.reprieve.dev"]
    assert condition["name"] == NAME
    read_keys = {
        keys.PREEMPTION_CLASS,
        keys.KOORDINATOR_SOFT_EVICTION,
        keys.AGENT,
        *(row.label for row in gang_objects.KINDS),
    }
    assert set(manifests.keys_in(condition["expression"])) == read_keys
    assert "owner.?controller" in condition["expression"]


@pytest.mark.parametrize("kind", ["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"])
def test_no_policy_has_the_name_of_one_of_the_base(kind: str) -> None:
    rendered = {
        found["metadata"]["name"]
        for found in manifests.read(OVERLAY / "policies.yaml")
        if found["kind"] == kind
    }
    assert rendered
    assert not rendered & {found["metadata"]["name"] for found in manifests.of_kind(kind)}

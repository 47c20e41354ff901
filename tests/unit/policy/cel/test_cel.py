"""The policies as documents. What they decide is held against the rules in `tests/differential`."""

from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.admission import fields
from reprieve_policy.cel import check, policies
from reprieve_policy.config.annotation_values import Value
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.kinds import CUSTOM, POD_KINDS
from reprieve_policy.verdict import MAX_VALUE_SHOWN, Violation, ViolationKind

DOCUMENTS = policies.render(PolicySettings())
BINDINGS = {
    item["spec"]["policyName"]: item["spec"]
    for item in DOCUMENTS
    if item["kind"].endswith("Binding")
}
VALIDATING = [item for item in DOCUMENTS if item["kind"] == "ValidatingAdmissionPolicy"]
EACH = [pytest.param(item, id=item["metadata"]["name"]) for item in VALIDATING]
MAX_MESSAGE = 5 * 1024
"""Bytes; a longer one is replaced by the fallback."""


def named(name: str, settings: PolicySettings | None = None) -> Any:
    documents = policies.render(settings or PolicySettings())
    (found,) = [
        item
        for item in documents
        if item["metadata"]["name"] == name and not item["kind"].endswith("Binding")
    ]
    return found


@pytest.mark.parametrize("policy", EACH)
def test_each_policy_has_one_answer_for_all_violations(policy: Any) -> None:
    name = policy["metadata"]["name"]
    action = "Warn" if name.endswith("-warn") else "Deny"
    assert BINDINGS[name]["validationActions"] == [action]
    assert action == "Warn" or len(policy["spec"]["validations"]) == 1


@pytest.mark.parametrize("policy", EACH)
def test_policies_ignore_failures_and_terminating_objects(policy: Any) -> None:
    assert policy["spec"]["failurePolicy"] == "Ignore"
    assert (
        policy["spec"]["matchConditions"][0]["expression"]
        == "!has(object.metadata.deletionTimestamp)"
    )


@pytest.mark.parametrize("policy", EACH)
def test_an_update_without_changed_preemption_keys_evaluates_one_condition_only(
    policy: Any,
) -> None:
    conditions = {
        condition["name"]: condition["expression"]
        for condition in policy["spec"]["matchConditions"]
    }
    condition = conditions["says-something-new-about-preemption"]
    table = fields.pod_fields(PolicySettings())
    expected = (
        fields.PRIORITY_CLASS_FIELDS if "priority-classes" in policy["metadata"]["name"] else table
    )
    assert all(f"'{field.key}'" in condition for field in expected)


def test_every_kind_that_makes_pods_is_matched() -> None:
    without_subresources = {
        resource.partition("/")[0]
        for policy in VALIDATING
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    assert {f"{kind.lower()}s" for kind in POD_KINDS - {CUSTOM}} | {
        "priorityclasses"
    } == without_subresources


@pytest.mark.parametrize("value", ["true", "false"])
def test_koordinators_defaults_are_filled_in_if_an_admin_set_them(value: str) -> None:
    settings = PolicySettings(
        default_preemptible=value == "true", default_can_preempt=value == "true"
    )
    patch = named("reprieve-defaults-pods", settings)["spec"]["mutations"][0]["jsonPatch"][
        "expression"
    ]
    for key in (keys.PREEMPTIBLE, keys.CAN_PREEMPT):
        assert f"path: '/metadata/labels/{key.replace('/', '~1')}', value: '{value}'" in patch


def test_a_value_without_a_cel_form_raises() -> None:
    with pytest.raises(NotImplementedError):
        check.text_requirements(Value[str](), "t")


def test_the_longest_message_stays_within_the_limit() -> None:
    """Every field of a CronJob's template is wrong, each value of four-byte code points."""
    prefix = "spec.jobTemplate.spec.template."
    shown = 4 * (MAX_VALUE_SHOWN + 1)
    punctuation = len(': : "": , ')
    lengths = [
        len(field.path(prefix))
        + len(ViolationKind.UNSUPPORTED.text)
        + (63 if field.part == "labels" else shown)
        + len(_detail(field))
        + punctuation
        for field in fields.pod_fields(PolicySettings())
    ]
    marks = 3 * (len(prefix) + 140)
    assert sum(lengths) + marks < MAX_MESSAGE


def _detail(field: fields.MetadataField) -> str:
    """Return what would be accepted instead of a value that is wrong in every way."""
    violation = field.value.parse("\U0001f4a5" * 1000, "")
    assert isinstance(violation, Violation)
    return violation.detail

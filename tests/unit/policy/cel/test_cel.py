"""The policies as documents. What they decide is held against the rules in `tests/differential`."""

import re
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
POLICIES = [item for item in DOCUMENTS if not item["kind"].endswith("Binding")]
VALIDATING = [item for item in DOCUMENTS if item["kind"] == "ValidatingAdmissionPolicy"]


def name_of(document: Any) -> str:
    name: str = document["metadata"]["name"]
    return name


EACH = [pytest.param(item, id=name_of(item)) for item in VALIDATING]
IN_ALL, IN_NAMESPACES = (
    ("reprieve-rules-pods", "reprieve-rules-pods-warn"),
    ("reprieve-rules-pods-in-namespaces", "reprieve-rules-pods-in-namespaces-warn"),
)
"""Policies for created pods: what is refused in every Namespace, and in some by their classes."""
CREATED = [found for found in EACH if found.id in (*IN_ALL, *IN_NAMESPACES)]
UPDATED = [found for found in EACH if found not in CREATED]
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


def test_policies_ignore_failures() -> None:
    assert {item["spec"]["failurePolicy"] for item in POLICIES} == {"Ignore"}


@pytest.mark.parametrize("policy", UPDATED)
def test_an_update_without_changed_preemption_keys_evaluates_one_condition_only(
    policy: Any,
) -> None:
    (condition,) = policy["spec"]["matchConditions"]
    table = fields.pod_fields(PolicySettings())
    expected = (
        fields.PRIORITY_CLASS_FIELDS if "priority-classes" in policy["metadata"]["name"] else table
    )
    assert all(f"'{field.key}'" in condition["expression"] for field in expected)
    # Controllers still use the template of an object that is being deleted.
    is_template = ".?template" in condition["expression"]
    assert ("deletionTimestamp" in condition["expression"]) != is_template


@pytest.mark.parametrize("policy", CREATED)
def test_a_created_pod_has_no_old_object(policy: Any) -> None:
    assert "oldObject" not in str(policy["spec"])


def test_a_created_pod_without_violations_is_known_before_all_are_looked_for() -> None:
    by_name = {name_of(policy): policy["spec"] for policy in VALIDATING}
    read = [field.key for field in fields.pod_fields(PolicySettings())]
    for name in IN_ALL:
        (condition,) = by_name[name]["matchConditions"]
        assert all(f"'{key}'" in condition["expression"] for key in read)
    for name in IN_NAMESPACES:
        assert "matchConditions" not in by_name[name]
        # Each would take its time for every pod.
        assert "variables" not in by_name[name]
        (validation,) = by_name[name]["validations"]
        for expression in (validation["expression"], validation["messageExpression"]):
            first = expression.partition(" || ")[0]
            assert first == "(!has(namespaceObject.metadata.annotations)"
            before = expression.partition(" in (")[0]
            assert all(
                f"'{key}'" in before
                for key in (keys.ALLOWED_PREEMPTION_CLASSES, keys.WORKLOAD_TYPE)
            )


def test_a_created_pod_is_warned_of_by_one_of_two_policies() -> None:
    in_all, in_namespaces = (named(name)["spec"] for name in (IN_ALL[1], IN_NAMESPACES[1]))
    asked = in_all["matchConditions"][0]["expression"]
    (validation,) = in_namespaces["validations"]
    assert asked in validation["expression"]


def test_pods_are_checked_in_every_operation() -> None:
    operations = {
        policy["metadata"]["name"]: (rule["operations"], rule["resources"])
        for policy in VALIDATING
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        if "pods" in rule["resources"]
    }
    created = (["CREATE"], ["pods"])
    updated = (["UPDATE"], ["pods", "pods/status", "pods/resize"])
    assert operations == {
        **dict.fromkeys((*IN_ALL, *IN_NAMESPACES), created),
        "reprieve-rules-pod-updates": updated,
        "reprieve-rules-pod-updates-warn": updated,
    }


@pytest.mark.parametrize("policy", [pytest.param(item, id=name_of(item)) for item in POLICIES])
def test_what_the_api_server_would_do_for_every_request_is_left_out(policy: Any) -> None:
    spec = policy["spec"]
    assert "namespaceSelector" not in spec["matchConstraints"]
    # A selector is parsed for each request that the rules match: nearly every created pod passes.
    has_none = "priority-classes" in name_of(policy) or name_of(policy) in IN_ALL + IN_NAMESPACES
    assert ("matchResources" in BINDINGS[name_of(policy)]) != has_none
    assert len(spec.get("matchConditions", [])) <= 1
    for variable in spec.get("variables", []):
        name, *others = variable["name"], str(spec["variables"])
        rest = str({key: value for key, value in spec.items() if key != "variables"})
        assert any(re.search(rf"variables\.{name}\b", text) for text in (rest, *others)), name
    for validation in spec.get("validations", []):
        assert not re.fullmatch(r"'[^']*'", validation.get("messageExpression", ""))


def test_namespaces_that_are_always_exempt_have_no_policies() -> None:
    for name, binding in BINDINGS.items():
        if "priority-classes" in name:
            continue
        if name in IN_ALL + IN_NAMESPACES:
            text = str(named(name)["spec"]).replace("\\'", "'")
            exempt = "namespaceObject.metadata.name in ['kube-system', 'reprieve-system'] ? 'off'"
            assert text.count(exempt) == 2, "of a controller, and of everybody else"
            continue
        selector = binding["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert selector == [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "reprieve-system"],
            },
            {"key": keys.ENFORCEMENT, "operator": "NotIn", "values": ["off"]},
        ]


def test_a_pod_with_a_class_is_left_alone_by_its_labels_unless_an_admin_set_defaults() -> None:
    constraints = named("reprieve-defaults-pods")["spec"]["matchConstraints"]
    (expression,) = constraints["objectSelector"]["matchExpressions"]
    assert expression == {"key": keys.PREEMPTION_CLASS, "operator": "DoesNotExist"}
    with_defaults = named("reprieve-defaults-pods", PolicySettings(default_can_preempt=False))
    assert "objectSelector" not in with_defaults["spec"]["matchConstraints"]


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

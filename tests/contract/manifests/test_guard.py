"""The guard's expressions agree with the policy's messages and states."""

import re
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.admission import permissions
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.admission.rules import reserved_state
from reprieve_policy.admission.rules.soft_eviction_mark import _IN_TEMPLATE
from reprieve_policy.config import namespace, preemption_class
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.dialects import DIALECTS
from reprieve_policy.kube import controllers
from reprieve_policy.kube import owners as owners_table
from reprieve_policy.kube.kinds import TEMPLATE_KINDS
from reprieve_policy.lifecycle import mark, transitions
from reprieve_policy.preemption import guard
from reprieve_policy.preemption.guard import RequestKind
from reprieve_testing import manifests
from reprieve_testing.objects.builders import NOW, a_pod

POLICIES = manifests.of_kind("ValidatingAdmissionPolicy")
EACH = [pytest.param(found, id=found["metadata"]["name"]) for found in POLICIES]
KEYS = {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
TOLERATIONS = {
    prefix + name
    for prefix in (keys.TOLERATION_PREFIX, keys.OLD_TOLERATION_PREFIX)
    for name in (keys.MINIMUM_PREEMPTABLE_PRIORITY, keys.TOLERATION_SECONDS)
}


def spec_of(name: str) -> Any:
    return manifests.named("ValidatingAdmissionPolicy", name)["spec"]


def expression_of(policy: str, variable: str) -> str:
    (found,) = [
        item["expression"] for item in spec_of(policy)["variables"] if item["name"] == variable
    ]
    return str(found)


@pytest.mark.parametrize("policy", EACH)
def test_each_guard_policy_fails_closed(policy: Any) -> None:
    assert policy["spec"]["failurePolicy"] == "Fail"


@pytest.mark.parametrize("policy", EACH)
def test_each_guard_policy_applies_to_every_namespace(policy: Any) -> None:
    binding = manifests.named("ValidatingAdmissionPolicyBinding", policy["metadata"]["name"])[
        "spec"
    ]
    assert binding == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert set(policy["spec"]["matchConstraints"]) == {"resourceRules"}


@pytest.mark.parametrize("policy", EACH)
def test_refusals_of_guard_policies_are_forbidden_not_invalid(policy: Any) -> None:
    full = "!variables.isTooLong"  # to the operator, such an object is one that is full
    reasons = {
        each["reason"] for each in policy["spec"]["validations"] if each["expression"] != full
    }
    assert reasons == {"Forbidden"}


def test_every_way_to_write_a_pods_metadata_is_guarded() -> None:
    (rule,) = spec_of("reprieve-soft-evictions")["matchConstraints"]["resourceRules"]
    assert set(rule["operations"]) == {"CREATE", "UPDATE"}
    assert set(rule["resources"]) == {
        "pods",
        "pods/status",
        "pods/resize",
        "pods/ephemeralcontainers",
    }
    (bindings,) = spec_of("reprieve-bindings")["matchConstraints"]["resourceRules"]
    assert set(bindings["resources"]) == {"bindings", "pods/binding"}


def test_exactly_the_marks_and_the_operators_keys_are_guarded() -> None:
    (condition,) = spec_of("reprieve-soft-evictions")["matchConditions"]
    written = {
        keys.EVICTION,
        keys.PREEMPTOR,
        keys.REFUSED_SINCE,
        keys.CHECKPOINT_REQUEST,
        keys.CLEANUP_FINALIZER,
    }
    marks = {keys.SOFT_EVICTION, keys.KOORDINATOR_SOFT_EVICTION}
    assert set(manifests.keys_in(condition["expression"])) == written | marks | GANG_KEYS


def gang_keys() -> set[str]:
    """Return every key by which a pod is in a gang, or says that it goes as a whole."""
    places = (place for each in DIALECTS for place in (each.name, each.index) if place is not None)
    return {place.key for place in places if place.holder in ("labels", "annotations")}


GANG_KEYS = gang_keys() | {keys.DISRUPTION_MODE}


def test_a_mark_needs_the_right_to_delete_the_gang_by_every_key_of_a_gang() -> None:
    """Of a LeaderWorkerSet, the name alone counts: the group's index makes no other set."""
    known = set(manifests.keys_in(expression_of("reprieve-soft-evictions", "isInGang")))
    assert known == GANG_KEYS - {keys.LEADER_WORKER_GROUP}


def test_a_marked_pod_that_joins_a_gang_is_guarded_by_every_key_of_a_gang() -> None:
    joined = set(manifests.keys_in(expression_of("reprieve-soft-evictions", "gangsJoined")))
    assert joined == GANG_KEYS | {keys.SOFT_EVICTION, keys.KOORDINATOR_SOFT_EVICTION}


def test_a_binding_names_nothing_that_protects_and_no_quota() -> None:
    _, protection, _ = spec_of("reprieve-bindings")["validations"]
    labels, _, annotations = protection["expression"].partition("&&")
    protecting = {keys.PREEMPTION_CLASS, keys.PREEMPTIBLE, keys.QUOTA_NAME}
    assert set(manifests.keys_in(labels)) == protecting
    assert set(manifests.keys_in(annotations)) == {keys.PREEMPTION_PRIORITY_CLASS}


def test_only_the_annotations_of_a_binding_may_be_what_a_scheduler_copies_from_its_pod() -> None:
    """`cluster/guard/test_marks.py` and `test_protection.py` show who is a scheduler."""
    right = expression_of("reprieve-bindings", "isOfScheduler")
    assert ".subresource('binding').check('create')" in right
    assert "namespace" not in right
    marks, protection, _ = spec_of("reprieve-bindings")["validations"]
    for each in (marks, protection):
        labels, _, annotations = each["expression"].partition("&& (")
        assert "isOfScheduler" not in labels
        assert annotations.endswith("|| variables.isOfScheduler)")


def test_a_binding_that_names_a_gang_is_guarded_by_every_key_of_a_gang() -> None:
    """`cluster/guard/test_marks.py` shows who may do so."""
    *_, gang = spec_of("reprieve-bindings")["validations"]
    assert set(manifests.keys_in(gang["expression"])) == GANG_KEYS


@pytest.mark.parametrize(
    "policy", ["reprieve-soft-evictions", "reprieve-bindings", "reprieve-templates"]
)
def test_the_operators_keys_are_guarded_on_every_way_to_a_pod(policy: str) -> None:
    ours = {keys.EVICTION, keys.PREEMPTOR, keys.REFUSED_SINCE, keys.CHECKPOINT_REQUEST}
    assert ours <= set(manifests.keys_in(str(spec_of(policy))))


def test_guard_and_policy_agree_on_when_an_eviction_is_over() -> None:
    expression = expression_of("reprieve-soft-evictions", "isUnderWay")
    (phases,) = re.findall(r'"phase":"\(([a-z|]+)\)"', expression)
    assert set(phases.split("|")) == {phase.value for phase in transitions.TERMINAL}


@pytest.mark.parametrize("variable", ["evictionsCancelled", "marksReplaced"])
def test_a_mark_that_awaits_the_operator_is_neither_taken_back_nor_replaced(variable: str) -> None:
    """`cluster/guard/test_marks.py` shows it: an owner could be faster than the operator."""
    awaits = expression_of("reprieve-soft-evictions", "awaitsTheOperator")
    assert keys.SOFT_EVICTION in awaits
    assert f"== '{mark.MARKED}'" in awaits
    assert "variables.awaitsTheOperator" in expression_of("reprieve-soft-evictions", variable)


def test_guard_and_policy_agree_on_what_a_mark_is() -> None:
    expression = expression_of("reprieve-soft-evictions", "marksSet")
    assert f".orValue('') == '{mark.REQUESTED}'" in expression
    assert f"in ['{mark.EVICT}', '{mark.MARKED}']" in expression
    assert set(mark.REQUESTING_VALUES) == {mark.REQUESTED, mark.EVICT}
    assert all(value in ("", "false") for value in mark._NOT_A_MARK)
    assert expression.count("['', 'false']") == 2


def test_guard_and_policy_agree_on_the_values_of_our_label() -> None:
    expression = expression_of("reprieve-soft-evictions", "valueRefused")
    (listed,) = re.findall(rf"in \[('{mark.REQUESTED}',[^]]*)\]", expression)
    named = set(re.findall(r"'([a-z]+)'", listed)) | {mark.EVICT, mark.MARKED}
    assert named == reserved_state._VALUES
    assert all(f"== '{value}'" in expression for value in (mark.EVICT, mark.MARKED))


def test_a_value_of_our_label_that_means_nothing_is_refused_first_and_in_the_rules_words() -> None:
    validation, *_ = spec_of("reprieve-soft-evictions")["validations"]
    assert validation["expression"] == "!variables.valueRefused"
    marked = a_pod().labelled(keys.SOFT_EVICTION, "true").build()
    (violation,) = decide_admission(marked, None, Facts()).violations
    label = f"variables.labels['{keys.SOFT_EVICTION}']"
    message = validation["messageExpression"].replace(f"' + {label} + '", "true")
    assert message == f"'{violation}'"


def test_a_mark_in_a_template_is_refused_with_the_rules_words() -> None:
    (_, validation, _) = spec_of("reprieve-templates")["validations"]
    assert validation["message"] == _IN_TEMPLATE
    assert f": Forbidden: {_IN_TEMPLATE}'" in validation["messageExpression"]


def test_templates_are_guarded_at_all_paths_that_rules_read_and_more() -> None:
    resources = {
        name
        for rule in spec_of("reprieve-templates")["matchConstraints"]["resourceRules"]
        for name in rule["resources"]
    }
    assert {f"{kind.lower()}s" for kind in TEMPLATE_KINDS} <= resources
    assert "cronjobs" in resources


def test_the_assumed_class_of_a_pod_without_a_label_is_that_of_the_policy() -> None:
    expression = expression_of("reprieve-protection", "assumedClass")
    types = {
        name: value
        for name, value in namespace.WORKLOAD_TYPE_CLASS.items()
        if name != namespace.SENSITIVE
    }
    assert dict(re.findall(r"'([a-z-]+)': '(\d+)'", expression)) == {
        name: str(value) for name, value in types.items()
    }
    assert expression.strip().endswith(f".orValue('{preemption_class.DEFAULT}')")
    assert f"'{namespace.SENSITIVE}' ? '{preemption_class.HIGHEST}'" in expression


def test_a_protection_that_rises_is_refused_with_the_rules_words() -> None:
    messages = {
        validation["message"] for validation in spec_of("reprieve-protection")["validations"]
    }
    old = a_pod().in_class(3).build()
    raised = a_pod().in_class(4).labelled(keys.PREEMPTIBLE, "false").defended_as("gold").build()
    violations = {str(violation) for violation in decide_admission(raised, old, Facts()).violations}
    assert {text for text in violations if ": Forbidden: " in text} == {
        text for text in messages if "claim-sensitive" not in text
    }


def test_the_whole_policy_of_a_namespace_is_guarded() -> None:
    (condition,) = spec_of("reprieve-namespace-policies")["matchConditions"]
    assert set(manifests.keys_in(condition["expression"])) == set(namespace._READERS)


def test_ledgers_are_guarded_on_every_kind_that_has_one() -> None:
    rules = spec_of("reprieve-ledgers")["matchConstraints"]["resourceRules"]
    guarded = {
        (group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]
    }
    owners = {(row.group, row.resource) for row in owners_table.LEDGER_KINDS.values()}
    assert guarded == owners | {(group, f"{resource}/status") for group, resource in owners}
    condition, exception = spec_of("reprieve-ledgers")["matchConditions"]
    assert set(manifests.keys_in(condition["expression"])) == {keys.LEDGER, keys.SUSPENDED}
    assert all(f"'{user}'" in exception["expression"] for user in controllers.OF_DEPLOYMENTS)


def test_every_checked_right_can_be_granted() -> None:
    text = (manifests.BASE / "guard.yaml").read_text()
    checked = set(
        re.findall(r"group\('reprieve\.dev'\)\.resource\('([a-z]+)'\)\.check\('([a-z-]+)'\)", text)
    )
    granted = {
        (resource, verb)
        for role in manifests.of_kind("ClusterRole")
        for rule in role["rules"]
        if rule.get("apiGroups") == ["reprieve.dev"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert checked == {
        ("softevictions", "report"),
        ("softevictions", "cancel"),
        ("softevictions", "mark"),
        ("policies", "edit"),
        ("preemptionclasses", "claim-sensitive"),
    }
    by_webhooks = {
        (permissions.CLAIM_NON_PREEMPTIBLE.resource, permissions.CLAIM_NON_PREEMPTIBLE.verb)
    }
    assert checked | by_webhooks == granted
    # For templates that the guard does not recognise, the webhooks require the same right.
    assert (permissions.CLAIM_SENSITIVE.resource, permissions.CLAIM_SENSITIVE.verb) in checked


def test_virtual_rights_are_checked_for_the_whole_cluster() -> None:
    text = (manifests.BASE / "guard.yaml").read_text()
    for right in ("softevictions", "policies", "preemptionclasses"):
        assert re.search(rf"resource\('{right}'\)\.namespace", text) is None


def test_every_key_in_the_manifests_is_defined_in_the_policy() -> None:
    found = {key for item in manifests.base() for key in manifests.keys_in(item)}
    assert found <= KEYS | TOLERATIONS


def test_the_webhooks_rights_are_restricted_for_their_own_service_account() -> None:
    (condition,) = spec_of("reprieve-marks")["matchConditions"]
    (binding,) = [
        one
        for one in manifests.of_kind("ClusterRoleBinding")
        if one["metadata"]["name"] == "reprieve-guard"
    ]
    (subject,) = binding["subjects"]
    # `test_program_limits.py` shows which accounts that is.
    assert f":[^:]*{subject['name']}[^:]*$" in condition["expression"]


def test_the_webhooks_may_write_exactly_the_guards_keys_and_when_a_workload_saved() -> None:
    _, validation = spec_of("reprieve-marks")["validations"]
    written = {
        change.key for kind in RequestKind for change in guard.mark_changes(kind, "uid", NOW)
    }
    allowed = written | {keys.LAST_CHECKPOINT_AT, keys.REFUSED_SINCE}
    assert set(manifests.keys_in(validation["expression"])) == allowed

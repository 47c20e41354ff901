"""The webhook configurations against the server that they call and the rules that it runs."""

import re
from typing import Any
from unittest.mock import Mock, sentinel

import pytest
import yaml

from reprieve_policy import keys
from reprieve_policy.admission import misspelled_keys
from reprieve_policy.admission.defaults import KEPT_ON_REPLICA_SETS
from reprieve_policy.admission.key_places import OWNERS, PODS
from reprieve_policy.admission.permissions import CLAIM_NON_PREEMPTIBLE
from reprieve_policy.admission.rules import RULES, reserved_state
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config import namespace
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.toleration import annotation_keys
from reprieve_policy.gangs import dialects, pod_group
from reprieve_policy.kube import controllers
from reprieve_policy.kube.kinds import CUSTOM, KINDS, TEMPLATE_KINDS
from reprieve_policy.kube.template_kinds import WELL_KNOWN
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_testing import manifests
from reprieve_webhooks.guard.handler import Guard
from reprieve_webhooks.guard.secret_path import PATH
from reprieve_webhooks.metrics import WebhookMetrics
from reprieve_webhooks.server import Webhooks
from reprieve_webhooks.settings import Settings

SETTINGS = Settings()
NAME = SETTINGS.webhook_configuration
MUTATING = manifests.named("MutatingWebhookConfiguration", NAME)["webhooks"]
VALIDATING = manifests.named("ValidatingWebhookConfiguration", NAME)["webhooks"]
GUARDING = [found for found in VALIDATING if found["clientConfig"]["service"]["path"] == "/guard"]
RULING = [found for found in VALIDATING if found not in GUARDING]
ALL = [pytest.param(webhook, id=webhook["name"]) for webhook in (*MUTATING, *VALIDATING)]
CLAIMS = ("claims.reprieve.dev", "template-claims.reprieve.dev")
DEPLOYMENT = manifests.named("Deployment", "reprieve-webhooks")
KIND_OF = {row.resource: kind for kind, row in KINDS.items()}
TOLERATIONS = {
    *annotation_keys(keys.TOLERATION_PREFIX),
    *annotation_keys(keys.OLD_TOLERATION_PREFIX),
}
ON_PODS = {
    keys.PREEMPTION_CLASS,
    keys.PREEMPTIBLE,
    keys.CAN_PREEMPT,
    keys.QUOTA_NAME,
    keys.PREEMPTION_PRIORITY_CLASS,
    keys.DISRUPTION_MODE,
    keys.KOORDINATOR_SOFT_EVICTION,
    *checkpoint_plan.KEYS,
    keys.AGENT,
    *TOLERATIONS,
    *({place.key for place in dialects.GANG_FIELDS if place.holder != "spec"} - {keys.JOB}),
    keys.KOORDINATOR_MODE,
}
"""The keys that rules on pods read. A Job's name alone does not count: all its pods come from
one template.
"""


def routes() -> set[tuple[str, str]]:
    server = Webhooks(
        sentinel.facts,
        WebhookMetrics(),
        sentinel.readiness,
        max_review_bytes=1,
        read_timeout_seconds=1.0,
        remembered=sentinel.remembered,
        guard=Mock(spec=Guard),
    )
    server.serve_guard_at([PATH])
    return set(server._routes)


def webhook(webhooks: list[Any], name: str) -> Any:
    (found,) = [found for found in webhooks if found["name"] == f"{name}.{keys.PREFIX.rstrip('/')}"]
    return found


def conditions(found: Any) -> str:
    return " ".join(condition["expression"] for condition in found["matchConditions"])


def read_keys(found: Any) -> set[str]:
    return manifests.read_keys_in(conditions(found))


CUSTOM_RESOURCES = {(row.group, row.kind.lower() + "s") for row in WELL_KNOWN.rows}
"""The plurals are those that their own CustomResourceDefinitions give them."""


def resources_of(webhook: Any) -> set[tuple[str, str]]:
    return {
        (group, name)
        for rule in webhook["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }


def kinds_of(webhooks: list[Any]) -> set[str]:
    return {
        CUSTOM if resource in CUSTOM_RESOURCES else KIND_OF[resource[1].partition("/")[0]]
        for found in webhooks
        for resource in resources_of(found)
    }


@pytest.mark.parametrize("found", ALL)
def test_an_outage_refuses_nothing_but_claims_and_delays_little(found: Any) -> None:
    assert found["failurePolicy"] == ("Fail" if found["name"] in CLAIMS else "Ignore")
    assert found["timeoutSeconds"] <= 3


def test_a_new_claim_to_be_non_preemptible_never_gets_in_unchecked() -> None:
    of_pods, of_templates = (webhook(VALIDATING, name) for name in ("claims", "template-claims"))
    assert kinds_of([of_pods]) == {"Pod"}
    assert kinds_of([of_templates]) == set(TEMPLATE_KINDS)
    # A pod without this label, and with this value, claims nothing. So a selector can decide it.
    assert of_pods["objectSelector"] == {"matchLabels": {keys.PREEMPTIBLE: "false"}}
    assert "objectSelector" not in of_templates
    assert set(manifests.keys_in(conditions(of_templates))) == {keys.PREEMPTIBLE}
    for found in (of_pods, of_templates):
        # All conditions of a webhook are evaluated: a right would be checked for each new template.
        (condition,) = found["matchConditions"]
        assert condition["expression"].endswith(
            f"!authorizer.group('{keys.PREFIX.rstrip('/')}')"
            f".resource('{CLAIM_NON_PREEMPTIBLE.resource}')"
            f".check('{CLAIM_NON_PREEMPTIBLE.verb}').allowed()"
        )
        users = re.findall(r"'(system:[^']+)'", condition["expression"])
        assert set(users) == controllers.USERS
    # Other webhooks are addressed by their index.
    assert VALIDATING[-2:] == [of_pods, of_templates]


def test_no_other_webhook_selects_objects_by_a_label_that_their_author_sets() -> None:
    """Without the label, nothing would be checked: that is right for a claim alone."""
    selecting = [found["name"] for found in (*MUTATING, *VALIDATING) if "objectSelector" in found]
    assert selecting == [CLAIMS[0]]


@pytest.mark.parametrize("found", ALL)
def test_every_webhook_may_be_called_in_a_dry_run(found: Any) -> None:
    assert found["sideEffects"] == ("NoneOnDryRun" if found in GUARDING else "None")
    assert found["admissionReviewVersions"] == ["v1"]


@pytest.mark.parametrize("found", ALL)
def test_the_server_serves_each_path_and_the_service_has_the_port(found: Any) -> None:
    service = found["clientConfig"]["service"]
    assert ("POST", service["path"]) in routes()
    assert (service["namespace"], service["name"]) == (SETTINGS.namespace, SETTINGS.service_name)
    (port,) = manifests.named("Service", SETTINGS.service_name)["spec"]["ports"]
    (container,) = DEPLOYMENT["spec"]["template"]["spec"]["containers"]
    assert port["port"] == service.get("port", 443)
    assert {"name": port["targetPort"], "containerPort": SETTINGS.listen_port} in container["ports"]


@pytest.mark.parametrize("found", ALL)
def test_no_certificate_is_in_the_manifests(found: Any) -> None:
    assert set(found["clientConfig"]) == {"service"}


@pytest.mark.parametrize("found", ALL)
def test_the_systems_own_namespaces_are_always_exempt(found: Any) -> None:
    if found["rules"][0]["resources"] in (["priorityclasses"], ["configmaps"]):
        return
    exempt = {
        expression["key"]: expression["values"]
        for expression in found["namespaceSelector"]["matchExpressions"]
        if expression["operator"] == "NotIn"
    }
    assert exempt["kubernetes.io/metadata.name"] == ["kube-system", SETTINGS.namespace]
    if "namespaces" not in found["rules"][0]["resources"]:
        assert exempt[keys.ENFORCEMENT] == [namespace.OFF]


def test_every_kind_that_a_rule_is_about_is_reviewed_and_no_other() -> None:
    assert kinds_of(RULING) == {kind for rule in RULES for kind in rule.kinds}
    assert kinds_of(MUTATING) == {"Pod", "PriorityClass", "PodGroup", "Deployment"}


def test_templates_are_those_of_the_rules() -> None:
    assert kinds_of([webhook(VALIDATING, "templates")]) == set(TEMPLATE_KINDS)


def test_a_pod_that_changes_what_a_rule_reads_is_reviewed() -> None:
    assert read_keys(webhook(VALIDATING, "pods")) == ON_PODS | {keys.HOME_NAMESPACE}


def test_a_template_with_a_key_that_a_rule_reads_is_reviewed() -> None:
    state = {*reserved_state.ANNOTATIONS, keys.CLEANUP_FINALIZER}
    also = state | {keys.SOFT_EVICTION, keys.HOME_NAMESPACE}
    assert read_keys(webhook(VALIDATING, "templates")) == ON_PODS | also


def test_a_template_that_tolerates_every_taint_is_reviewed_as_one_that_names_the_taint() -> None:
    expressions = [
        found["expression"] for found in webhook(VALIDATING, "templates")["matchConditions"]
    ]
    named = f"found.?key.orValue('') in ['', '{keys.HOME_NAMESPACE}']"
    assert any(f"tolerations.orValue([]).exists(found, {named})" in found for found in expressions)


_OWN = [OWNERS.labels, OWNERS.annotations - {keys.DISRUPTION_MODE}]
KEYS_LEFT_OUT = {
    "pods": [PODS.labels, PODS.annotations],
    # New ones, and those that are there.
    "templates": [*_OWN, *_OWN],
    "custom": _OWN,
    "priorityclasses": [],
    "namespaces": [],
    "groups": [],
}


@pytest.mark.parametrize("name", KEYS_LEFT_OUT)
def test_a_key_of_ours_that_is_read_nowhere_there_is_reviewed(name: str) -> None:
    """Without this, a mistake in the only key of ours would reach no rule. What Reprieve itself
    writes costs no call.
    """
    expression = conditions(webhook(VALIDATING, name))
    assert f"'{keys.PREFIX}'" in expression
    assert manifests.keys_left_out(expression) == KEYS_LEFT_OUT[name]


def test_a_job_that_a_quota_counts_is_also_reviewed_when_it_grows() -> None:
    grows = conditions(webhook(VALIDATING, "templates"))
    for field in ("replicas", "parallelism", "completions"):
        assert f"object.spec.?{field} != oldObject.spec.?{field}" in grows
    assert "request.?subResource.orValue('') == 'resize'" in conditions(webhook(VALIDATING, "pods"))


@pytest.mark.parametrize("name", ["pods", "templates"])
def test_a_key_under_a_prefix_that_few_other_keys_have_is_reviewed(name: str) -> None:
    """Under the other prefixes of other projects, their controllers write keys all the time."""
    prefixes = {f"{key.rpartition('/')[0]}/" for key in misspelled_keys.TYPED | {keys.AGENT}}
    expression = conditions(webhook(VALIDATING, name))
    called = set(re.findall(r"'([a-z0-9.-]+/)'", expression))
    assert called == prefixes - {
        "/",
        "kueue.x-k8s.io/",
        "pod-group/",
        "scheduling.k8s.io/",
        "scheduling.koordinator.sh/",
        "scheduling.volcano.sh/",
        keys.TOLERATION_PREFIX,
        keys.OLD_TOLERATION_PREFIX,
    }


def test_a_priority_class_with_a_key_that_a_rule_reads_is_reviewed() -> None:
    own = {keys.PREEMPTION_PRIORITY_CLASS, keys.DEFAULT_PREEMPTION_CLASS}
    assert (
        set(manifests.keys_in(conditions(webhook(VALIDATING, "priorityclasses"))))
        == TOLERATIONS | own
    )
    halves = set(annotation_keys(keys.TOLERATION_PREFIX))
    assert set(manifests.keys_in(conditions(webhook(MUTATING, "priorityclasses")))) == halves


def test_the_well_known_kinds_of_other_projects_are_reviewed_in_every_version() -> None:
    found, groups = webhook(VALIDATING, "custom"), webhook(VALIDATING, "groups")
    pod_groups = {(row.group, row.kind.lower() + "s") for row in WELL_KNOWN.rows if not row.paths}
    assert resources_of(found) == CUSTOM_RESOURCES - pod_groups
    # Of these, only the annotations are read: a change of the spec needs no review.
    assert pod_groups <= resources_of(groups)
    rules = [*found["rules"], groups["rules"][1]]
    assert all(rule["apiVersions"] == ["*"] for rule in rules)
    assert "object.?spec != oldObject.?spec" in conditions(found)


def test_the_patch_that_adds_a_kind_is_shown_for_the_right_webhook() -> None:
    shown = (manifests.MANIFESTS / "README.md").read_text()
    index = [found["name"] for found in VALIDATING].index("custom.reprieve.dev")
    assert f"{{op: test, path: /webhooks/{index}/name, value: custom.reprieve.dev}}" in shown
    assert f"path: /webhooks/{index}/rules/-" in shown


def test_the_patch_that_adds_a_scheduler_is_shown_for_the_right_webhook() -> None:
    shown = (manifests.ROOT / "docs" / "guard-reference.md").read_text()
    index = [found["name"] for found in VALIDATING].index("preemptions.reprieve.dev")
    assert f"{{op: test, path: /webhooks/{index}/name, value: preemptions.reprieve.dev}}" in shown
    assert f"path: /webhooks/{index}/matchConditions/0/expression" in shown
    assert "userInfo" in VALIDATING[index]["matchConditions"][0]["expression"]


def test_a_native_workload_or_group_with_a_key_that_a_rule_reads_is_reviewed() -> None:
    found = webhook(VALIDATING, "groups")
    assert set(manifests.keys_in(conditions(found))) == set(pod_group.WORKLOAD_KEYS)
    rule = found["rules"][0]
    assert {KIND_OF[resource] for resource in rule["resources"]} == {"Workload", "PodGroup"}
    for resource in rule["resources"]:
        row = KINDS[KIND_OF[resource]]
        assert (rule["apiGroups"], tuple(rule["apiVersions"])) == ([row.group], row.versions)


def test_an_elastic_quota_of_either_project_is_reviewed_where_its_bounds_change() -> None:
    found, row = webhook(VALIDATING, "elasticquotas"), KINDS["ElasticQuota"]
    (rule,) = found["rules"]
    assert rule["apiGroups"] == [row.group, row.other_group]
    assert (tuple(rule["apiVersions"]), rule["resources"]) == (row.versions, [row.resource])
    assert "object.?spec != oldObject.?spec" in conditions(found)


def test_of_configmaps_only_the_policy_is_reviewed_and_never_its_deletion() -> None:
    found = webhook(VALIDATING, "policy")
    (rule,) = found["rules"]
    assert (rule["resources"], rule["operations"]) == (["configmaps"], ["CREATE", "UPDATE"])
    assert found["namespaceSelector"] == {
        "matchLabels": {"kubernetes.io/metadata.name": SETTINGS.namespace}
    }
    assert f"object.metadata.?name == optional.of('{SETTINGS.policy_config_map}')" in conditions(
        found
    )


def test_a_namespace_that_changes_its_policy_is_reviewed() -> None:
    assert set(manifests.keys_in(conditions(webhook(VALIDATING, "namespaces")))) == set(
        namespace._READERS
    )


def test_a_mark_in_koordinators_dialect_is_given_our_label() -> None:
    found = webhook(MUTATING, "marks")
    assert set(manifests.keys_in(conditions(found))) == {
        keys.SOFT_EVICTION,
        keys.KOORDINATOR_SOFT_EVICTION,
    }
    assert found["rules"][0]["resources"] == ["pods", "pods/status"]


def test_a_deployment_that_has_what_is_kept_on_its_replicasets_is_cleared_of_it() -> None:
    found = webhook(MUTATING, "rollbacks")
    assert set(manifests.keys_in(conditions(found))) == set(KEPT_ON_REPLICA_SETS)
    assert found["rules"][0]["resources"] == ["deployments", "deployments/status"]


def test_local_programs_are_called_for_every_webhook() -> None:
    (overlay,) = manifests.read(manifests.MANIFESTS / "overlays" / "local" / "kustomization.yaml")
    patched = {
        patch["target"]["kind"]: yaml.safe_load(patch["patch"])
        for patch in overlay["patches"]
        if "target" in patch
    }
    for kind, webhooks in (
        ("MutatingWebhookConfiguration", MUTATING),
        ("ValidatingWebhookConfiguration", VALIDATING),
    ):
        wanted = [f"/webhooks/{index}/clientConfig" for index in range(len(webhooks))]
        assert [operation["path"] for operation in patched[kind]] == wanted


def test_the_creator_of_a_replicaset_is_identified_by_the_user_only() -> None:
    (condition,) = [
        found["expression"]
        for found in webhook(VALIDATING, "templates")["matchConditions"]
        if "replicasets" in found["expression"]
    ]
    assert "ownerReferences" not in condition
    assert set(re.findall(r"'(system:[^']+)'", condition)) == set(controllers.OF_DEPLOYMENTS)


def test_a_terminating_object_is_not_reviewed() -> None:
    """Its template is, if that changes: `test_templates_of_deleted_objects.py`."""
    creation_only = [webhook(MUTATING, "pods"), webhook(VALIDATING, "claims")]
    assert all(found["rules"][0]["operations"] == ["CREATE"] for found in creation_only)
    changed_only = webhook(VALIDATING, "template-claims")
    assert "!has(oldObject.metadata.deletionTimestamp)" in conditions(
        webhook(VALIDATING, "preemptions")
    )
    for found in (*MUTATING, *RULING):
        is_known_new = found in creation_only or found is changed_only
        assert is_known_new or "!has(object.metadata.deletionTimestamp)" in conditions(found)


def test_the_resources_that_the_servers_settings_name_exist() -> None:
    secret = manifests.named("Secret", SETTINGS.secret_name)
    assert secret["metadata"]["namespace"] == SETTINGS.namespace
    assert not {"data", "stringData"} & set(secret)


def test_the_guard_reviews_deletions_by_the_policys_schedulers_only() -> None:
    found = webhook(VALIDATING, "preemptions")
    assert [(rule["operations"], rule["resources"]) for rule in found["rules"]] == [
        (["DELETE"], ["pods"])
    ]
    (condition,) = [
        one["expression"] for one in found["matchConditions"] if "userInfo" in one["expression"]
    ]
    (listed,) = re.findall(r"request\.userInfo\.username in \[(.*)\]", condition)
    assert set(re.findall(r"'([^']+)'", listed)) == PolicySettings().schedulers


def test_the_guard_reviews_deletions_of_pods_with_a_preemption_key() -> None:
    read_keys = {
        keys.PREEMPTION_CLASS,
        keys.PREEMPTIBLE,
        keys.SOFT_EVICTION,
        keys.CHECKPOINT,
        keys.CHECKPOINT_HINT,
        keys.CLEANERS_BEFORE,
    }
    assert set(manifests.keys_in(conditions(webhook(VALIDATING, "preemptions")))) == read_keys
    # For a gang that the extender is not called about, it lists every pod.
    assert read_keys == snapshot_builder._GUARDED_LABELS | snapshot_builder._GUARDED_ANNOTATIONS


def test_the_guard_reviews_every_eviction_except_the_operators() -> None:
    found = webhook(VALIDATING, "evictions")
    assert [(rule["operations"], rule["resources"]) for rule in found["rules"]] == [
        (["CREATE"], ["pods/eviction"])
    ]
    operator = f"system:serviceaccount:{SETTINGS.namespace}:{SETTINGS.operator_account}"
    assert conditions(found) == f"request.userInfo.username != '{operator}'"
    assert (
        manifests.named("ServiceAccount", SETTINGS.operator_account)["metadata"]["namespace"]
        == SETTINGS.namespace
    )


def test_the_component_fail_closed_names_every_webhook_that_fails_open() -> None:
    (component,) = manifests.read(
        manifests.MANIFESTS / "components" / "fail-closed" / "kustomization.yaml"
    )
    patched = {}
    for each in component["patches"]:
        patch = yaml.safe_load(each["patch"])
        patched[patch["kind"]] = {
            webhook["name"]: webhook["failurePolicy"] for webhook in patch["webhooks"]
        }
    for kind, webhooks in (
        ("MutatingWebhookConfiguration", MUTATING),
        ("ValidatingWebhookConfiguration", VALIDATING),
    ):
        open_ones = [each["name"] for each in webhooks if each["failurePolicy"] == "Ignore"]
        assert patched[kind] == dict.fromkeys(open_ones, "Fail")

"""The limits of the programs' tokens agree with their roles and with what the programs write."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_certs import bundle
from reprieve_operator.cluster.pods import WRITABLE
from reprieve_operator.gangs.pod_groups import CONDITION
from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config.namespace import UNTOUCHED
from reprieve_policy.kube.conditions import DISRUPTION_TARGET
from reprieve_policy.lifecycle import bare_pod
from reprieve_runtime.client.api import ApiError
from reprieve_testing import manifests
from reprieve_webhooks.guard import secret_path

OPERATOR, WEBHOOKS = "reprieve-operator-limits", "reprieve-webhooks-limits"
OPERATIONS = {"patch": "UPDATE", "update": "UPDATE", "create": "CREATE", "delete": "DELETE"}
OPTIONAL_ROLES = {"reprieve-bare-pods", "reprieve:send-signals"}
UNGRANTED = {
    # Every authenticated account may create it.
    "CREATE selfsubjectaccessreviews.authorization.k8s.io",
}


def spec_of(policy: str) -> Any:
    return manifests.named("ValidatingAdmissionPolicy", policy)["spec"]


def expression_of(policy: str, variable: str) -> str:
    found = {item["name"]: item["expression"] for item in spec_of(policy)["variables"]}
    return str(found[variable])


def roles_of(account: str) -> Iterator[Any]:
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for binding in manifests.of_kind(kind):
            if any(subject["name"] == account for subject in binding["subjects"]):
                yield manifests.named(binding["roleRef"]["kind"], binding["roleRef"]["name"])


def writes_granted_by(role: Any) -> Iterator[str]:
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                plural, slash, subresource = resource.partition("/")
                name = f"{plural}.{group}" if group else plural
                name += f"{slash}{subresource}"
                for verb in rule["verbs"]:
                    if resource == "pods/exec":
                        yield f"CONNECT {name}"
                    elif verb in OPERATIONS and group != "reprieve.dev":
                        yield f"{OPERATIONS[verb]} {name}"


def test_the_operators_limits_name_exactly_the_writes_that_its_roles_grant() -> None:
    roles = [
        *roles_of("reprieve-operator"),
        *(manifests.named("ClusterRole", name) for name in OPTIONAL_ROLES),
    ]
    granted = {write for role in roles for write in writes_granted_by(role)}
    listed = set(re.findall(r"'([A-Z]+ [^']+)':", expression_of(OPERATOR, "fieldsByWrite")))
    assert listed == granted | UNGRANTED


def test_the_webhooks_limits_name_exactly_the_writes_that_their_roles_grant() -> None:
    granted = {write for role in roles_of("reprieve-webhooks") for write in writes_granted_by(role)}
    spec = spec_of(WEBHOOKS)
    texts = [item["expression"] for item in (*spec["variables"], *spec["validations"])]
    listed = {name for text in texts for name in re.findall(r"'([A-Z]{6} [^']+)'", text)}
    assert listed == granted


def test_no_author_of_a_pod_makes_the_operators_writes_expensive_for_the_api_server() -> None:
    """What is compared entry by entry has a limit: 10,000 finalizers would take 8 s."""
    changed = expression_of(OPERATOR, "changed")
    compared = set(re.findall(r"\b\w+ in variables\.(\w+)", changed))
    # The schema bounds how many fields these have.
    compared -= {"spec", "oldSpec", "status", "oldStatus"}
    assert "oldFinalizers" in compared
    assert compared <= set(re.findall(r"variables\.(\w+)", expression_of(OPERATOR, "isTooLong")))
    assert changed.partition("? []")[0].endswith("|| variables.isTooLong ")
    refused = {each["expression"]: each["reason"] for each in spec_of(OPERATOR)["validations"]}
    assert refused["!variables.isTooLong"] == "RequestEntityTooLarge"
    assert ApiError(413, refused["!variables.isTooLong"], "").is_object_too_large


@pytest.mark.parametrize("policy", [OPERATOR, WEBHOOKS])
def test_the_limits_concern_every_write(policy: str) -> None:
    spec = spec_of(policy)
    assert spec["matchConstraints"] == {
        "resourceRules": [
            {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
        ]
    }


@pytest.mark.parametrize("policy", [OPERATOR, WEBHOOKS, "reprieve-marks"])
def test_the_limits_follow_an_account_that_kustomize_renames_and_concern_no_other_user(
    policy: str,
) -> None:
    (condition,) = spec_of(policy)["matchConditions"]
    (pattern,) = re.findall(
        r"^request\.userInfo\.username\.matches\('(.+)'\)$", condition["expression"]
    )
    own, other = "reprieve-webhooks", "reprieve-operator"
    if policy == OPERATOR:
        own, other = other, own
    for name in (own, f"team-{own}", f"{own}-2"):
        for namespace in ("reprieve-system", "team", other):
            assert re.search(pattern, f"system:serviceaccount:{namespace}:{name}")
    for user in (
        f"system:serviceaccount:reprieve-system:{other}",
        f"system:serviceaccount:{own}:{other}",
        f"system:serviceaccount:{own}:default",
        own,
        f"oidc:system:serviceaccount:team:{own}",
    ):
        assert not re.search(pattern, user), user


def test_the_operator_writes_the_keys_of_a_pod_that_a_replacement_does_not_keep() -> None:
    """Both are the keys that Reprieve writes to a pod while it lives."""
    written = set(manifests.keys_in(expression_of(OPERATOR, "podFields")))
    own = {*bare_pod._OWN_LABELS, *bare_pod._OWN_ANNOTATIONS}
    by_others = {
        # The webhooks, also through a ledger; on a replacement only.
        keys.REFUSED_SINCE,
        keys.MIN_MEMBER,
        keys.REQUEUED_FROM,
        keys.PREEMPTED_COUNT,
        keys.FIRST_SUBMITTED_AT,
        keys.RESUME_FROM_CHECKPOINT,
        keys.LAST_CHECKPOINT_TOOK,
    }
    assert written == (own | {keys.LAST_CHECKPOINT_AT, keys.CLEANUP_FINALIZER}) - by_others


def test_limits_and_code_agree_on_names() -> None:
    fields = expression_of(OPERATOR, "fieldsByWrite")
    assert f"spec.schedulingGates[{keys.GANG_GATE}]" in fields
    assert f"status.conditions[{DISRUPTION_TARGET}]" in fields
    assert f"status.conditions[{CONDITION}]" in fields
    assert expression_of(OPERATOR, "sendsASignal").count(f"({checkpoint_plan._SIGNAL})") == 2
    text = str(spec_of(OPERATOR)["validations"])
    assert keys.REQUEUED_FROM in text
    assert f"!= '{UNTOUCHED}'" in text
    assert {"fieldSelector": f"metadata.namespace!={UNTOUCHED}"} == WRITABLE


def test_the_webhooks_limits_and_code_agree_on_the_guards_path_and_the_secrets_keys() -> None:
    text = str(spec_of(WEBHOOKS)["validations"])
    for path in (secret_path.PATH, secret_path.path_of(b"a key")):
        assert re.fullmatch(r"/guard(/[0-9a-f]{32})?", path)
    assert text.count("/guard(/[0-9a-f]{32})?$") == 2
    (listed,) = re.findall(r"\|\| key in \[([^]]*)\]\)\\n", text) or re.findall(
        r"key in \[('ca\.crt'[^]]*)\]", text
    )
    assert tuple(re.findall(r"'([^']+)'", listed.replace("\\", ""))) == bundle.KEYS

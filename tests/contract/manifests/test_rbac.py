"""The rights of each program match its calls: an unused right is as wrong as a missing one."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from reprieve_cli.cluster import installation
from reprieve_cli.cluster.cluster_policy import POLICY_NAME
from reprieve_cli.commands import audit
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.unchecked_claims import POLICY
from reprieve_policy.admission import permissions
from reprieve_policy.kube import controllers
from reprieve_policy.kube.template_kinds import WELL_KNOWN
from reprieve_runtime.serving import metrics_access
from reprieve_testing import manifests
from reprieve_webhooks.settings import Settings

OPERATOR, WEBHOOKS = OperatorSettings(), Settings()


class Right(NamedTuple):
    """One verb on one resource; `name` empty: on all. `namespace` empty: in all."""

    verb: str
    resource: str
    name: str = ""
    namespace: str = ""


def everywhere(resource: str, verbs: str, name: str = "") -> set[Right]:
    return {Right(verb, resource, name) for verb in verbs.split()}


def at_home(resource: str, verbs: str, name: str = "") -> set[Right]:
    return {Right(verb, resource, name, WEBHOOKS.namespace) for verb in verbs.split()}


CALLS = {
    "reprieve-webhooks": {
        # facts: namespace_policies.py, priority_classes.py: watches, reads of what is newer;
        # inheritance.py: ledgers as metadata.
        *everywhere("namespaces", "get list watch"),
        *everywhere("scheduling.k8s.io/priorityclasses", "get list watch"),
        # gate_facts.py reads one when the gang gate asks for the Job of a pod.
        *everywhere("batch/jobs", "get list watch"),
        *everywhere("apps/statefulsets", "get list watch"),
        *everywhere("apps/replicasets", "get list watch"),
        # gang_statements.py reads one when a pod of it is created.
        *everywhere("jobset.x-k8s.io/jobsets", "get list watch"),
        *everywhere("leaderworkerset.x-k8s.io/leaderworkersets", "get list watch"),
        *everywhere("scheduling.x-k8s.io/podgroups", "get"),
        *everywhere("scheduling.sigs.k8s.io/podgroups", "get"),
        *at_home("coordination.k8s.io/leases", "list watch", WEBHOOKS.operator_lease),
        # gate_facts.py
        *everywhere("scheduling.x-k8s.io/podgroups", "get"),
        # facts: quotas.py, access_review.py; metrics_access.py of the runtime
        *everywhere("scheduling.sigs.k8s.io/elasticquotas", "list watch"),
        *everywhere("authorization.k8s.io/subjectaccessreviews", "create"),
        *at_home("configmaps", "list watch", WEBHOOKS.policy_config_map),
        # facts/cluster_facts.py, for a new PodGroup
        *everywhere("scheduling.k8s.io/workloads", "get"),
        # facts/gang_members.py
        *everywhere("pods", "get list"),
        # guard: nominated_pods.py, reader.py
        *everywhere("pods", "watch patch"),
        *everywhere("nodes", "get"),
        *everywhere("scheduling.k8s.io/podgroups", "get"),
        *everywhere("policy/poddisruptionbudgets", "list"),
        *everywhere("reprieve.dev/softevictions", "mark"),
        # checkpoints: pod_tokens.py; recorder.py reads and patches pods.
        # metrics_access.py of the runtime.
        *everywhere("authentication.k8s.io/tokenreviews", "create"),
        # reprieve_certs: the CA and its injection.
        *at_home("secrets", "get patch", WEBHOOKS.secret_name),
        *everywhere(
            "admissionregistration.k8s.io/mutatingwebhookconfigurations",
            "get list watch patch",
            WEBHOOKS.webhook_configuration,
        ),
        *everywhere(
            "admissionregistration.k8s.io/validatingwebhookconfigurations",
            "get list watch patch",
            WEBHOOKS.webhook_configuration,
        ),
    },
    "reprieve-operator": {
        # victims/watch.py, resync.py, cluster/writes.py
        *everywhere("pods", "get list watch patch delete"),
        *everywhere("pods/status", "patch"),
        *everywhere("pods/eviction", "create"),
        *everywhere("reprieve.dev/softevictions", "report"),
        # cluster/policies.py
        *everywhere("namespaces", "list watch"),
        # replacements: ledger_writer.py, owner_jobs.py, job_resumer.py
        *everywhere("batch/jobs", "get list patch"),
        *everywhere("apps/statefulsets", "get patch"),
        *everywhere("apps/replicasets", "get patch"),
        *everywhere("jobset.x-k8s.io/jobsets", "get patch"),
        *everywhere("leaderworkerset.x-k8s.io/leaderworkersets", "get patch"),
        # gangs: divergence.py, pod_groups.py; victims/gang_eviction/registry.py; reclaim/reader.py
        *everywhere("scheduling.k8s.io/priorityclasses", "list"),
        *everywhere("scheduling.k8s.io/podgroups", "get list"),
        *everywhere("scheduling.k8s.io/podgroups/status", "patch"),
        # gangs: room_watch.py, coscheduling_groups.py
        *everywhere("nodes", "list watch"),
        *everywhere("scheduling.k8s.io/priorityclasses", "watch"),
        *everywhere("scheduling.x-k8s.io/podgroups", "list watch"),
        # metrics_access.py of the runtime
        *everywhere("authentication.k8s.io/tokenreviews", "create"),
        *everywhere("authorization.k8s.io/subjectaccessreviews", "create"),
        # unchecked_claims.py
        *everywhere(
            "admissionregistration.k8s.io/mutatingwebhookconfigurations",
            "get",
            WEBHOOKS.webhook_configuration,
        ),
        *everywhere("admissionregistration.k8s.io/validatingadmissionpolicies", "get", POLICY),
        # checkpointing/reserved_addresses.py
        *everywhere("networking.k8s.io/servicecidrs", "list watch"),
        # cluster/event_recorder.py
        *everywhere("events.k8s.io/events", "create"),
        *at_home("configmaps", "list watch", "reprieve-policy"),
        # cluster/leader_election.py
        *at_home("coordination.k8s.io/leases", "create"),
        *at_home("coordination.k8s.io/leases", "get update", OPERATOR.lease_name),
        # uninstall.py
        *at_home("apps/deployments", "get", OPERATOR.deployment_name),
        # replacements/bare_pod_store.py
        *at_home("apps/controllerrevisions", "create get list delete"),
    },
}


def rights_of(account: str) -> set[Right]:
    return {right for binding in _bindings_of(account) for right in _rights_in(binding)}


def _bindings_of(account: str) -> Iterator[Any]:
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for binding in manifests.of_kind(kind):
            if any(subject["name"] == account for subject in binding["subjects"]):
                yield binding


def _rights_in(binding: Any) -> Iterator[Right]:
    role = manifests.named(binding["roleRef"]["kind"], binding["roleRef"]["name"])
    namespace = binding["metadata"].get("namespace", "")
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(
                            verb, f"{group}/{resource}" if group else resource, name, namespace
                        )


def test_the_webhooks_have_exactly_the_rights_for_their_calls() -> None:
    assert rights_of("reprieve-webhooks") == CALLS["reprieve-webhooks"]


def test_the_operator_has_exactly_the_rights_for_its_calls() -> None:
    assert rights_of("reprieve-operator") == CALLS["reprieve-operator"]


def test_nothing_is_granted_by_a_wildcard() -> None:
    for role in (*manifests.of_kind("ClusterRole"), *manifests.of_kind("Role")):
        assert "*" not in str(role["rules"]), role["metadata"]["name"]


def test_no_role_allows_listing_or_creating_secrets() -> None:
    granted = {
        right for account in CALLS for right in rights_of(account) if "secrets" in right.resource
    }
    assert granted == at_home("secrets", "get patch", WEBHOOKS.secret_name)


def controllers_binding() -> manifests.Object:
    return manifests.named("ClusterRoleBinding", "reprieve:controllers-claim-sensitive")


def test_the_roles_for_users_have_no_binding() -> None:
    bindings = (
        found
        for found in manifests.of_kind("ClusterRoleBinding")
        if found is not controllers_binding()
    )
    bound = {binding["roleRef"]["name"] for binding in bindings}
    assert bound == {*CALLS, "reprieve-guard"}
    for_users = {role["metadata"]["name"] for role in manifests.of_kind("ClusterRole")} - bound
    needed = {
        "reprieve:cancel-soft-evictions",
        "reprieve:edit-policies",
        "reprieve:claim-non-preemptible",
    }
    assert for_users == needed | {
        "reprieve:audit",
        "reprieve:claim-sensitive",
        "reprieve:metrics-reader",
        "reprieve:read-nodes",
        "reprieve:reclaim-nodes",
        "reprieve:send-signals",
        "reprieve:status",
        "reprieve:ui-reader",
        "reprieve-bare-pods",
    }


def test_the_role_for_signals_grants_nothing_else_and_in_one_namespace() -> None:
    (binding,) = manifests.read(manifests.EXAMPLES / "signal" / "rolebinding.yaml")
    operator = {
        "kind": "ServiceAccount",
        "name": "reprieve-operator",
        "namespace": OPERATOR.namespace,
    }
    assert (binding["kind"], binding["subjects"]) == ("RoleBinding", [operator])
    assert {right[:2] for right in _rights_in(binding)} == {
        ("get", "pods/exec"),
        ("create", "pods/exec"),
    }


def test_a_workload_that_answers_by_annotation_may_only_patch_pods_of_its_namespace() -> None:
    account, role, binding = manifests.read(manifests.EXAMPLES / "annotation" / "rbac.yaml")
    assert [found["kind"] for found in (account, role, binding)] == [
        "ServiceAccount",
        "Role",
        "RoleBinding",
    ]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert (subject["kind"], subject["name"]) == ("ServiceAccount", account["metadata"]["name"])


def test_the_role_for_lost_nodes_grants_only_to_read_a_node() -> None:
    (binding,) = manifests.read(manifests.EXAMPLES / "lost-nodes.yaml")
    operator = {
        "kind": "ServiceAccount",
        "name": "reprieve-operator",
        "namespace": OPERATOR.namespace,
    }
    assert (binding["kind"], binding["subjects"]) == ("ClusterRoleBinding", [operator])
    assert {right[:2] for right in _rights_in(binding)} == {("get", "nodes")}


def test_the_role_for_lent_nodes_grants_only_the_reads_of_a_reclaim() -> None:
    (binding,) = manifests.read(manifests.EXAMPLES / "lent-nodes.yaml")
    operator = {
        "kind": "ServiceAccount",
        "name": "reprieve-operator",
        "namespace": OPERATOR.namespace,
    }
    assert (binding["kind"], binding["subjects"]) == ("ClusterRoleBinding", [operator])
    # reclaim: lent_nodes.py, reader.py
    assert set(_rights_in(binding)) == {
        *everywhere("nodes", "list watch"),
        *everywhere("policy/poddisruptionbudgets", "list"),
        *everywhere("scheduling.sigs.k8s.io/elasticquotas", "list"),
    }


def test_controllers_may_claim_the_classes_in_checked_templates_and_nothing_else() -> None:
    binding = controllers_binding()
    assert binding["roleRef"]["name"] == "reprieve:claim-sensitive"
    assert {_user_of(subject) for subject in binding["subjects"]} == controllers.USERS
    assert set(_rights_in(binding)) == everywhere(
        "reprieve.dev/preemptionclasses", "claim-sensitive"
    )


def _user_of(subject: Any) -> str:
    if subject["kind"] == "User":
        return str(subject["name"])
    return f"system:serviceaccount:{subject['namespace']}:{subject['name']}"


SIMULATED = {"nodes", "policy/poddisruptionbudgets"}
"""What `simulate` and `reclaim` read beside the kinds that have rules."""


def test_the_audit_role_may_read_every_checked_kind_and_write_nothing() -> None:
    role = {"roleRef": {"kind": "ClusterRole", "name": "reprieve:audit"}, "metadata": {}}
    checked_kinds = {
        f"{row.group}/{row.resource}" if row.group else row.resource
        for row in audit.KINDS_WITH_RULES
    }
    checked_kinds |= {f"{row.group}/{row.kind.lower()}s" for row in WELL_KNOWN.rows}
    named = {"configmaps": WEBHOOKS.policy_config_map}
    assert set(_rights_in(role)) == {
        right
        for name in checked_kinds | SIMULATED
        for right in everywhere(name, "get list", named.get(name, ""))
    }


def test_subjects_are_the_service_accounts_of_the_base() -> None:
    accounts = {
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in manifests.of_kind("ServiceAccount")
    }
    for binding in (*manifests.of_kind("ClusterRoleBinding"), *manifests.of_kind("RoleBinding")):
        if binding is controllers_binding():
            continue
        assert {
            (subject["namespace"], subject["name"]) for subject in binding["subjects"]
        } <= accounts


def test_the_rights_that_rules_require_can_be_granted() -> None:
    role = manifests.named("ClusterRole", "reprieve:claim-non-preemptible")
    (rule,) = role["rules"]
    right = permissions.CLAIM_NON_PREEMPTIBLE
    assert rule == {
        "apiGroups": ["reprieve.dev"],
        "resources": [right.resource],
        "verbs": [right.verb],
    }


def test_the_role_for_metrics_grants_what_the_programs_ask_for() -> None:
    role = manifests.named("ClusterRole", "reprieve:metrics-reader")
    assert role["rules"] == [{"nonResourceURLs": [metrics_access.PATH], "verbs": ["get"]}]
    assert role["metadata"]["name"] in metrics_access.NO_RIGHT.message


def test_the_role_for_status_allows_exactly_what_the_command_reads() -> None:
    binding = {"metadata": {}, "roleRef": {"kind": "ClusterRole", "name": "reprieve:status"}}
    name = WEBHOOKS.webhook_configuration
    assert set(_rights_in(binding)) == {
        *everywhere("admissionregistration.k8s.io/mutatingwebhookconfigurations", "get", name),
        *everywhere("admissionregistration.k8s.io/validatingwebhookconfigurations", "get", name),
        *everywhere("coordination.k8s.io/leases", "get", installation.LEASE),
        *everywhere("apps/deployments", "get", "reprieve-operator"),
        *everywhere("apps/deployments", "get", installation.WEBHOOKS),
        *everywhere("configmaps", "get", POLICY_NAME),
        *everywhere("pods", "list"),
    }


def test_the_command_line_knows_the_names_of_the_base() -> None:
    assert OPERATOR.lease_name == installation.LEASE
    assert WEBHOOKS.webhook_configuration == installation.WEBHOOKS
    assert OPERATOR.namespace == installation.NAMESPACE
    for name in (installation.LEASE, installation.WEBHOOKS):
        manifests.named("Deployment", name)

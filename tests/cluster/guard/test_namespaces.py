"""A Namespace's policy belongs to the admin: users who may edit the Namespace may not edit it."""

import json
from collections.abc import Iterator

import pytest

from realcluster.install import BASE
from reprieve_policy import keys
from reprieve_testing.cluster.handle import ClusterHandle
from reprieve_testing.cluster.impersonated_users import (
    RBAC,
    ImpersonatedUser,
    cluster_binding,
    rule,
    until_answered,
)

pytestmark = pytest.mark.cluster

NAMESPACE = "guard-namespaces"
POLICY = {
    keys.WORKLOAD_TYPE: ("annotations", "sensitive"),
    keys.ALLOWED_PREEMPTION_CLASSES: ("annotations", "0-10"),
    keys.DEFAULT_PREEMPTION_CLASS: ("annotations", "6"),
    keys.ENFORCEMENT: ("annotations", "off"),
}
NEEDS_EDIT = 'Forbidden: changing it needs verb "edit" on policies.reprieve.dev, cluster-wide'


@pytest.fixture(scope="module")
def namespace_editor(cluster: ClusterHandle) -> Iterator[ImpersonatedUser]:
    """A user who may do everything to Namespaces, except change their policy."""
    bound = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "test:namespaces"},
    }
    kubectl = cluster.kubectl
    kubectl.read("apply", "-f", BASE / "users-rbac.yaml")
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {**bound, "rules": [rule("namespaces namespaces/status namespaces/finalize", "*")]},
        cluster_binding("namespace-owner", "test:namespaces"),
        cluster_binding("policy-editor", "test:namespaces"),
        {
            **cluster_binding("policy-editor", "reprieve:edit-policies"),
            "metadata": {"name": "test:policy-editor-too"},
        },
    )
    owner = ImpersonatedUser(kubectl, "namespace-owner", NAMESPACE)
    editor = ImpersonatedUser(kubectl, "policy-editor", NAMESPACE)
    annotating = (
        "annotate",
        "namespace",
        NAMESPACE,
        "--dry-run=server",
        f"{keys.ENFORCEMENT}=warn",
    )
    until_answered(NEEDS_EDIT, lambda: owner.run(*annotating))
    until_answered("annotated", lambda: editor.run(*annotating))
    yield owner
    kubectl.run("delete", "namespace", NAMESPACE, "--wait=false")
    kubectl.run("delete", "clusterrole", "test:namespaces")
    kubectl.run(
        "delete",
        "clusterrolebinding",
        "test:namespace-owner",
        "test:policy-editor",
        "test:policy-editor-too",
    )


@pytest.mark.parametrize("way", ["", "status"])
@pytest.mark.parametrize("key", POLICY)
def test_a_namespace_editor_may_not_change_the_policy(
    namespace_editor: ImpersonatedUser, key: str, way: str
) -> None:
    part, value = POLICY[key]
    through = (f"--subresource={way}",) if way else ()
    patch = json.dumps({"metadata": {part: {key: value}}})
    done = namespace_editor.run(
        "patch", "namespace", NAMESPACE, *through, "--type=merge", "-p", patch
    )
    assert done.status != 0
    assert f"metadata.{part}[{key}]: {NEEDS_EDIT}" in done.output


def test_a_namespace_editor_may_not_switch_enforcement_off_by_label(
    namespace_editor: ImpersonatedUser,
) -> None:
    done = namespace_editor.run("label", "namespace", NAMESPACE, f"{keys.ENFORCEMENT}=off")
    assert done.status != 0
    assert f"metadata.labels[{keys.ENFORCEMENT}]: {NEEDS_EDIT}" in done.output


def test_a_namespace_editor_may_not_create_a_namespace_with_a_policy(
    namespace_editor: ImpersonatedUser,
) -> None:
    metadata = {"name": "guard-created", "annotations": {keys.ALLOWED_PREEMPTION_CLASSES: "0-10"}}
    created = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    done = namespace_editor.run("create", "-f", "-", stdin=created)
    assert done.status != 0
    assert NEEDS_EDIT in done.output


def test_a_namespace_editor_may_change_every_other_field(
    namespace_editor: ImpersonatedUser,
) -> None:
    done = namespace_editor.run("label", "namespace", NAMESPACE, "team=research", "--overwrite")
    assert done.status == 0, done.output


def test_a_policy_admin_may_change_the_policy_and_other_edits_keep_it(
    cluster: ClusterHandle, namespace_editor: ImpersonatedUser
) -> None:
    editor = ImpersonatedUser(cluster.kubectl, "policy-editor", NAMESPACE)
    done = editor.run("annotate", "namespace", NAMESPACE, f"{keys.DEFAULT_PREEMPTION_CLASS}=2")
    assert done.status == 0, done.output
    assert (
        NEEDS_EDIT
        in namespace_editor.run(
            "annotate", "namespace", NAMESPACE, f"{keys.DEFAULT_PREEMPTION_CLASS}-"
        ).output
    )
    assert (
        namespace_editor.run(
            "label", "namespace", NAMESPACE, "team=simulation", "--overwrite"
        ).status
        == 0
    )

"""A stolen token of the webhooks' account changes no more than the program does."""

import json
from collections.abc import Iterator

import pytest

from realcluster.install import BASE
from reprieve_policy import keys
from reprieve_testing.cluster.handle import ClusterHandle
from reprieve_testing.cluster.program_accounts import (
    HOME,
    KUBE_SYSTEM,
    TEAM,
    TEMPLATE,
    Account,
    Object,
    a_configuration,
    a_controller,
    a_pod,
    metadata,
    refusal_of,
    stolen_account,
)

pytestmark = pytest.mark.cluster

CONFIGURATION, SECRET = "reprieve-webhooks", "reprieve-webhook-certs"
VALIDATING, MUTATING = "validatingwebhookconfiguration", "mutatingwebhookconfiguration"
GUARD = "/guard/0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def thief(cluster: ClusterHandle) -> Iterator[Account]:
    """The webhooks' account, beside objects of theirs and of others."""
    files = (
        word for name in ("webhooks-rbac.yaml", "webhooks.yaml") for word in ("-f", BASE / name)
    )
    cluster.kubectl.read("apply", *files)
    cluster.kubectl.read("delete", "deployment,service,pdb", "-n", HOME, "--all", "--wait=false")
    with stolen_account(
        cluster,
        "reprieve-webhooks",
        a_pod("system", KUBE_SYSTEM),
        a_controller("StatefulSet", "set"),
        a_configuration("ValidatingWebhookConfiguration", CONFIGURATION, "/guard"),
        a_configuration("MutatingWebhookConfiguration", CONFIGURATION, "/mutate"),
        a_configuration("ValidatingWebhookConfiguration", "others", "/guard"),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password", "namespace": HOME}},
    ) as account:
        yield account


CONFIGURATION_ATTACKS = {
    "the rules": (VALIDATING, "/webhooks/0/rules/0/resources", ["secrets"]),
    "the service": (VALIDATING, "/webhooks/0/clientConfig/service/name", "thief"),
    "a URL": (VALIDATING, "/webhooks/0/clientConfig", {"url": "https://thief.example/guard"}),
    "the failure policy": (VALIDATING, "/webhooks/0/failurePolicy", "Fail"),
    "the selector": (VALIDATING, "/webhooks/0/objectSelector", {}),
    "another path than the guard's": (VALIDATING, "/webhooks/0/clientConfig/service/path", "/x"),
    "the path of another webhook": (MUTATING, "/webhooks/0/clientConfig/service/path", GUARD),
    "no webhook": (VALIDATING, "/webhooks", []),
    "a label": (MUTATING, "/metadata/labels", {"a": "b"}),
}


def patch_json(account: Account, kind: str, name: str, path: str, value: object) -> str:
    patch = json.dumps([{"op": "add", "path": path, "value": value}])
    return account.kubectl.run("patch", kind, name, "--type=json", "-p", patch).output


@pytest.mark.parametrize("attack", CONFIGURATION_ATTACKS.values(), ids=CONFIGURATION_ATTACKS)
def test_the_webhooks_token_changes_nothing_else_of_their_configurations(
    thief: Account, attack: tuple[str, str, object]
) -> None:
    kind, path, value = attack
    output = patch_json(thief, kind, CONFIGURATION, path, value)
    assert "Forbidden: the webhooks change only" in output, output


def test_the_webhooks_may_write_their_ca_and_the_path_of_the_guard(
    thief: Account, cluster: ClusterHandle
) -> None:
    path = "/webhooks/0/clientConfig/service/path"
    # An API server accepts only a certificate.
    ca = json.loads(cluster.cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    bundle = ca["certificate-authority-data"]
    for kind, where, value in (
        (VALIDATING, path, GUARD),
        (VALIDATING, path, GUARD.replace("0", "f")),
        (VALIDATING, "/webhooks/0/clientConfig/caBundle", bundle),
        (MUTATING, "/webhooks/0/clientConfig/caBundle", bundle),
    ):
        output = patch_json(thief, kind, CONFIGURATION, where, value)
        assert "patched" in output, output
    assert (
        thief.refusal(
            "secret", SECRET, {"data": {"ca.crt": "AA==", "ca.key": "AA=="}}, namespace=HOME
        )
        == ""
    )


OTHERS = {
    "another configuration": (VALIDATING, "others", metadata("labels", "a", "b"), ""),
    "another Secret": ("secret", "password", {"data": {"ca.crt": "AA=="}}, HOME),
    "another key of the Secret": ("secret", SECRET, {"data": {"other": "AA=="}}, HOME),
    "a StatefulSet": ("statefulset", "set", TEMPLATE, TEAM),
    "a pod of kube-system": (
        "pod", "system", metadata("annotations", keys.REFUSED_SINCE, "x"), KUBE_SYSTEM),
    "a policy of the base": (
        "clusterrole", "reprieve-webhooks", {"rules": []}, ""),
}  # fmt: skip


@pytest.mark.parametrize("attack", OTHERS.values(), ids=OTHERS)
def test_the_webhooks_token_changes_no_other_object(
    thief: Account, attack: tuple[str, str, Object, str]
) -> None:
    kind, name, patch, namespace = attack
    reason = thief.refusal(kind, name, patch, namespace=namespace)
    assert "Forbidden: the webhooks" in reason, reason


def test_the_webhooks_token_reads_no_token(thief: Account) -> None:
    reason = refusal_of(lambda: thief.client.create_token("reprieve-operator", HOME))
    assert "Forbidden: the webhooks do not do this: CREATE serviceaccounts/token" in reason

"""The programs' own accounts, as a thief of their tokens has them.

The tokens of the ServiceAccounts, with their roles and the policies of the base. To show that the
policies refuse and not RBAC, each account is a cluster administrator as well, and a refusal must be
in the policies' words.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from realcluster.client.kubectl import Kubectl
from realcluster.client.objects import Client, RefusedError

from .handle import OPERATOR_NAMESPACE, ClusterHandle, wait_for
from .impersonated_users import RBAC

Object = dict[str, Any]
TEAM, HOME, KUBE_SYSTEM = "program-limits", OPERATOR_NAMESPACE, "kube-system"
CONTAINER = {"name": "main", "image": "none"}
TEMPLATE: Object = {"spec": {"template": {"spec": {"containers": [CONTAINER | {"image": "evil"}]}}}}
_DENIED = "denied request: "


@dataclass(frozen=True)
class Account:
    """A client with one of our programs' own tokens."""

    client: Client
    kubectl: Kubectl

    def refusal(self, kind: str, name: str, patch: Object, **where: str) -> str:
        """Patch an object; return why the policy refused that, empty if it was allowed."""
        return refusal_of(lambda: self.client.patch(kind, name, patch, **where))

    def creation_refusal(self, *documents: Object) -> str:
        """Create objects; return why a policy refused that, empty if it was allowed."""
        return refusal_of(lambda: self.client.create(*documents))


def refusal_of(call: Callable[[], None]) -> str:
    """Return why a policy refused the call, empty if it was allowed."""
    try:
        call()
    except RefusedError as refused:
        if refused.status != HTTPStatus.FORBIDDEN or _DENIED not in str(refused):
            raise
        return str(refused).partition(_DENIED)[2]
    return ""


def metadata(part: str, key: str, value: object) -> Object:
    return {"metadata": {part: {key: value}}}


def a_pod(name: str, namespace: str = TEAM, spec: Object | None = None, **other: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **other},
        "spec": {
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            "containers": [CONTAINER],
            **(spec or {}),
        },
    }


def a_controller(kind: str, name: str, namespace: str = TEAM) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def a_job() -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": TEAM},
        "spec": {"parallelism": 0, "template": template},
    }


def a_configuration(kind: str, name: str, path: str) -> Object:
    service = {"namespace": HOME, "name": "reprieve-webhooks", "path": path}
    webhook = {
        "name": "preemptions.reprieve.dev",
        "clientConfig": {"service": service},
        "objectSelector": {"matchLabels": {"reprieve.dev/test": "matches-no-object"}},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
        ],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [webhook],
    }


def admin_binding(account: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"test:{account}-is-admin"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": HOME}],
    }


@contextmanager
def stolen_account(cluster: ClusterHandle, name: str, *documents: Object) -> Iterator[Account]:
    """Return an account of our programs that may do everything, beside objects to attack."""
    # It stays: its end would take longer than all of the tests.
    cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    made = (*documents, admin_binding(name))
    for document in made:
        cluster.client.create(document)
    kubeconfig = cluster.account_kubeconfig(name)
    account = Account(Client(kubeconfig), Kubectl(cluster.kubectl.program, kubeconfig))
    wait_for("the limits are in force", lambda: _is_limited(account))
    try:
        yield account
    finally:
        for document in reversed(made):
            naming = document["metadata"]
            cluster.client.delete(
                document["kind"], naming["name"], namespace=naming.get("namespace", "")
            )


def _is_limited(account: Account) -> bool:
    """True once the policy and the binding are in force, a moment after they were created."""
    naming = {"generateName": "probe-", "namespace": TEAM}
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": naming}
    try:
        return bool(account.creation_refusal(probe))
    except RefusedError:
        return False

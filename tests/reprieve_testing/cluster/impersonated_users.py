"""Users with rights, for tests of authorization.

Each user is impersonated, so that the API server decides as for a real one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from realcluster.client.kubectl import Done, Kubectl

from .handle import wait_for

Object = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class ImpersonatedUser:
    """An authenticated user with a Role's rights in one namespace."""

    kubectl: Kubectl
    name: str
    namespace: str

    def run(self, *words: object, stdin: str | None = None) -> Done:
        """Run kubectl as this user."""
        identity = (f"--as={self.name}", "--as-group=system:authenticated")
        return self.kubectl.run("-n", self.namespace, *identity, *words, stdin=stdin)

    def patch(self, name: str, patch: str, subresource: str = "") -> Done:
        """Merge `patch` into a pod, through a subresource if one is named."""
        through = (f"--subresource={subresource}",) if subresource else ()
        return self.run("patch", "pod", name, *through, "--type=merge", "-p", patch)


def role(name: str, namespace: str, rules: Sequence[Object]) -> tuple[Object, ...]:
    """Return a Role of these rules, bound to the user `name`."""
    metadata = {"name": name, "namespace": namespace}
    return (
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": name}],
        },
    )


def cluster_binding(name: str, cluster_role: str) -> Object:
    """Return the binding of a ClusterRole to the user `name`, for the whole cluster."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"test:{name}"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": cluster_role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": name}],
    }


def cluster_role(name: str, rules: Sequence[Object]) -> tuple[Object, ...]:
    """Return a ClusterRole of these rules, bound to the user `name` for the whole cluster."""
    metadata = {"name": f"test:{name}"}
    kind = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole"}
    return (
        {**kind, "metadata": metadata, "rules": list(rules)},
        cluster_binding(name, metadata["name"]),
    )


def rule(resources: str, verbs: str, group: str = "") -> Object:
    """Return one rule; `resources` and `verbs` are separated by spaces."""
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


def until_answered(words: str, ask: Callable[[], Done]) -> None:
    """Repeat a request until its answer contains `words`.

    Roles and policies take effect a moment after they are created.
    """
    wait_for(f"an answer with {words!r}", lambda: words in ask().output)

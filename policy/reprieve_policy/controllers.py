"""Kubernetes' own controllers: they make objects from templates, and say nothing of themselves."""

from .objects import Resource, controller_of

_NAMES = ("replicaset", "replication", "statefulset", "daemon-set", "job", "cronjob", "deployment")
_USERS = frozenset(f"system:serviceaccount:kube-system:{name}-controller" for name in _NAMES) | {
    # All of them, where kube-controller-manager runs without --use-service-account-credentials.
    "system:kube-controller-manager",
}


def is_made_from_template(resource: Resource, user: str) -> bool:
    """Return whether `user` is a controller of Kubernetes' own that makes `resource` from the template of its owner.

    Whoever may write as one of them may do anything; nobody else can look like one.
    """
    return user in _USERS and controller_of(resource.metadata) is not None

"""Kubernetes' own controllers: they make objects from templates, and say nothing of themselves."""

from collections.abc import Iterable

from .objects import Resource, controller_of

_NAMES = ("replicaset", "replication", "statefulset", "daemon-set", "job", "cronjob", "deployment")
_ALL = "system:kube-controller-manager"
"""All of them, where kube-controller-manager runs without --use-service-account-credentials."""


def _users(names: Iterable[str]) -> tuple[str, ...]:
    return (*(f"system:serviceaccount:kube-system:{name}-controller" for name in names), _ALL)


USERS = frozenset(_users(_NAMES))
OF_DEPLOYMENTS = _users(["deployment"])
"""Who makes a Deployment's ReplicaSets. An owner reference shows nothing: whoever may write a ReplicaSet may write one."""


def is_made_from_template(resource: Resource, user: str) -> bool:
    """Return whether `user` is a controller of Kubernetes' own that makes `resource` from the template of its owner.

    Whoever may write as one of them may do anything; nobody else can look like one.
    """
    return user in USERS and controller_of(resource.metadata) is not None

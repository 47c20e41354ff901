"""Kubernetes' own controllers, which create objects from templates.

An object from one of them repeats a template that admission has already checked.
"""

from collections.abc import Iterable

from .objects import Resource, controller_of

_NAMES = ("replicaset", "replication", "statefulset", "daemon-set", "job", "cronjob", "deployment")
_ALL = "system:kube-controller-manager"
"""The user of all controllers if kube-controller-manager runs without
--use-service-account-credentials."""


def _users(names: Iterable[str]) -> tuple[str, ...]:
    return (*(f"system:serviceaccount:kube-system:{name}-controller" for name in names), _ALL)


USERS = frozenset(_users(_NAMES))
OF_DEPLOYMENTS = _users(["deployment"])
"""The users that create a Deployment's ReplicaSets. An owner reference proves nothing: every user
who may write a ReplicaSet may write one."""


def is_made_from_template(resource: Resource, user: str) -> bool:
    """Return whether `user` is a Kubernetes controller that makes `resource` from a template.

    A user name is proof: no other user can have one of these names, and a user with the rights of
    these controllers may do anything anyway.
    """
    return user in USERS and controller_of(resource.metadata) is not None

"""Permissions that an object needs beyond the right to write it: verbs on virtual resources.

No API serves these resources of `reprieve.dev`; RBAC grants verbs on them. They are checked without
a namespace, so that only a ClusterRoleBinding grants them. The webhook asks the API server for them
(SubjectAccessReview) and passes the answer to the rules as `Facts.missing_permissions`. What the
guard checks inside the API server is not checked a second time.
"""

from collections.abc import Callable, Iterator

from reprieve_policy.config.namespace import OFF
from reprieve_policy.config.preemption_class import HIGHEST
from reprieve_policy.facts import Facts, Permission
from reprieve_policy.keys import PREEMPTIBLE, PREEMPTION_CLASS
from reprieve_policy.kube.objects import PodView, Resource, TemplatedResource, pod_views

CLAIM_NON_PREEMPTIBLE = Permission("claim", "nonpreemptiblepods")
"""For `preemptible: "false"` without a quota that bounds the amount."""

CLAIM_SENSITIVE = Permission("claim-sensitive", "preemptionclasses")
"""For class 10, if its Namespace does not give it. For pods and built-in kinds the guard checks."""

_NONE: frozenset[Permission] = frozenset()


def required_permissions(
    resource: Resource, old: Resource | None, facts: Facts
) -> frozenset[Permission]:
    """Return the permissions that this object needs now; for an update, only for its new claims."""
    if resource.metadata.deletionTimestamp is not None or facts.namespace.enforcement == OFF:
        return _NONE
    found = [
        permission
        for permission, claimed in _CLAIMS_BY_PERMISSION.items()
        if any(claimed(resource, old, facts))
    ]
    return frozenset(found) if found else _NONE


def non_preemptible_claims(
    resource: Resource, old: Resource | None, facts: Facts
) -> Iterator[PodView]:
    """Yield the pod or the templates that newly claim to be non-preemptible without a quota.

    A quota without a `min` guarantees nothing to non-preemptible pods, and so bounds nothing.
    """
    if facts.settings.default_preemptible is False:
        # The admin made that the default: the label changes nothing.
        return

    def is_claimed(view: PodView, of: Resource) -> bool:
        if view.labels.get(PREEMPTIBLE) != "false":
            return False
        quota = facts.quotas.find(view.labels, of.metadata.namespace or "")
        return quota is None or not quota.min_amounts

    yield from _new_claims(is_claimed, resource, old)


def sensitive_claims(resource: Resource, old: Resource | None, facts: Facts) -> Iterator[PodView]:
    """Yield the templates of a `templateKinds` kind that newly claim class 10.

    The guard does not know their paths. Without this, a user with the right to write such an object
    would get the class through its controller's right to create the pods.
    """
    policy = facts.namespace
    if (
        isinstance(resource, TemplatedResource)
        and not policy.is_sensitive
        and policy.default_class != HIGHEST
    ):
        yield from _new_claims(
            lambda view, _: view.labels.get(PREEMPTION_CLASS) == str(HIGHEST), resource, old
        )


def _new_claims(
    is_claimed: Callable[[PodView, Resource], bool], resource: Resource, old: Resource | None
) -> Iterator[PodView]:
    """Yield the pod or the templates with a new claim."""
    before = (
        {view.prefix for view in pod_views(old) if is_claimed(view, old)} if old else set[str]()
    )
    yield from (
        view
        for view in pod_views(resource)
        if is_claimed(view, resource) and view.prefix not in before
    )


_CLAIMS_BY_PERMISSION = {
    CLAIM_NON_PREEMPTIBLE: non_preemptible_claims,
    CLAIM_SENSITIVE: sensitive_claims,
}

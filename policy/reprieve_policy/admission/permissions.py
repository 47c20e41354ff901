"""Permissions that an object needs beyond the right to write it: verbs on virtual resources.

No API serves these resources of `reprieve.dev`; RBAC grants verbs on them. They are checked without
a namespace, so that only a ClusterRoleBinding grants them. The webhook asks the API server for them
(SubjectAccessReview) and passes the answer to the rules as `Facts.missing_permissions`. What the
guard checks inside the API server is not checked a second time.
"""

from collections.abc import Callable, Iterator

from reprieve_policy.admission import quota_requests
from reprieve_policy.config.namespace import OFF
from reprieve_policy.config.preemption_class import HIGHEST
from reprieve_policy.facts import Facts, Permission
from reprieve_policy.keys import PREEMPTIBLE, PREEMPTION_CLASS
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.limits import quota_admission
from reprieve_policy.kube.limits.quota import Quota, QuotaKey
from reprieve_policy.kube.limits.quota_admission import MIN
from reprieve_policy.kube.objects import (
    PodView,
    Resource,
    TemplatedResource,
    is_being_deleted_unchanged,
    pod_views,
)

CLAIM_NON_PREEMPTIBLE = Permission("claim", "nonpreemptiblepods")
"""For `preemptible: "false"` beyond what the `min` of the namespace's quota bounds."""

CLAIM_SENSITIVE = Permission("claim-sensitive", "preemptionclasses")
"""For class 10, if its Namespace does not give it. For pods and built-in kinds the guard checks."""

_NONE: frozenset[Permission] = frozenset()


def required_permissions(
    resource: Resource, old: Resource | None, facts: Facts
) -> frozenset[Permission]:
    """Return the permissions that this object needs now; for an update, only for its new claims."""
    if facts.namespace.enforcement == OFF or is_being_deleted_unchanged(resource, old):
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
    """Yield the pod or the templates that newly claim to be non-preemptible beyond a quota's `min`.

    That is: no `min` bounds what they request, or it has no room for what they request newly.
    """
    claiming = [view for view in pod_views(resource) if _is_non_preemptible(view)]
    if not claiming or facts.settings.default_preemptible is False:
        # If the admin made that the default, the label changes nothing.
        return

    def is_unbounded(view: PodView, of: Resource) -> bool:
        return _is_non_preemptible(view) and not _is_bounded(view, of, facts)

    unbounded = {view.prefix for view in _new_claims(is_unbounded, resource, old)}
    full = _full_quotas(resource, old, facts)
    for view in claiming:
        quota = _quota_of(view, resource, facts)
        if view.prefix in unbounded or (quota is not None and quota.key in full):
            yield view


def _is_non_preemptible(view: PodView) -> bool:
    return view.labels.get(PREEMPTIBLE) == "false"


def _quota_of(view: PodView, of: Resource, facts: Facts) -> Quota | None:
    return facts.quotas.find(view.labels, of.metadata.namespace or "")


def _is_bounded(view: PodView, of: Resource, facts: Facts) -> bool:
    """True if a quota's `min` bounds what a pod or the pods of a template request.

    It is a quota of their namespace, because any pod may name that of another one, and its `min`
    names all that they request. Nothing bounds pods that request nothing, nor those of a DaemonSet,
    whose number depends on the nodes.
    """
    quota, request = _quota_of(view, of, facts), pod_requests.of_pod(view.spec)
    return (
        quota is not None
        and quota.is_for(of.metadata.namespace or "")
        and bool(request)
        and request.keys() <= quota.min_amounts.keys()
        and pod_requests.is_read_whole(view.spec)
        and of.kind != "DaemonSet"
    )


def _full_quotas(resource: Resource, old: Resource | None, facts: Facts) -> frozenset[QuotaKey]:
    """Return the quotas whose `min` has no room for what an object requests newly."""
    found = quota_requests.excesses(
        quota_requests.requests_of(resource, facts),
        {} if old is None else quota_requests.requests_of(old, facts),
        usage_of=quota_admission.claimed_usage,
    )
    return frozenset(request.quota.key for request, excess in found if excess.bound == MIN)


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

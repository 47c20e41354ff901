"""Which rights an object needs, beyond being allowed to write it: verbs on virtual resources of `reprieve.dev`.

Nothing serves these resources; RBAC grants verbs on them. They are checked without a namespace, so that only a
ClusterRoleBinding grants them. Who has them is the API server's to say: the webhook asks it (SubjectAccessReview) and hands
the answer to the rules as `Facts.lacking`. Rights that the guard checks inside the API server are not here.
"""

from collections.abc import Iterator

from .facts import Facts, Right
from .keys import PREEMPTIBLE, PREEMPTION_CLASS
from .namespace import OFF
from .objects import PodView, Resource, TemplatedResource, pod_views
from .preemption_class import HIGHEST

CLAIM_NON_PREEMPTIBLE = Right("claim", "nonpreemptiblepods")
"""To say `preemptible: "false"` where no quota bounds how much of that there is."""

CLAIM_SENSITIVE = Right("claim-sensitive", "preemptionclasses")
"""To claim class 10 where its Namespace does not give it. Of pods and built-in kinds the guard asks."""

_NONE: frozenset[Right] = frozenset()


def needed(resource: Resource, old: Resource | None, facts: Facts) -> frozenset[Right]:
    """Return the rights that this object needs now; of an update, only for what it newly claims."""
    if resource.metadata.deletionTimestamp is not None or facts.namespace.enforcement == OFF:
        return _NONE
    found = [right for right, claimed in _CLAIMED.items() if any(claimed(resource, old, facts))]
    return frozenset(found) if found else _NONE


def claims(resource: Resource, old: Resource | None, facts: Facts) -> Iterator[PodView]:
    """Yield the pod or the templates that newly claim to be non-preemptible without a quota.

    A quota without a `min` promises nothing to non-preemptible pods, and so bounds nothing.
    """
    if facts.settings.default_preemptible is False:
        # The admin made that the default: the label says nothing that would not hold without it.
        return
    before = {view.prefix for view in pod_views(old) if _claims(old, view, facts)} if old else set[str]()
    yield from (view for view in pod_views(resource) if _claims(resource, view, facts) and view.prefix not in before)


def sensitive_claims(resource: Resource, old: Resource | None, facts: Facts) -> Iterator[PodView]:
    """Yield the templates of a listed kind that newly claim class 10.

    The guard does not know where they stand. Without this, whoever may write such an object would have the class as soon as
    its controller has the right to make the pods.
    """
    policy = facts.namespace
    if isinstance(resource, TemplatedResource) and not policy.is_sensitive and policy.default_class != HIGHEST:
        before = {view.prefix for view in pod_views(old) if _claims_sensitive(view)} if old else set[str]()
        yield from (view for view in pod_views(resource) if _claims_sensitive(view) and view.prefix not in before)


def _claims_sensitive(view: PodView) -> bool:
    return view.labels.get(PREEMPTION_CLASS) == str(HIGHEST)


def _claims(resource: Resource, view: PodView, facts: Facts) -> bool:
    if view.labels.get(PREEMPTIBLE) != "false":
        return False
    quota = facts.quotas.find(view.labels, resource.metadata.namespace or "")
    return quota is None or not quota.least


_CLAIMED = {CLAIM_NON_PREEMPTIBLE: claims, CLAIM_SENSITIVE: sensitive_claims}

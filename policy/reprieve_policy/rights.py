"""Which rights an object needs, beyond being allowed to write it: verbs on virtual resources of `reprieve.dev`.

Nothing serves these resources; RBAC grants verbs on them. They are checked without a namespace, so that only a
ClusterRoleBinding grants them. Who has them is the API server's to say: the webhook asks it (SubjectAccessReview) and hands
the answer to the rules as `Facts.lacking`. Rights that the guard checks inside the API server are not here.
"""

from collections.abc import Iterator

from .facts import Facts, Right
from .keys import PREEMPTIBLE
from .namespace import OFF
from .objects import PodView, Resource, pod_views

CLAIM_NON_PREEMPTIBLE = Right("claim", "nonpreemptiblepods")
"""To say `preemptible: "false"` where no quota bounds how much of that there is."""

_NONE: frozenset[Right] = frozenset()


def needed(resource: Resource, old: Resource | None, facts: Facts) -> frozenset[Right]:
    """Return the rights that this object needs now; of an update, only for what it newly claims."""
    if resource.metadata.deletionTimestamp is not None or facts.namespace.enforcement == OFF:
        return _NONE
    return frozenset({CLAIM_NON_PREEMPTIBLE}) if any(claims(resource, old, facts)) else _NONE


def claims(resource: Resource, old: Resource | None, facts: Facts) -> Iterator[PodView]:
    """Yield the pod or the templates that newly claim to be non-preemptible without a quota.

    A quota without a `min` promises nothing to non-preemptible pods, and so bounds nothing.
    """
    if facts.settings.default_preemptible is False:
        # The admin made that the default: the label says nothing that would not hold without it.
        return
    before = {view.prefix for view in pod_views(old) if _claims(old, view, facts)} if old else set[str]()
    yield from (view for view in pod_views(resource) if _claims(resource, view, facts) and view.prefix not in before)


def _claims(resource: Resource, view: PodView, facts: Facts) -> bool:
    if view.labels.get(PREEMPTIBLE) != "false":
        return False
    quota = facts.quotas.find(view.labels, resource.metadata.namespace or "")
    return quota is None or not quota.least

"""By what the cached pods use which quota, and where they use another one now.

Most pods of a Namespace have that in common. Without this, all pods of the cluster would be
classified again whenever one quota changes.
"""

from collections import Counter
from typing import NamedTuple

from reprieve_policy.keys import QUOTA_NAME
from reprieve_policy.kube.limits.quota import QuotaKey, Quotas
from reprieve_policy.preemption.selection.snapshot import Preemptor, ScheduledPod


class QuotaUse(NamedTuple):
    """What decides which quota a pod uses, and the quota by which the pod is classified."""

    namespace: str
    label: str
    """The quota that the pod names; empty: none."""
    quota: QuotaKey | None

    def is_outdated(self, quotas: Quotas) -> bool:
        """True where such pods use another quota now."""
        found = quotas.find({QUOTA_NAME: self.label}, self.namespace)
        return self.quota != (None if found is None else found.key)


class QuotaUses:
    """The uses by all cached pods."""

    def __init__(self) -> None:
        self._pods_per_use: Counter[QuotaUse] = Counter()
        self._checked: tuple[Quotas, int] | None = None
        """The quotas at the last check, and the number of their changes by then."""

    def add_pod(self, classified: ScheduledPod | Preemptor) -> None:
        """Count a pod, as it is classified."""
        self._pods_per_use[use_of(classified)] += 1

    def remove_pod(self, classified: ScheduledPod | Preemptor) -> None:
        """Remove a pod that was counted."""
        use = use_of(classified)
        self._pods_per_use[use] -= 1
        if not self._pods_per_use[use]:
            del self._pods_per_use[use]

    def take_outdated(self, quotas: Quotas) -> set[QuotaUse]:
        """Return the uses that are outdated, if any quota changed since the last call."""
        state = (quotas, quotas.changes)
        if state == self._checked:
            return set()
        self._checked = state
        return {use for use in self._pods_per_use if use.is_outdated(quotas)}


def use_of(classified: ScheduledPod | Preemptor) -> QuotaUse:
    """Return the use of a pod, as it is classified."""
    return QuotaUse(classified.namespace, classified.labels.get(QUOTA_NAME, ""), classified.quota)

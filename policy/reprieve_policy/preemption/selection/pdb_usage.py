"""Which victims would break a PodDisruptionBudget. It is a preference, not a veto: others are taken before them.

Mirrors `filterPodsWithPDBViolation` of kube-scheduler and of the shipped plugin: budgets are spent in the order in which
the pods are given, the most important first.
"""

from collections.abc import Iterable

from . import node_fit
from .snapshot import DisruptionBudget, ScheduledPod, Snapshot


class PdbUsage:
    """What is left of the budgets while one node's victims are looked at."""

    def __init__(self, scene: Snapshot) -> None:
        self._budgets = scene.budgets
        self._left: dict[int, int] = {}

    def count_violations(self, tenants: Iterable[ScheduledPod]) -> int:
        """Count those of the tenants whose eviction a budget does not allow, and spend what it does."""
        return sum(self._breaks_one(tenant) for tenant in tenants)

    def _breaks_one(self, tenant: ScheduledPod) -> bool:
        is_broken = False
        for budget in self._budgets.get(tenant.namespace, ()):
            if not _covers(budget, tenant):
                continue
            left = self._left.get(id(budget), budget.disruptions_allowed) - 1
            self._left[id(budget)] = left
            is_broken = is_broken or left < 0
        return is_broken


def _covers(budget: DisruptionBudget, tenant: ScheduledPod) -> bool:
    """True where evicting the pod would cost the budget one."""
    return (
        bool(tenant.labels)
        and bool(budget.requirements)
        and tenant.name not in budget.disrupted_pods
        and all(
            node_fit.satisfies(requirement, tenant.labels) for requirement in budget.requirements
        )
    )

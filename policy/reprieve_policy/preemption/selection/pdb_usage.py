"""Which victims violate a PodDisruptionBudget. A preference, not a veto: others are taken first.

Mirrors `filterPodsWithPDBViolation` of kube-scheduler and of the shipped plugin: budgets are spent
in the order of the pods, the most important first.
"""

from collections.abc import Iterable

from . import node_fit
from .snapshot import DisruptionBudget, ScheduledPod, Snapshot


class PdbUsage:
    """What is left of the budgets during the dry run of one node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._budgets = snapshot.budgets
        self._left: dict[int, int] = {}

    def count_violations(self, pods: Iterable[ScheduledPod]) -> int:
        """Count the pods whose eviction a budget does not allow, and spend the budgets."""
        return sum(self._breaks_one(pod) for pod in pods)

    def _breaks_one(self, pod: ScheduledPod) -> bool:
        is_broken = False
        for budget in self._budgets.get(pod.namespace, ()):
            if not _covers(budget, pod):
                continue
            left = self._left.get(id(budget), budget.disruptions_allowed) - 1
            self._left[id(budget)] = left
            is_broken = is_broken or left < 0
        return is_broken


def _covers(budget: DisruptionBudget, pod: ScheduledPod) -> bool:
    """True if evicting the pod uses the budget."""
    return (
        bool(pod.labels)
        and bool(budget.requirements)
        and pod.name not in budget.disrupted_pods
        and all(node_fit.satisfies(requirement, pod.labels) for requirement in budget.requirements)
    )

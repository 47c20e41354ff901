"""How many evictions of a set of victims the PodDisruptionBudgets do not allow.

A budget is a preference, not a veto: a set that violates fewer budgets comes before all others.
"""

from collections.abc import Iterable

from . import node_fit
from .snapshot import DisruptionBudget, ScheduledPod, Snapshot
from .victim_units import VictimUnit


class PdbUsage:
    """What is left of the budgets while pods are evicted one after another.

    Mirrors `filterPodsWithPDBViolation` of kube-scheduler and of the shipped plugin: budgets are
    spent in the order of the pods, the most important first.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._budgets = snapshot.budgets
        self._left: dict[int, int] = {}

    def count_violations(self, pods: Iterable[ScheduledPod]) -> int:
        """Count the pods whose eviction a budget does not allow, and spend the budgets."""
        return sum(self._breaks_one(pod) for pod in pods)

    def _breaks_one(self, pod: ScheduledPod) -> bool:
        is_broken = False
        for budget in self._budgets.get(pod.namespace, ()):
            if not covers(budget, pod):
                continue
            left = self._left.get(id(budget), budget.disruptions_allowed) - 1
            self._left[id(budget)] = left
            is_broken = is_broken or left < 0
        return is_broken


def violations_of(units: Iterable[VictimUnit], snapshot: Snapshot) -> int:
    """Return how many pods of these units no budget allows to evict, beside the others of them."""
    if not snapshot.budgets:
        return 0
    usage = PdbUsage(snapshot)
    return sum(usage.count_violations(unit.members) for unit in units)


def covers(budget: DisruptionBudget, pod: ScheduledPod) -> bool:
    """True if evicting the pod uses the budget."""
    return (
        bool(pod.labels)
        and bool(budget.requirements)
        and pod.name not in budget.disrupted_pods
        and all(node_fit.satisfies(requirement, pod.labels) for requirement in budget.requirements)
    )

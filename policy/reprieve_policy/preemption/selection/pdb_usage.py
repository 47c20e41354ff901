"""How many evictions of a set of victims the PodDisruptionBudgets do not allow.

A budget is a preference, not a veto: a set that violates fewer budgets comes before all others.
"""

from collections.abc import Iterable

from .budget_uses import BudgetUses
from .snapshot import ScheduledPod
from .victim_units import VictimUnit


class PdbUsage:
    """What is left of the budgets while pods are evicted one after another.

    Mirrors `filterPodsWithPDBViolation` of kube-scheduler and of the shipped plugin: budgets are
    spent in the order of the pods, the most important first.
    """

    def __init__(self, uses: BudgetUses) -> None:
        self._uses = uses
        self._left: dict[int, int] = {}

    def count_violations(self, pods: Iterable[ScheduledPod]) -> int:
        """Count the pods whose eviction a budget does not allow, and spend the budgets."""
        return sum(self._breaks_one(pod) for pod in pods)

    def _breaks_one(self, pod: ScheduledPod) -> bool:
        is_broken = False
        for budget in self._uses.of(pod):
            left = self._left.get(id(budget), budget.disruptions_allowed) - 1
            self._left[id(budget)] = left
            is_broken = is_broken or left < 0
        return is_broken


def violations_of(units: Iterable[VictimUnit], uses: BudgetUses) -> int:
    """Return how many pods of these units no budget allows to evict, beside the others of them."""
    if uses.are_none:
        return 0
    usage = PdbUsage(uses)
    return sum(usage.count_violations(unit.members) for unit in units)

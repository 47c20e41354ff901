"""How many evictions of a set of victims the PodDisruptionBudgets do not allow.

A budget is a preference, not a veto: a set that violates fewer budgets comes before all others.
"""

from collections.abc import Iterable

from .budget_uses import BudgetRun, BudgetUses
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

    def count_violations(self, pods: tuple[ScheduledPod, ...]) -> int:
        """Count the pods whose eviction a budget does not allow, and spend the budgets."""
        return sum([self._spend(run) for run in self._uses.runs_of(pods)])

    def _spend(self, run: BudgetRun) -> int:
        """Return how many of these pods are too many for one of their budgets."""
        least = run.pods
        for budget in run.budgets:
            left = self._left.get(id(budget), budget.disruptions_allowed)
            self._left[id(budget)] = left - run.pods
            least = min(least, left)
        return run.pods - max(0, least)


def violations_of(units: Iterable[VictimUnit], uses: BudgetUses) -> int:
    """Return how many pods of these units no budget allows to evict, beside the others of them."""
    if uses.are_none:
        return 0
    usage = PdbUsage(uses)
    return sum(usage.count_violations(unit.members) for unit in units)


def violations_by_unit(units: Iterable[VictimUnit], uses: BudgetUses) -> dict[int, int]:
    """Return, by the unit's id, how many of its pods violate a budget, beside the ones before it.

    Units that violate none are left out.
    """
    if uses.are_none:
        return {}
    usage = PdbUsage(uses)
    return {id(unit): count for unit in units if (count := usage.count_violations(unit.members))}

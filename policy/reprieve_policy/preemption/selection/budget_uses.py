"""Which PodDisruptionBudgets the eviction of a pod uses."""

from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from . import node_fit
from .snapshot import DisruptionBudget, ScheduledPod

_MAX_BUDGETS_OF_POD = 10
"""Further ones do not count: the API server evicts no pod that more than one selects."""


class BudgetRun(NamedTuple):
    """Pods in a row that use the same budgets."""

    budgets: Sequence[DisruptionBudget]
    pods: int


class BudgetUses:
    """The budgets of each pod; for one decision, a pod is compared with its namespace's once.

    Without this, a tenant with many budgets would have each node searched for seconds.
    """

    def __init__(self, budgets: Mapping[str, Sequence[DisruptionBudget]]) -> None:
        """`budgets`: those of each namespace."""
        self._budgets = budgets
        self._uses: dict[str, Sequence[DisruptionBudget]] = {}
        self._runs: dict[int, tuple[tuple[ScheduledPod, ...], Sequence[BudgetRun]]] = {}
        """By the identity of the pods, which are kept: to compare them would take as long."""

    @property
    def are_none(self) -> bool:
        """True where no namespace has a budget."""
        return not self._budgets

    def of(self, pod: ScheduledPod) -> Sequence[DisruptionBudget]:
        """Return the budgets that evicting the pod uses."""
        budgets = self._budgets.get(pod.namespace)
        if budgets is None:
            return ()
        found = self._uses.get(pod.uid)
        if found is None:
            covering = (budget for budget in budgets if covers(budget, pod))
            found = self._uses[pod.uid] = tuple(islice(covering, _MAX_BUDGETS_OF_POD))
        return found

    def runs_of(self, pods: tuple[ScheduledPod, ...]) -> Sequence[BudgetRun]:
        """Return the budgets that evicting these pods uses, one after another.

        A large gang, of which each node has a pod, is looked through once.
        """
        if len(pods) == 1:
            return (BudgetRun(self.of(pods[0]), 1),)
        if id(pods) not in self._runs:
            runs = groupby(map(self.of, pods))
            counted = [BudgetRun(budgets, sum(1 for _ in run)) for budgets, run in runs]
            self._runs[id(pods)] = pods, _merged(counted)
        return self._runs[id(pods)][1]


def _merged(runs: Sequence[BudgetRun]) -> Sequence[BudgetRun]:
    """Return one run for all pods of the same budgets, where no two runs share a budget.

    Only then is the order of the pods of no importance.
    """
    merged: dict[tuple[int, ...], BudgetRun] = {}
    for run in runs:
        key = tuple(map(id, run.budgets))
        before = merged.get(key)
        merged[key] = BudgetRun(run.budgets, run.pods + (before.pods if before else 0))
    uses = [budget for key in merged for budget in key]
    return tuple(merged.values()) if len(uses) == len(set(uses)) else runs


def covers(budget: DisruptionBudget, pod: ScheduledPod) -> bool:
    """True if evicting the pod uses the budget."""
    return (
        bool(pod.labels)
        and bool(budget.requirements)
        and pod.name not in budget.disrupted_pods
        and all(node_fit.satisfies(requirement, pod.labels) for requirement in budget.requirements)
    )

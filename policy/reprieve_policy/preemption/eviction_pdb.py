"""Whether a PodDisruptionBudget blocks the eviction of a pod now, as the API server decides.

Mirrors `EvictionREST.Create` and `checkAndDecrement` of 1.37
(pkg/registry/core/pod/storage/eviction.go) for a running pod: the API server checks no budget for a
pod that does not run.
"""

from collections.abc import Iterable

from reprieve_policy.kube.conditions import is_true
from reprieve_policy.kube.limits.disruption_budgets import (
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
)
from reprieve_policy.kube.objects import labels_of
from reprieve_policy.kube.pods import Pod

from .selection import node_fit

_ALWAYS_ALLOW = "AlwaysAllow"


def is_eviction_blocked(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> bool:
    """True if the pod's budget allows no eviction; `budgets` are those of its namespace.

    False with several budgets: the API server evicts no such pod (500) until an admin corrects
    that.
    """
    own = [budget for budget in budgets if _selects(budget, pod)]
    return len(own) == 1 and _blocks_eviction(own[0], pod)


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Return whether the budget covers the pod.

    Unlike for kube-scheduler (`selection.select_victims`), an empty selector selects all pods, and
    a pod without labels may be selected.
    """
    selector, labels = budget.spec.selector, labels_of(pod.metadata)
    return selector is not None and all(
        node_fit.satisfies(one, labels) for one in node_fit.requirements_of(selector)
    )


def _blocks_eviction(budget: PodDisruptionBudget, pod: Pod) -> bool:
    status = budget.status
    may_go = budget.spec.unhealthyPodEvictionPolicy == _ALWAYS_ALLOW or _is_met(status)
    if may_go and not _is_ready(pod):
        return False
    return status.observedGeneration < budget.metadata.generation or status.disruptionsAllowed <= 0


def _is_met(status: PodDisruptionBudgetStatus) -> bool:
    """True if the budget has enough healthy pods: a pod that is not ready is not one of them."""
    return status.currentHealthy >= status.desiredHealthy > 0


def _is_ready(pod: Pod) -> bool:
    return is_true(pod.status.conditions, "Ready")

"""Whether a PodDisruptionBudget keeps a pod from being evicted now, as the API server finds after all admission.

Mirrors `EvictionREST.Create` and `checkAndDecrement` of 1.37 (pkg/registry/core/pod/storage/eviction.go), for a pod that runs:
of one that does not, it asks no budget.
"""

from collections.abc import Iterable

from reprieve_policy.kube.objects import labels_of

from .selection import node_fit, pod_constraints
from .selection.api_objects import Pod, PodDisruptionBudget, PodDisruptionBudgetStatus

_ALWAYS_ALLOW = "AlwaysAllow"


def is_eviction_blocked(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> bool:
    """True where the pod's budget allows no eviction of it; `budgets`: those of its namespace.

    With several nothing is said: the API server evicts no such pod (500) until somebody has mended that.
    """
    own = [budget for budget in budgets if _selects(budget, pod)]
    return len(own) == 1 and _blocks_eviction(own[0], pod)


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Unlike for kube-scheduler (`choosing.budgets`), an empty selector selects all pods, and one without labels may be selected."""
    selector, labels = budget.spec.selector, labels_of(pod.metadata)
    return selector is not None and all(
        node_fit.satisfies(one, labels) for one in pod_constraints.requirements_of(selector)
    )


def _blocks_eviction(budget: PodDisruptionBudget, pod: Pod) -> bool:
    status = budget.status
    may_go = budget.spec.unhealthyPodEvictionPolicy == _ALWAYS_ALLOW or _is_met(status)
    if may_go and not _is_ready(pod):
        return False
    return status.observedGeneration < budget.metadata.generation or status.disruptionsAllowed <= 0


def _is_met(status: PodDisruptionBudgetStatus) -> bool:
    """A pod that is not ready does not count among those that the budget has: where there are enough, it may go."""
    return status.currentHealthy >= status.desiredHealthy > 0


def _is_ready(pod: Pod) -> bool:
    return any(
        (found.type, found.status) == ("Ready", "True") for found in pod.status.conditions or ()
    )

"""PodDisruptionBudgets, as far as they are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprieve_policy.kube.label_selector import LabelSelector
from reprieve_policy.kube.objects import VersionedMeta

MAX_BUDGETS = 200
"""Of one namespace: if it has more, none of them counts, in the guard and in a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudgetSpec:
    """The selector of a budget, and its policy for unhealthy pods."""

    selector: LabelSelector | None = None
    unhealthyPodEvictionPolicy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudgetStatus:
    """What is left of the budget, as of which generation, and the pods evicted already, by name."""

    disruptionsAllowed: int = 0
    observedGeneration: int = 0
    currentHealthy: int = 0
    desiredHealthy: int = 0
    disruptedPods: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudget:
    """A PodDisruptionBudget."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)

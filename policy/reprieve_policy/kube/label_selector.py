"""The label selector of workloads, budgets and pod affinity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .objects import NodeSelectorRequirement


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """A label selector."""

    matchLabels: Mapping[str, str] | None = None
    matchExpressions: Sequence[NodeSelectorRequirement] | None = None

"""Nodes, as far as they are read."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .conditions import Condition
from .objects import ObjectMeta, Quantities


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTaint:
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """The taints and the cordon of a node."""

    unschedulable: bool | None = None
    taints: Sequence[NodeTaint] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node's capacity, and its conditions."""

    allocatable: Quantities | None = None
    conditions: Sequence[Condition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)

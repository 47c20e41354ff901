"""A scenario: a few full nodes, the pods on them, and one pod that finds no room. Plain values.

A scenario is the same for each engine: a rule in Python, or a scheduler on a real API server
(`documents`).
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

MINIMUM = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
SECONDS = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"
OLDER_MINIMUM = "preemption-toleration.scheduling.sigs.k8s.io/minimum-preemptable-priority"
OLDER_SECONDS = "preemption-toleration.scheduling.sigs.k8s.io/toleration-seconds"
CLASS = "reprieve.dev/preemption-class"
DEFENDED_AS = "reprieve.dev/preemption-priority-class"
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
CAN_PREEMPT = "quota.scheduling.koordinator.sh/can-preempt"
COST = "scheduling.koordinator.sh/eviction-cost"
GANG = "scheduling.x-k8s.io/pod-group"
"""Written out, not imported: the comparison must not depend on code of one side."""


@dataclass(frozen=True, kw_only=True)
class ScenarioPriorityClass:
    """A PriorityClass; equal ones are one object in the cluster, across scenarios."""

    value: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    never_preempts: bool = False
    is_gone: bool = False
    """Deleted after its pods were created."""

    @cached_property
    def name(self) -> str:
        """A name without a meaning; equal classes have the same name."""
        return f"differential-{hashlib.sha256(repr(self).encode()).hexdigest()[:12]}"


@dataclass(frozen=True, kw_only=True)
class ScenarioPod:
    """A pod that is bound to a node, or the preemptor."""

    name: str
    cpu: int = 1
    """In whole CPUs."""
    memory: int = 1
    """In GiB."""
    priority_class: ScenarioPriorityClass | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    defended_as: ScenarioPriorityClass | None = None
    """The PriorityClass that it names as its preemption priority."""
    namespace: str = "one"
    host_port: int | None = None
    scheduled_ago: int | None = 3600
    """Seconds since its condition `PodScheduled` last changed; `None`: it has no such condition."""
    is_scheduled: bool = True
    """False: the condition says False."""
    started_ago: int | None = 3600
    """Seconds since it started; `None`: it has not. No two pods of a scenario start at once:
    upstream orders those by chance.
    """
    is_terminating: bool = False
    """It is deleted, and has not ended yet."""

    @property
    def priority(self) -> int:
        """Return the priority that the API server's admission resolves."""
        return self.priority_class.value if self.priority_class else 0

    @property
    def lacks_priority_class(self) -> bool:
        """True if its PriorityClass no longer exists."""
        return self.priority_class is not None and self.priority_class.is_gone


@dataclass(frozen=True, kw_only=True)
class ScenarioNode:
    """A node and the pods that are bound to it."""

    name: str
    cpu: int
    memory: int = 64
    most_pods: int = 110
    is_cordoned: bool = False
    is_tainted: bool = False
    pods: tuple[ScenarioPod, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScenarioBudget:
    """A PodDisruptionBudget."""

    selects: Mapping[str, str]
    allowed: int
    namespace: str = "one"
    disrupted: tuple[str, ...] = ()
    """Pods that the budget already counts as disrupted."""

    def concerns(self, pod: ScenarioPod) -> bool:
        """True where the pod's disruption would be counted."""
        is_selected = self.selects.items() <= pod.labels.items()
        return is_selected and pod.namespace == self.namespace and pod.name not in self.disrupted


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The whole scenario."""

    name: str
    preemptor: ScenarioPod
    nodes: tuple[ScenarioNode, ...]
    budgets: tuple[ScenarioBudget, ...] = ()
    tolerates_taint: bool = False

    def pods(self) -> Iterator[ScenarioPod]:
        """Yield the preemptor and all bound pods."""
        yield self.preemptor
        for node in self.nodes:
            yield from node.pods

    def priority_classes(self) -> dict[str, ScenarioPriorityClass]:
        """Return all PriorityClasses of its pods, by name."""
        named = (named for pod in self.pods() for named in (pod.priority_class, pod.defended_as))
        return {found.name: found for found in named if found}


@dataclass(frozen=True)
class ScenarioOutcome:
    """The outcome of a scenario: the node for the preemptor, and the victims."""

    node: str | None = None
    """The nominated node; `None` if there is none, or the preemptor fits without a victim."""
    victims: frozenset[str] = frozenset()

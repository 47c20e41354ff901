"""What can be seen of the extender from outside; see docs/scheduler.md."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds; a scheduler gives up after `httpTimeout`, 5 s unless it is told otherwise."""
_SIZES = (1, 10, 30, 100, 300, 1000, 3000, 10_000)


class CallOutcome(StrEnum):
    """What became of a call."""

    CHOSEN = "chosen"
    PARTIAL = "partial"
    """Chosen among the nodes that there was time for."""
    NOTHING = "nothing"
    """No node: preemption does not help, or nobody may be taken."""
    MALFORMED = "malformed"
    BUSY = "busy"
    BEHIND = "behind"
    """The watches are not complete, or silent for too long, or have not seen this preemptor or any of the victims."""
    EXEMPT = "exempt"
    """The preemptor is Kubernetes' own: no policy is asked."""
    LATE = "late"
    """Nothing was found before the time was over, or its scheduler had hung up by then."""
    ERROR = "error"


FALLBACKS = frozenset(
    set(CallOutcome) - {CallOutcome.CHOSEN, CallOutcome.PARTIAL, CallOutcome.NOTHING}
)
"""Answered by another status than 200: the scheduler keeps to its own choice."""


class ExtenderMetrics:
    """What the extender counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        calls = Counter(
            "reprieve_extender_calls_total",
            "Calls of a scheduler, by outcome.",
            ("outcome",),
            registry=registry,
        )
        self._calls = {outcome: calls.labels(outcome.value) for outcome in CallOutcome}
        duration = Histogram(
            "reprieve_extender_duration_seconds",
            "From the first byte of a call to its answer.",
            buckets=_BUCKETS,
            registry=registry,
        )
        candidates = Histogram(
            "reprieve_extender_candidates", "Nodes in a call.", buckets=_SIZES, registry=registry
        )
        obstacles = Counter(
            "reprieve_extender_passed_over_total",
            "Nodes on which nobody is taken, by why.",
            ("obstacle",),
            registry=registry,
        )
        self.observe_duration: Callable[[float], None] = duration.observe
        self.observe_candidates: Callable[[float], None] = candidates.observe
        self._rejected_nodes = obstacles

    def count_call(self, outcome: CallOutcome) -> None:
        """Count one call."""
        self._calls[outcome].inc()

    def count_rejected_nodes(self, by_obstacle: Mapping[str, int]) -> None:
        """Count the nodes of one decision that are no choice."""
        for obstacle, count in by_obstacle.items():
            self._rejected_nodes.labels(obstacle).inc(count)

"""The extender's metrics; see docs/scheduler.md."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds; a scheduler gives up after `httpTimeout`, by default 5 s."""
_SIZES = (1, 10, 30, 100, 300, 1000, 3000, 10_000)


class CallOutcome(StrEnum):
    """How a call ended."""

    CHOSEN = "chosen"
    PARTIAL = "partial"
    """Victims chosen among the nodes for which there was time."""
    NOTHING = "nothing"
    """No node: preemption does not help, or no pod may be a victim."""
    QUOTA_EXCEEDED = "quota-exceeded"
    """No node: the preemptor's ElasticQuota would not admit it."""
    CLAIMED = "claimed"
    """A node that pods are leaving already: no further victims are needed."""
    MALFORMED = "malformed"
    BUSY = "busy"
    BEHIND = "behind"
    """The watches are incomplete or silent, or have not seen the preemptor or any victim."""
    EXEMPT = "exempt"
    """The preemptor is system-critical: no policy is applied."""
    LATE = "late"
    """No result before the deadline, or the scheduler had hung up by then."""
    ERROR = "error"


FALLBACKS = frozenset(
    set(CallOutcome)
    - {
        CallOutcome.CHOSEN,
        CallOutcome.PARTIAL,
        CallOutcome.NOTHING,
        CallOutcome.QUOTA_EXCEEDED,
        CallOutcome.CLAIMED,
    }
)
"""Answered with another status than 200: the scheduler keeps its own choice."""


class ExtenderMetrics:
    """The counters and histograms."""

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
        rejected_nodes = Counter(
            "reprieve_extender_passed_over_total",
            "Nodes rejected, by reason.",
            ("reason",),
            registry=registry,
        )
        self.observe_duration: Callable[[float], None] = duration.observe
        self.observe_candidates: Callable[[float], None] = candidates.observe
        self._rejected_nodes = rejected_nodes

    def count_call(self, outcome: CallOutcome) -> None:
        """Count one call."""
        self._calls[outcome].inc()

    def count_rejected_nodes(self, by_status: Mapping[str, int]) -> None:
        """Count the rejected nodes of one decision."""
        for status, count in by_status.items():
            self._rejected_nodes.labels(status).inc(count)

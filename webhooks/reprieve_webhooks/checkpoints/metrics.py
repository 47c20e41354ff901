"""The counter of reports; see docs/metrics.md."""

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter


class ReportOutcome(StrEnum):
    """How a report ended."""

    RECORDED = "recorded"
    UNCHANGED = "unchanged"
    """The pod has this time, or a later one."""
    MALFORMED = "malformed"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    LIMITED = "limited"
    FAILED = "failed"
    """The API server is away or refuses."""


class ReportMetrics:
    """The counter."""

    def __init__(self, registry: CollectorRegistry) -> None:
        reports = Counter(
            "reprieve_checkpoint_reports_total",
            "Reports of agents that their workload saved, by outcome.",
            ("outcome",),
            registry=registry,
        )
        self._reports = {outcome: reports.labels(outcome.value) for outcome in ReportOutcome}

    def count(self, outcome: ReportOutcome) -> None:
        """Count one report."""
        self._reports[outcome].inc()

"""The operator's metrics. No label names a pod: series must not grow with the victims."""

from collections.abc import Callable, Collection, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from reprieve_runtime.client.watch_metrics import WatchCollector, WatchedCollection

_CHECKPOINT_BUCKETS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 900, 1800)
"""Seconds, up to the ceiling's default of 30 minutes."""

_COST_BUCKETS = (0.01, 0.1, 1, 10, 100, 1000, 10000)
"""Device-hours: from half a minute of a GPU to a thousand of them for ten hours."""


class OperatorMetrics:
    """All metrics of the operator, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.preemptions = Counter(
            "reprieve_preemptions",
            "Victims deleted, by the cause of the preemption",
            ["namespace", "reason"],
            registry=self.registry,
        )
        self.outcomes = Counter(
            "reprieve_preemption_outcomes",
            "Victims deleted, by how their checkpoint ended",
            ["outcome"],
            registry=self.registry,
        )
        self.cost = Histogram(
            "reprieve_preemption_cost",
            "Estimated cost of preempting a victim in device-hours: GPUs, or CPUs if it has none",
            ["workload_type"],
            buckets=_COST_BUCKETS,
            registry=self.registry,
        )
        self.refusals = Counter(
            "reprieve_preemption_refusals",
            "Preemptions refused, permanently or for now",
            ["reason"],
            registry=self.registry,
        )
        self.checkpoint_seconds = Histogram(
            "reprieve_preemption_checkpoint_duration_seconds",
            "From the first hint to the acknowledged checkpoint",
            buckets=_CHECKPOINT_BUCKETS,
            registry=self.registry,
        )
        self.failed_checkpoints = Counter(
            "reprieve_preemption_failed_checkpoint",
            "Victims deleted without the requested checkpoint",
            ["namespace", "reason"],
            registry=self.registry,
        )
        self.escalations = Counter(
            "reprieve_preemption_escalations",
            "Victims that never answered, and were deleted without a checkpoint",
            registry=self.registry,
        )
        self.extensions = Counter(
            "reprieve_preemption_extensions",
            "Deadlines extended, at most once for each victim",
            registry=self.registry,
        )
        self.deferrals = Counter(
            "reprieve_preemption_deferrals",
            "Deferrals that workloads requested and got",
            registry=self.registry,
        )
        self.cancellations = Counter(
            "reprieve_preemption_cancellations",
            "Evictions cancelled in time",
            registry=self.registry,
        )
        self.requeues = Counter(
            "reprieve_preemption_victim_requeue",
            "Victims that are replaced by another pod, by their owner or by Reprieve",
            ["namespace", "by"],
            registry=self.registry,
        )
        self.api_calls = Counter(
            "reprieve_api_calls",
            "Calls to the API server about victims and their Events, by outcome",
            ["verb", "outcome"],
            registry=self.registry,
        )
        self.events_dropped = Counter(
            "reprieve_events_dropped",
            "Events not written, because there were too many",
            registry=self.registry,
        )
        self.gang_releases = Counter(
            "reprieve_gang_gate_releases",
            "Gangs released by the gate: complete, timed out, or with nothing to wait for",
            ["reason"],
            registry=self.registry,
        )
        self.gang_failures = Counter(
            "reprieve_gang_gate_failures",
            "Gangs that did not start in time: incomplete, or released and not placed",
            ["reason"],
            registry=self.registry,
        )
        self.diverging_gangs = Gauge(
            "reprieve_diverging_gangs",
            "Gangs whose pods differ in what decides their preemption",
            registry=self.registry,
        )
        self.unchecked_claims = Gauge(
            "reprieve_unchecked_claims",
            "Pods that say that they are non-preemptible, from before such claims were checked",
            registry=self.registry,
        )
        self.gated_pods = Gauge(
            "reprieve_gang_gated_pods", "Pods that wait for their gang", registry=self.registry
        )
        self.policy_is_good = Gauge(
            "reprieve_policy_is_good",
            "0 while the ConfigMap cannot be read and the last valid policy is in force",
            registry=self.registry,
        )
        self.policy_is_good.set(1)
        self.leader = Gauge("reprieve_leader", "1 while this replica leads", registry=self.registry)
        self.last_event_at = Gauge(
            "reprieve_watch_last_event_timestamp_seconds",
            "When the watch last delivered a victim",
            registry=self.registry,
        )
        self.last_sweep_at = Gauge(
            "reprieve_last_sweep_timestamp_seconds",
            "When the last resync of all pods ended",
            registry=self.registry,
        )

    def keep_namespaces(self, names: Collection[str]) -> None:
        """Remove the series of other Namespaces: where they are short-lived, all would add up."""
        for counter in (self.preemptions, self.failed_checkpoints, self.requeues):
            series = [sample.labels for family in counter.collect() for sample in family.samples]
            for labels in {
                tuple(each.values()) for each in series if each["namespace"] not in names
            }:
                counter.remove(*labels)

    def register_watches(self, watches: Callable[[], Mapping[str, WatchedCollection]]) -> None:
        """Register the collector that shows how old each watched collection may be."""
        self.registry.register(WatchCollector(watches))

    def register_victims(
        self,
        by_phase: Callable[[], Mapping[str, int]],
        stuck: Callable[[], int],
        queue_age: Callable[[], float],
    ) -> None:
        """Register the collector that counts victims when metrics are scraped."""
        self.registry.register(_VictimCollector(by_phase, stuck, queue_age))


class _VictimCollector(Collector):
    def __init__(
        self,
        by_phase: Callable[[], Mapping[str, int]],
        stuck: Callable[[], int],
        queue_age: Callable[[], float],
    ) -> None:
        self._by_phase = by_phase
        self._stuck = stuck
        self._queue_age = queue_age

    def collect(self) -> list[GaugeMetricFamily]:
        """Return the gauges as of now."""
        victims = GaugeMetricFamily(
            "reprieve_preemption_victims", "Victims being handled", labels=["phase"]
        )
        for phase, count in self._by_phase().items():
            victims.add_metric([phase], count)
        stuck = GaugeMetricFamily(
            "reprieve_stuck_victims", "Victims that still exist long after their grace period"
        )
        stuck.add_metric([], self._stuck())
        age = GaugeMetricFamily(
            "reprieve_victim_queue_age_seconds",
            "How long the oldest victim has waited for its first write",
        )
        age.add_metric([], self._queue_age())
        return [victims, stuck, age]

"""The metrics of the webhooks. No label ever names an object, a namespace or a user."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from reprieve_runtime.client.watch_metrics import WatchCollector, WatchedCollection
from reprieve_runtime.policy_config_map import PolicyConfigMap

from .review_counts import ReviewCounts


class WebhookMetrics:
    """One registry and its metrics."""

    def __init__(self) -> None:
        # A second series for each counter, with its creation time, has no use here.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no type annotations
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        gang_lookups = self._counter(
            "reprieve_gang_lookups_total",
            "Lookups of live gang members, by outcome (member, no-member, unknown).",
            ("outcome",),
        )
        self.count_gang_lookup: Callable[[str], None] = lambda outcome: gang_lookups.labels(
            outcome
        ).inc()
        self.reviews = ReviewCounts()
        self.registry.register(self.reviews)
        self._policy_errors = self._counter(
            "reprieve_policy_config_errors_total",
            "Policy ConfigMaps that could not be read; the last good one stayed in force.",
        )
        self._policy_is_good = Gauge(
            "reprieve_policy_is_good",
            "0 while the ConfigMap cannot be read and the last good one holds.",
            registry=self.registry,
        )
        self._policy_is_good.set(1)
        self.count_certificate_error: Callable[[], None] = self._counter(
            "reprieve_certificate_errors_total",
            "Passes over the certificates that failed; the last good ones stayed in force.",
        ).inc

    def _counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, documentation, labels, registry=self.registry)

    def observe_policy(self, policy: PolicyConfigMap) -> None:
        """Process a ConfigMap that was created, changed or deleted."""
        is_good = policy.effective.is_config_map_valid
        self._policy_is_good.set(is_good)
        if not is_good:
            self._policy_errors.inc()

    def register_watches(self, watches: Callable[[], Mapping[str, WatchedCollection]]) -> None:
        """Export how old the facts of each collection may be."""
        self.registry.register(WatchCollector(watches))

    def register_certificate_expiry(
        self, certificate: str, expires_at: Callable[[], datetime | None]
    ) -> None:
        """Export when a certificate expires; 0 while there is none."""
        gauge = Gauge(
            f"reprieve_{certificate}_certificate_expiry_timestamp_seconds",
            f"When the {certificate} certificate ends, in seconds since the epoch.",
            registry=self.registry,
        )
        gauge.set_function(lambda: until.timestamp() if (until := expires_at()) else 0.0)

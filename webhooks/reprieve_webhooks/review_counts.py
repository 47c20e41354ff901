"""What is counted in every review: plain numbers, which become metrics when they are read.

A counter and a histogram of the metrics library would take a twentieth of a review, for locks that
one event loop does not need.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_BOUNDS = (0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, math.inf)
"""Seconds. The rules take some 0.1 ms; a review of 1 s or more waited for the API server."""


class Durations:
    """How long the reviews of one webhook took."""

    def __init__(self) -> None:
        self._counts = [0] * len(_BOUNDS)
        self._seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one review."""
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds += seconds

    def add_to(self, family: HistogramMetricFamily, webhook: str) -> None:
        """Add the reviews so far."""
        totals = accumulate(self._counts)
        buckets = [
            (str(bound).replace("inf", "+Inf"), total)
            for bound, total in zip(_BOUNDS, totals, strict=True)
        ]
        family.add_metric((webhook,), buckets, self._seconds)


class ReviewCounts(Collector):
    """The reviews by webhook, kind and outcome, and their durations by webhook."""

    def __init__(self) -> None:
        self._reviews: Counter[tuple[str, str, str]] = Counter()
        self._durations: dict[str, Durations] = {}

    def count(self, webhook: str, kind: str, outcome: str) -> None:
        """Count one review."""
        self._reviews[webhook, kind, outcome] += 1

    def durations_of(self, webhook: str) -> Durations:
        """Return the durations of a webhook, to add to."""
        return self._durations.setdefault(webhook, Durations())

    def collect(self) -> Iterator[Metric]:
        """Yield both metrics."""
        reviews = CounterMetricFamily(
            "reprieve_admission_reviews",
            "Reviews answered, by webhook (mutate, validate, guard), kind and outcome.",
            labels=("webhook", "kind", "outcome"),
        )
        for labels, number in self._reviews.items():
            reviews.add_metric(labels, number)
        yield reviews
        durations = HistogramMetricFamily(
            "reprieve_admission_duration_seconds",
            "From the last byte of a review to its answer.",
            labels=("webhook",),
        )
        for webhook, durations_of_webhook in self._durations.items():
            durations_of_webhook.add_to(durations, webhook)
        yield durations

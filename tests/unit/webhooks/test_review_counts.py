"""Plain numbers are shown exactly as the metrics library shows its own counter and histogram."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from reprieve_webhooks.review_counts import ReviewCounts

BUCKETS = (0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)
SECONDS = (0.0001, 0.0002, 0.0003, 0.1, 1.0, 1.5, 3.0)
REVIEWS = (
    ("validate", "Pod", "allowed"),
    ("mutate", "Job", "patched"),
    ("validate", "Pod", "allowed"),
)


def test_both_metrics_look_like_those_of_the_library():
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no type annotations
    own, library = CollectorRegistry(), CollectorRegistry()
    counts = ReviewCounts()
    own.register(counts)
    reviews = Counter(
        "reprieve_admission_reviews_total",
        "Reviews answered, by webhook (mutate, validate, guard), kind and outcome.",
        ("webhook", "kind", "outcome"),
        registry=library,
    )
    durations = Histogram(
        "reprieve_admission_duration_seconds",
        "From the last byte of a review to its answer.",
        ("webhook",),
        buckets=BUCKETS,
        registry=library,
    )

    for review in REVIEWS:
        counts.count(*review)
        reviews.labels(*review).inc()
    counts.durations_of("guard")
    durations.labels("guard")
    for seconds in SECONDS:
        counts.durations_of("validate").observe(seconds)
        durations.labels("validate").observe(seconds)

    assert generate_latest(own) == generate_latest(library)

"""The metrics of several workers are shown as those of one program."""

import math

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from reprieve_webhooks.metrics import WebhookMetrics
from reprieve_webhooks.workers.summed_metrics import (
    Family,
    SummedMetrics,
    families_of,
    summed,
)


def a_registry(*, reviews: int, seconds: float, age: float) -> CollectorRegistry:
    registry = CollectorRegistry()
    counter = Counter("reviews", "Reviews.", ("kind",), registry=registry)
    counter.labels("Pod").inc(reviews)
    Histogram("duration", "Time.", buckets=(0.1, 1.0), registry=registry).observe(seconds)
    Gauge("age", "Age.", registry=registry).set(age)
    return registry


async def shown(own: CollectorRegistry, *others: CollectorRegistry) -> dict[str, float]:
    """Return the samples that a scraper reads, by name and labels."""

    async def families_of_others() -> list[Family]:
        return [family for registry in others for family in families_of(registry)]

    metrics = SummedMetrics(own, families_of_others)
    await metrics.refresh()
    text = generate_latest(metrics.registry).decode()
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_counters_and_histograms_are_added_up() -> None:
    samples = await shown(
        a_registry(reviews=3, seconds=0.05, age=1), a_registry(reviews=4, seconds=0.5, age=2)
    )
    assert samples["reviews_total Pod"] == 7
    assert samples["duration_bucket 0.1"] == 1
    assert samples["duration_bucket +Inf"] == samples["duration_count"] == 2
    assert samples["duration_sum"] == 0.55


async def test_a_label_that_one_worker_has_alone_is_shown() -> None:
    one, other = CollectorRegistry(), CollectorRegistry()
    for registry, kind in ((one, "Pod"), (other, "Job")):
        Counter("reviews", "Reviews.", ("kind",), registry=registry).labels(kind).inc()
    samples = await shown(one, other)
    assert (samples["reviews_total Pod"], samples["reviews_total Job"]) == (1, 1)


async def test_of_a_gauge_the_worker_counts_that_is_worst_off() -> None:
    samples = await shown(
        a_registry(reviews=0, seconds=0, age=1), a_registry(reviews=0, seconds=0, age=math.inf)
    )
    assert samples["age"] == math.inf
    good, bad = WebhookMetrics(), WebhookMetrics()
    bad._policy_is_good.set(0)
    assert (await shown(good.registry, bad.registry))["reprieve_policy_is_good"] == 0


async def test_memory_and_files_are_those_of_all_workers() -> None:
    own = await shown(WebhookMetrics().registry)
    both = await shown(WebhookMetrics().registry, WebhookMetrics().registry)
    for name in ("process_resident_memory_bytes", "process_open_fds"):
        assert both[name] > 1.5 * own[name]
    assert both["process_start_time_seconds"] == own["process_start_time_seconds"]
    assert both["process_max_fds"] == own["process_max_fds"]
    assert {value for name, value in both.items() if name.startswith("python_info ")} == {1}


def test_one_worker_alone_is_shown_as_it_is() -> None:
    families = families_of(a_registry(reviews=3, seconds=0.05, age=1))
    assert summed(families) == families

"""docs/metrics.md agrees with both programs' registries and with the operator's Events, and
docs/preemption.md with the policy's weights.
"""

import re
from pathlib import Path
from typing import NamedTuple, cast

import yaml
from prometheus_client import Counter, Gauge, Histogram

from reprieve_operator.cluster import bursts, event_queue, event_recorder
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.victims import notice
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, PreemptionCause, ProtectionReason
from reprieve_policy.preemption.cost import WEIGHTS
from reprieve_runtime.client.api import Api, PartialObjectMetadata
from reprieve_runtime.client.reflector import Reflector
from reprieve_testing import manifests
from reprieve_webhooks.checkpoints.metrics import ReportMetrics, ReportOutcome
from reprieve_webhooks.metrics import WebhookMetrics

DOCS = Path(__file__).parents[4] / "docs"
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")
PREEMPTION = (DOCS / "preemption.md").read_text(encoding="utf-8")


class Row(NamedTuple):
    """A metric as the table has it."""

    kind: str
    labels: frozenset[str]


def section(heading: str) -> str:
    """Return the text below a heading of the page."""
    return METRICS.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def documented(heading: str = "Metrics of the operator") -> dict[str, Row]:
    rows = re.findall(
        r"^\| `(reprieve_[a-z_]+)` \| ([a-z]+) \|([^|]*)\|", section(heading), re.MULTILINE
    )
    return {
        name: Row(kind, frozenset(re.findall(r"`([a-z_]+)`", labels)))
        for name, kind, labels in rows
    }


def registered() -> dict[str, Row]:
    metrics = OperatorMetrics()
    metrics.register_victims(lambda: {"hinted": 1}, lambda: 0, lambda: 0.0)
    metrics.register_watches(
        lambda: {"pods": Reflector(cast("Api", None), "/pods", PartialObjectMetadata, id)}
    )
    labels = {
        found._name: frozenset(found._labelnames)
        for found in vars(metrics).values()
        if isinstance(found, Counter | Gauge | Histogram)
    }
    rows = {}
    for family in metrics.registry.collect():
        shown = family.name + ("_total" if family.type == "counter" else "")
        sampled = frozenset(label for sample in family.samples for label in sample.labels)
        rows[shown] = Row(family.type, labels.get(family.name, sampled))
    return rows


def test_every_metric_stands_in_the_table_with_its_type_and_labels() -> None:
    assert documented() == registered()


def test_every_metric_of_the_webhooks_is_in_their_table_with_its_type_and_labels() -> None:
    metrics = WebhookMetrics()
    metrics.register_watches(
        lambda: {"pods": Reflector(cast("Api", None), "/pods", PartialObjectMetadata, id)}
    )
    for certificate in ("ca", "serving"):
        metrics.register_certificate_expiry(certificate, lambda: None)
    ReportMetrics(metrics.registry)
    metrics.count_gang_lookup("unknown")
    metrics.reviews.count("guard", "Pod", "allowed")
    metrics.reviews.durations_of("guard").observe(0.001)
    rows = {}
    for family in metrics.registry.collect():
        if family.name.startswith("reprieve_"):
            shown = family.name + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels}
            rows[shown] = Row(family.type, frozenset(labels - {"le"}))
    assert documented("Metrics of the webhooks") == rows


def test_the_scrape_configuration_finds_the_port_of_both_programs() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", section("Scrape"), re.DOTALL)
    (job,) = yaml.safe_load(block)["scrape_configs"]
    assert job["scheme"] == "https"
    (discovery,) = job["kubernetes_sd_configs"]
    (kept,) = [rule["regex"] for rule in job["relabel_configs"] if rule.get("action") == "keep"]
    for deployment in manifests.of_kind("Deployment"):
        assert discovery["namespaces"]["names"] == [deployment["metadata"]["namespace"]]
        template = deployment["spec"]["template"]
        assert "app.kubernetes.io/name" in template["metadata"]["labels"]
        (container,) = template["spec"]["containers"]
        assert kept in {port["name"] for port in container["ports"]}


def test_every_event_is_in_the_table() -> None:
    rows = re.findall(r"^\| ((?:`[A-Za-z]+`(?:, )?)+) \|", section("Events"), re.MULTILINE)
    shown = [reason for row in rows for reason in re.findall(r"`([A-Za-z]+)`", row)]
    assert sorted(shown) == sorted(event_recorder.REASONS)


def test_no_metric_names_a_pod() -> None:
    assert not {
        name for name, row in registered().items() if row.labels & {"pod", "name", "uid", "job"}
    }


def test_the_values_of_labels_are_documented() -> None:
    values = {
        *PreemptionCause,
        *ProtectionReason,
        *(outcome for outcome in CheckpointOutcome if outcome.is_failure),
        *ReportOutcome,
    }
    assert {value for value in values if f"`{value}`" not in METRICS} == set()


def test_the_bounds_of_events_are_documented() -> None:
    page = " ".join(METRICS.split())
    assert f"At most {event_recorder._EVENTS_PER_SECOND} Events are written in a second" in page
    assert f"more than {bursts.MANY} pods of a Namespace are victims within a minute" in page
    assert bursts.WINDOW_SECONDS == 60.0
    assert f"waits for up to {event_queue.HOLD_SECONDS:.0f} seconds" in page
    assert f"saves within {notice._MAX_POSTPONE_SECONDS:.0f} seconds in a burst" in page
    queues = (
        f"where {event_queue.QUEUE_SIZE:,} wait "
        f"({event_queue.QUEUE_SIZE_FOR_NORMAL:,} for those of type `Normal`)"
    )
    assert queues in page


def test_the_weights_are_those_of_the_policy() -> None:
    rows = re.findall(
        r"^\| ((?:`[a-z-]+`(?:, )?)+)[a-z ,]*\| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \|$",
        PREEMPTION,
        re.MULTILINE,
    )
    shown = {
        name: tuple(float(weight) for weight in weights)
        for names, *weights in rows
        for name in re.findall(r"`([a-z-]+)`", names)
    }
    assert shown == {name: tuple(weights) for name, weights in WEIGHTS.items()}

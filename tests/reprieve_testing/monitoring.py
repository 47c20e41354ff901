"""The component `monitoring` as written, the metrics that the programs really export, and promtool.

Rules and dashboard name metrics and labels in PromQL. `metrics_in` finds them without a parser:
Prometheus' own, in promtool, reads every expression in the slow tests.
"""

import json
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from realcluster.binaries import build
from realcluster.progress import Progress
from reprieve_operator.metrics import OperatorMetrics
from reprieve_runtime.client.api import Api, PartialObjectMetadata
from reprieve_runtime.client.reflector import Reflector
from reprieve_testing import manifests
from reprieve_webhooks.checkpoints.metrics import ReportMetrics
from reprieve_webhooks.extender.metrics import ExtenderMetrics
from reprieve_webhooks.metrics import WebhookMetrics

COMPONENT = manifests.MANIFESTS / "components" / "monitoring"
TARGET_LABELS = frozenset({"job", "pod", "instance", "container"})
"""What a PodMonitor adds to each series. It adds `namespace` only where a metric has no own."""

OTHERS = {
    "up": frozenset[str](),  # Prometheus' own, for each target
    # kube-apiserver's: `tests/cluster/webhooks/test_failing.py` reads it from a real one.
    "apiserver_admission_webhook_fail_open_count": frozenset({"name", "type"}),
}
"""Metrics that are not ours, with their labels."""

_SELECTOR = re.compile(r"\b([a-z][a-z0-9_]*_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?(?!\()")
_MATCHER = re.compile(r'([a-z_]+)(=~|!~|!=|=)"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right) \(([^)]*)\)")
_NOT_METRICS = frozenset({"group_left", "group_right", "workload_type"})


_VALUES = {
    "outcome": ("saved", "unresponsive", "denied", "refused", "error", "ok"),
    "webhook": ("guard", "validate"),
    "kind": ("Pod", "Eviction"),
    "verb": ("patch", "evict"),
}
"""Values of labels, for a program in which something of each has happened."""


@dataclass(frozen=True)
class Selector:
    """One metric in an expression, with its matchers (label, operator, value)."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


def alerts() -> list[dict[str, Any]]:
    """Return every alert rule."""
    (rule,) = manifests.read(COMPONENT / "alerts.yaml")
    return [found for group in rule["spec"]["groups"] for found in group["rules"]]


def rule_groups() -> dict[str, Any]:
    """Return the rules as a rule file of Prometheus has them."""
    (rule,) = manifests.read(COMPONENT / "alerts.yaml")
    return {"groups": rule["spec"]["groups"]}


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    return cast(
        "dict[str, Any]", json.loads((COMPONENT / "dashboard.json").read_text(encoding="utf-8"))
    )


def panels() -> list[dict[str, Any]]:
    """Return the panels that show something: all but the headings."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> dict[str, str]:
    """Return the dashboard's queries by panel, as Grafana would send them for the last hour."""
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in panels()
        for target in panel["targets"]
    }
    variables = {"$__range": "1h", "$__rate_interval": "5m", "$namespace": ".*"}
    for variable, value in variables.items():
        found = {name: expr.replace(variable, value) for name, expr in found.items()}
    return found


def metrics_in(expression: str) -> list[Selector]:
    """Return the metrics of an expression, those of a histogram by the name of the histogram."""
    text = _GROUPING.sub("", expression)
    return [
        Selector(_family(name), tuple(_MATCHER.findall(matchers)))
        for name, matchers in _SELECTOR.findall(text)
        if name not in _NOT_METRICS
    ]


def labels_grouped_in(expression: str) -> set[str]:
    """Return the labels of `by (…)` and the like."""
    return {
        label.strip()
        for listed in _GROUPING.findall(expression)
        for label in listed.split(",")
        if label.strip()
    }


def _family(name: str) -> str:
    base = re.sub(r"_(?:bucket|sum|count)$", "", name)
    return base if base in registered() else name


@cache
def registered() -> dict[str, frozenset[str]]:
    """Return the labels of each metric that a program exports, by the name that PromQL uses."""
    found: dict[str, frozenset[str]] = {}
    for metrics, registry in _programs():
        labels = {
            metric._name: frozenset(metric._labelnames)
            for metric in metrics
            if isinstance(metric, Counter | Gauge | Histogram)
        }
        for family in registry.collect():
            shown = family.name + ("_total" if family.type == "counter" else "")
            sampled = {label for sample in family.samples for label in sample.labels}
            found[shown] = found.get(shown, frozenset()) | labels.get(
                family.name, frozenset(sampled - {"le"})
            )
            if family.type == "histogram":
                found[shown] |= {"le"}
    return found


def _programs() -> list[tuple[list[object], CollectorRegistry]]:
    """Return the metrics of both programs, and their registries, as the programs make them."""
    operator = OperatorMetrics()
    operator.register_victims(lambda: {"hinted": 1}, lambda: 0, lambda: 0.0)
    webhooks = WebhookMetrics()
    for labels in product(*(_VALUES[label] for label in ("webhook", "kind", "outcome"))):
        webhooks.reviews.count(*labels)
        webhooks.reviews.durations_of(labels[0]).observe(0.001)
    ReportMetrics(webhooks.registry)
    ExtenderMetrics(webhooks.registry)
    for certificate in ("ca", "serving"):
        webhooks.register_certificate_expiry(certificate, lambda: None)
    for metrics in (operator, webhooks):
        metrics.register_watches(
            lambda: {"pods": Reflector(cast("Api", None), "/pods", PartialObjectMetadata, id)}
        )
    return [
        (list(vars(operator).values()), operator.registry),
        (list(webhooks.registry._collector_to_names), webhooks.registry),
    ]


def exposition() -> dict[str, str]:
    """Return what `/metrics` of each program (job) says once each series exists."""
    shown = {}
    for job, (_, registry) in zip(
        ("reprieve-operator", "reprieve-webhooks"), _programs(), strict=True
    ):
        for metric in registry._collector_to_names:
            if isinstance(metric, Counter | Gauge | Histogram) and metric._labelnames:
                values = (_VALUES.get(label, ("some",)) for label in metric._labelnames)
                for chosen in product(*values):
                    metric.labels(*chosen)
        shown[job] = generate_latest(registry).decode()
    return shown


def promtool(*words: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool, built from its pinned modules where it is not cached."""
    program = build.ensure(("promtool",), Progress())["promtool"]
    return subprocess.run(
        [program, *words], input=stdin, capture_output=True, text=True, timeout=120, check=False
    )

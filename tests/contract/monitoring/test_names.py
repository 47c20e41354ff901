"""What alerts and dashboard ask for exists: metrics, labels and values are those of the programs.

Without this, a renamed metric leaves an alert that never fires and a panel that is always empty.
"""

import json
import re
from collections.abc import Iterable

import pytest

from reprieve_policy.lifecycle.eviction import CheckpointOutcome
from reprieve_testing import manifests, monitoring
from reprieve_testing.monitoring import Selector
from reprieve_webhooks.admission import handlers
from reprieve_webhooks.checkpoints.metrics import ReportOutcome
from reprieve_webhooks.extender.metrics import FALLBACKS, CallOutcome
from reprieve_webhooks.guard import handler as guard

EXPRESSIONS = {
    **{alert["alert"]: alert["expr"] for alert in monitoring.alerts()},
    **monitoring.queries(),
}
FAILURES = {outcome.value for outcome in CheckpointOutcome if outcome.is_failure}
REVIEWS = {
    *(handlers.ALLOWED, handlers.DENIED, handlers.PATCHED, handlers.WARNED, handlers.SKIPPED),
    *(guard.ALLOWED, guard.POSTPONED, guard.REFUSED, guard.WARNED, guard.SKIPPED),
    *("error", "malformed"),
}
VALUES: dict[tuple[str, str], Iterable[str]] = {
    ("reprieve_admission_reviews_total", "outcome"): REVIEWS,
    ("reprieve_admission_reviews_total", "webhook"): ("mutate", "validate", "guard"),
    ("reprieve_admission_reviews_total", "kind"): ("Pod", "Eviction"),
    ("reprieve_checkpoint_reports_total", "outcome"): ReportOutcome,
    ("reprieve_extender_calls_total", "outcome"): CallOutcome,
    ("reprieve_preemption_outcomes_total", "outcome"): CheckpointOutcome,
    ("reprieve_api_calls_total", "outcome"): ("ok", "404", "409", "429"),
    ("reprieve_api_calls_total", "verb"): ("evict",),
}
"""What may stand in a matcher: a typing error in a value matches nothing."""
ANY = re.compile(r"[.$]")
"""A pattern or a variable, not a list of values."""


def expression_of(alert: str) -> str:
    (found,) = [rule["expr"] for rule in monitoring.alerts() if rule["alert"] == alert]
    return str(found)


def labels_of(metric: str) -> frozenset[str]:
    return (monitoring.registered() | monitoring.OTHERS)[metric] | monitoring.TARGET_LABELS


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_every_metric_and_label_is_one_that_a_program_exports(expression: str) -> None:
    selectors = monitoring.metrics_in(expression)
    assert selectors, "no metric is recognised"
    known = set(monitoring.registered()) | set(monitoring.OTHERS)
    assert {selector.metric for selector in selectors} - known == set()
    for selector in selectors:
        assert {label for label, _, _ in selector.matchers} <= labels_of(selector.metric)
    grouped = monitoring.labels_grouped_in(expression)
    for selector in selectors if " by (" in expression and " / " not in expression else ():
        assert grouped <= labels_of(selector.metric), selector.metric


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_every_value_in_a_matcher_exists(expression: str) -> None:
    for selector in monitoring.metrics_in(expression):
        for label, operator, value in selector.matchers:
            if not ANY.search(value) and label != "job":
                values = value.split("|") if "~" in operator else [value]
                assert set(values) <= set(VALUES[selector.metric, label]), value


def test_alerts_select_the_outcomes_that_the_programs_call_failures() -> None:
    outcomes = monitoring.metrics_in(expression_of("ReprieveSavesFail"))[0].matchers
    assert outcomes == (("outcome", "=~", "unresponsive|timed-out|refused"),)
    assert set(outcomes[0][2].split("|")) == FAILURES
    (fallbacks, _) = monitoring.metrics_in(expression_of("ReprieveExtenderFallsBack"))
    # A system-critical preemptor is exempt on purpose.
    assert set(fallbacks.matchers[0][2].split("|")) == FALLBACKS - {CallOutcome.EXEMPT}


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {
        selector.metric
        for expression in monitoring.queries().values()
        for selector in monitoring.metrics_in(expression)
    }
    ours = {metric for metric in monitoring.registered() if metric.startswith("reprieve_")}
    assert ours - shown == set()


def test_metrics_are_found_in_expressions() -> None:
    text = 'sum by (pod) (rate(a_total{b="c",d!~"e|f"}[5m])) / on () group_left () up > time()'
    matchers = (("b", "=", "c"), ("d", "!~", "e|f"))
    assert monitoring.metrics_in(text) == [Selector("a_total", matchers), Selector("up", ())]
    assert monitoring.labels_grouped_in(text) == {"pod"}


def test_the_pod_monitor_selects_both_programs_and_their_port() -> None:
    (monitor,) = manifests.read(monitoring.COMPONENT / "podmonitor.yaml")
    (selector,) = monitor["spec"]["selector"]["matchExpressions"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    pods = [found["spec"]["template"] for found in manifests.of_kind("Deployment")]
    assert len(pods) == 2
    names = [pod["metadata"]["labels"][monitor["spec"]["jobLabel"]] for pod in pods]
    assert sorted(names) == sorted(selector["values"])
    assert sorted(names) == ["reprieve-operator", "reprieve-webhooks"]
    for pod in pods:
        ports = [port["name"] for one in pod["spec"]["containers"] for port in one["ports"]]
        assert endpoint["port"] in ports
    assert endpoint["honorLabels"] is True


def test_the_pod_monitor_reads_with_the_token_of_an_account_that_may_only_read_metrics() -> None:
    account, secret, binding = manifests.read(monitoring.COMPONENT / "account.yaml")
    (monitor,) = manifests.read(monitoring.COMPONENT / "podmonitor.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    named = endpoint["authorization"]["credentials"]["name"]
    assert (named, secret["type"]) == (
        secret["metadata"]["name"],
        "kubernetes.io/service-account-token",
    )
    owner = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    assert owner == account["metadata"]["name"] == binding["subjects"][0]["name"]
    assert binding["roleRef"]["name"] == "reprieve:metrics-reader"


def test_the_component_lists_all_its_files() -> None:
    (kustomization,) = manifests.read(monitoring.COMPONENT / "kustomization.yaml")
    (generated,) = kustomization["configMapGenerator"]
    files = {file.partition("=")[2] for file in generated["files"]} | {*kustomization["resources"]}
    present = {path.name for path in monitoring.COMPONENT.iterdir()} - {"kustomization.yaml"}
    assert files == present
    assert generated["options"]["labels"]["grafana_dashboard"] == "1"


def test_the_dashboard_fits_into_a_config_map_that_kubectl_applies() -> None:
    # `kubectl apply` keeps a copy in an annotation, and all annotations share 256 KiB.
    assert len(json.dumps(json.dumps(monitoring.dashboard()))) < 200_000


def test_every_panel_has_a_place_a_title_and_a_description() -> None:
    panels = monitoring.dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (panel["gridPos"]["x"] + dx, panel["gridPos"]["y"] + dy)
        for panel in panels
        for dx in range(panel["gridPos"]["w"])
        for dy in range(panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells), "panels overlap"
    assert max(x for x, _ in cells) < 24
    assert all(panel["title"] and panel["description"] for panel in monitoring.panels())

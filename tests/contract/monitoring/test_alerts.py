"""Each alert fires where it should, with its words filled in, and is quiet where it should be.

promtool evaluates the rules as Prometheus does. The first build of promtool takes minutes, so these
tests are slow; `test_names.py` has what is shown without it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reprieve_testing import monitoring

RULES = {rule["alert"]: rule for rule in monitoring.alerts()}
OPERATOR = 'job="reprieve-operator"'
WEBHOOKS = 'job="reprieve-webhooks"'
BUCKET = "reprieve_admission_duration_seconds_bucket"
GUARD = "reprieve_admission_reviews_total"
FAIL_OPEN = "apiserver_admission_webhook_fail_open_count"
OUTCOMES = "reprieve_preemption_outcomes_total"
LOST = "reprieve_preemption_failed_checkpoint_total"
DAY = 86_400


@dataclass(frozen=True)
class Case:
    """One value a minute of each series, in promtool's notation, and what follows at `at`."""

    series: Mapping[str, str]
    at: str = "30m"
    fires: tuple[dict[str, str], ...] = ()
    """The labels of each alert that fires, without its name and severity."""
    value: str = ""
    """`$value` as the annotations show it."""


@dataclass(frozen=True)
class Alert:
    """An alert's cases: where it fires, and where it is quiet although something is going on."""

    fires: Case
    quiet: Mapping[str, Case] = field(default_factory=dict)


ALERTS = {
    "ReprieveNoLeader": Alert(
        Case({f'reprieve_leader{{{OPERATOR},pod="a"}}': "1x10 0x30"}, fires=({},)),
        {
            "one of two leads": Case(
                {
                    f'reprieve_leader{{{OPERATOR},pod="a"}}': "0x40",
                    f'reprieve_leader{{{OPERATOR},pod="b"}}': "1x40",
                }
            ),
            "a failover takes a minute": Case(
                {f'reprieve_leader{{{OPERATOR},pod="a"}}': "1x28 0 1x10"}
            ),
        },
    ),
    "ReprieveWebhooksDown": Alert(
        Case({f'up{{{WEBHOOKS},pod="a"}}': "1x20 0x20"}, fires=({},)),
        {
            "one of two runs": Case(
                {f'up{{{WEBHOOKS},pod="a"}}': "0x40", f'up{{{WEBHOOKS},pod="b"}}': "1x40"}
            )
        },
    ),
    "ReprieveReplicaDown": Alert(
        Case(
            {
                f'up{{{OPERATOR},pod="a"}}': "1x5 0x40",
                f'up{{{OPERATOR},pod="b"}}': "1x40",
                'up{job="another",pod="c"}': "0x40",
            },
            fires=({"job": "reprieve-operator", "pod": "a"},),
        ),
        {"a replica is replaced": Case({f'up{{{OPERATOR},pod="a"}}': "1x22 0x7 1x10"})},
    ),
    "ReprieveDataOld": Alert(
        Case(
            {
                f'reprieve_facts_age_seconds{{{WEBHOOKS},pod="a",collection="pods"}}': "0+60x40",
                f'reprieve_facts_age_seconds{{{WEBHOOKS},pod="a",collection="nodes"}}': "60x40",
            },
            fires=({"job": "reprieve-webhooks", "collection": "pods"},),
            value="30m 0s",
        ),
        {
            "nothing changes": Case(
                {f'reprieve_facts_age_seconds{{{OPERATOR},collection="pods"}}': "62x40"}
            )
        },
    ),
    "ReprieveObjectsUnreadable": Alert(
        Case(
            {f'reprieve_unreadable_objects{{{OPERATOR},pod="a",collection="pods"}}': "2x40"},
            fires=({"job": "reprieve-operator", "collection": "pods"},),
            value="2",
        ),
        {
            "all are readable": Case(
                {f'reprieve_unreadable_objects{{{OPERATOR},collection="pods"}}': "0x40"}
            )
        },
    ),
    "ReprievePolicyUnreadable": Alert(
        Case(
            {
                f'reprieve_policy_is_good{{{WEBHOOKS},pod="a"}}': "1x20 0x20",
                f'reprieve_policy_is_good{{{WEBHOOKS},pod="b"}}': "1x40",
            },
            fires=({"job": "reprieve-webhooks"},),
        ),
        {"it is readable": Case({f"reprieve_policy_is_good{{{OPERATOR}}}": "1x40"})},
    ),
    "ReprieveApiErrors": Alert(
        Case(
            {
                'reprieve_api_calls_total{verb="patch",outcome="ok"}': "0+80x40",
                'reprieve_api_calls_total{verb="patch",outcome="500"}': "0+20x40",
            },
            fires=({"outcome": "500"},),
            value="20%",
        ),
        {
            "budgets hold evictions, and pods are gone or changed": Case(
                {
                    'reprieve_api_calls_total{verb="patch",outcome="ok"}': "0+10x40",
                    'reprieve_api_calls_total{verb="patch",outcome="409"}': "0+90x40",
                    'reprieve_api_calls_total{verb="delete",outcome="404"}': "0+90x40",
                    'reprieve_api_calls_total{verb="evict",outcome="429"}': "0+90x40",
                }
            ),
            "two calls in a hundred fail": Case(
                {
                    'reprieve_api_calls_total{verb="patch",outcome="ok"}': "0+98x40",
                    'reprieve_api_calls_total{verb="patch",outcome="503"}': "0+2x40",
                }
            ),
        },
    ),
    "ReprieveSweepLate": Alert(
        Case(
            {f'reprieve_last_sweep_timestamp_seconds{{{OPERATOR},pod="a"}}': "0x60"},
            at="50m",
            fires=({},),
        ),
        {
            "the leader sweeps every five minutes": Case(
                {
                    f'reprieve_last_sweep_timestamp_seconds{{{OPERATOR},pod="a"}}': "0x60",
                    f'reprieve_last_sweep_timestamp_seconds{{{OPERATOR},pod="b"}}': "0+60x60",
                },
                at="50m",
            )
        },
    ),
    "ReprieveEventsDropped": Alert(
        Case(
            {f'reprieve_events_dropped_total{{{OPERATOR},pod="a"}}': "0x20 30x20"},
            fires=({"job": "reprieve-operator", "pod": "a"},),
            value="30",
        ),
        {"none is dropped": Case({f"reprieve_events_dropped_total{{{OPERATOR}}}": "7x40"})},
    ),
    "ReprieveWebhooksFailOpen": Alert(
        Case(
            {
                f'{FAIL_OPEN}{{name="pods.reprieve.dev",type="validating",instance="a"}}': (
                    "_x25 1x20"
                ),
                f'{FAIL_OPEN}{{name="pods.reprieve.dev",type="admit",instance="a"}}': "_x27 1x20",
            },
            fires=({"name": "pods.reprieve.dev"},),
            value="2",
        ),
        {
            "another webhook fails": Case(
                {f'{FAIL_OPEN}{{name="pods.example.com"}}': "0+1x40"},
            ),
            "it failed an hour ago": Case(
                {f'{FAIL_OPEN}{{name="pods.reprieve.dev"}}': "5x100"}, at="90m"
            ),
        },
    ),
    "ReprieveWebhooksSlow": Alert(
        Case(
            {
                f'{BUCKET}{{webhook="guard",le="0.25"}}': "0+90x40",
                f'{BUCKET}{{webhook="guard",le="1.0"}}': "0+95x40",
                f'{BUCKET}{{webhook="guard",le="+Inf"}}': "0+100x40",
            },
            fires=({"webhook": "guard"},),
        ),
        {
            "reviews take a millisecond": Case(
                {
                    f'{BUCKET}{{webhook="guard",le="0.001"}}': "0+100x40",
                    f'{BUCKET}{{webhook="guard",le="1.0"}}': "0+100x40",
                    f'{BUCKET}{{webhook="guard",le="+Inf"}}': "0+100x40",
                }
            )
        },
    ),
    "ReprieveReviewsFail": Alert(
        Case(
            {f'{GUARD}{{{WEBHOOKS},webhook="validate",kind="Pod",outcome="error"}}': "_x28 1x10"},
            fires=({"webhook": "validate"},),
            value="1",
        ),
        {
            "objects are refused": Case(
                {f'{GUARD}{{webhook="validate",kind="Pod",outcome="denied"}}': "0+9x40"}
            )
        },
    ),
    "ReprieveServingCertificateEnds": Alert(
        Case(
            {
                'reprieve_serving_certificate_expiry_timestamp_seconds{pod="a"}': f"{6 * DAY}x40",
                'reprieve_serving_certificate_expiry_timestamp_seconds{pod="b"}': f"{60 * DAY}x40",
            },
            fires=({},),
        ),
        {
            "it ends in a month": Case(
                {"reprieve_serving_certificate_expiry_timestamp_seconds": f"{29 * DAY}x40"}
            ),
            "there is none for the first minutes": Case(
                {"reprieve_serving_certificate_expiry_timestamp_seconds": f"0x5 {90 * DAY}x40"}
            ),
        },
    ),
    "ReprieveCACertificateEnds": Alert(
        Case({"reprieve_ca_certificate_expiry_timestamp_seconds": "0x40"}, fires=({},)),
        {
            "it ends in four months": Case(
                {"reprieve_ca_certificate_expiry_timestamp_seconds": f"{120 * DAY}x40"}
            )
        },
    ),
    "ReprieveCertificateErrors": Alert(
        Case(
            {f'reprieve_certificate_errors_total{{{WEBHOOKS},pod="a"}}': "0+1x70"},
            at="60m",
            fires=({},),
            value="60",
        ),
        {
            "the API server was away for a moment": Case(
                {f"reprieve_certificate_errors_total{{{WEBHOOKS}}}": "0x20 2x60"}, at="60m"
            )
        },
    ),
    "ReprieveGuardRefuses": Alert(
        Case(
            {f'{GUARD}{{webhook="guard",kind="Pod",outcome="refused"}}': "0+1x100"},
            at="90m",
            fires=({"kind": "Pod"},),
        ),
        {
            "a preemptor is refused for half an hour": Case(
                {f'{GUARD}{{webhook="guard",kind="Pod",outcome="refused"}}': "0x50 0+1x30 30x20"},
                at="90m",
            ),
            "victims save first": Case(
                {f'{GUARD}{{webhook="guard",kind="Pod",outcome="postponed"}}': "0+1x100"}, at="90m"
            ),
        },
    ),
    "ReprieveExtenderFallsBack": Alert(
        Case(
            {
                'reprieve_extender_calls_total{outcome="chosen"}': "0+1x40",
                'reprieve_extender_calls_total{outcome="behind"}': "0+1x40",
            },
            fires=({},),
            value="50%",
        ),
        {
            "system-critical preemptors are exempt": Case(
                {
                    'reprieve_extender_calls_total{outcome="chosen"}': "0+1x40",
                    'reprieve_extender_calls_total{outcome="exempt"}': "0+9x40",
                }
            )
        },
    ),
    "ReprieveCheckpointReportsFail": Alert(
        Case(
            {
                'reprieve_checkpoint_reports_total{outcome="recorded"}': "0+1x60",
                'reprieve_checkpoint_reports_total{outcome="failed"}': "0+3x60",
            },
            at="50m",
            fires=({},),
            value="75%",
        ),
        {
            "agents repeat what is known": Case(
                {
                    'reprieve_checkpoint_reports_total{outcome="unchanged"}': "0+9x60",
                    'reprieve_checkpoint_reports_total{outcome="failed"}': "0+1x60",
                },
                at="50m",
            )
        },
    ),
    "ReprieveVictimsWait": Alert(
        Case(
            {f'reprieve_victim_queue_age_seconds{{{OPERATOR},pod="a"}}': "0x20 50x20"},
            fires=({},),
            value="50s",
        ),
        {
            "a victim waits for a second": Case(
                {f"reprieve_victim_queue_age_seconds{{{OPERATOR}}}": "1x40"}
            )
        },
    ),
    "ReprieveVictimsStuck": Alert(
        Case(
            {f"reprieve_stuck_victims{{{OPERATOR}}}": "0x10 2x30"},
            fires=({},),
            value="2",
        ),
        {"for five minutes": Case({f"reprieve_stuck_victims{{{OPERATOR}}}": "0x25 2x30"})},
    ),
    "ReprieveWorkLost": Alert(
        Case(
            {
                f'{LOST}{{{OPERATOR},namespace="team",reason="timed-out"}}': "_x20 1x70",
                f'{LOST}{{{OPERATOR},namespace="other",reason="refused"}}': "3x90",
            },
            at="65m",
            fires=({"namespace": "team", "reason": "timed-out"},),
            value="1",
        ),
        {
            "a victim was lost two hours ago": Case(
                {f'{LOST}{{namespace="team",reason="refused"}}': "_x10 1x200"}, at="130m"
            )
        },
    ),
    "ReprieveSavesFail": Alert(
        Case(
            {
                f'{OUTCOMES}{{outcome="saved"}}': "0+1x70",
                f'{OUTCOMES}{{outcome="timed-out"}}': "0+1x70",
                f'{OUTCOMES}{{outcome="skipped"}}': "0+50x70",
            },
            at="60m",
            fires=({},),
            value="50%",
        ),
        {
            "one of four victims": Case(
                {
                    f'{OUTCOMES}{{outcome="saved"}}': "0x30 3x40",
                    f'{OUTCOMES}{{outcome="timed-out"}}': "0x30 1x40",
                },
                at="60m",
            )
        },
    ),
    "ReprieveUncheckedClaims": Alert(
        Case({"reprieve_unchecked_claims": "4x100"}, at="90m", fires=({},), value="4"),
        {"until they are created anew": Case({"reprieve_unchecked_claims": "4x40 0x60"})},
    ),
    "ReprieveGangsDiverge": Alert(
        Case({"reprieve_diverging_gangs": "1x100"}, at="90m", fires=({},), value="1"),
        {"during a rollout": Case({"reprieve_diverging_gangs": "1x40 0x60"}, at="90m")},
    ),
    "ReprieveGangsNotStarted": Alert(
        Case(
            {'reprieve_gang_gate_failures_total{reason="incomplete"}': "_x20 1x40"},
            fires=({"reason": "incomplete"},),
            value="1",
        ),
        {
            "gangs are released": Case(
                {'reprieve_gang_gate_releases_total{reason="complete"}': "0+1x40"}
            )
        },
    ),
}
CASES = {
    f"{name}: {what}": (name, case)
    for name, alert in ALERTS.items()
    for what, case in {"fires": alert.fires, **alert.quiet}.items()
}


def filled_in(text: str, labels: Mapping[str, str], value: str) -> str:
    """Return a text of an alert as its reader gets it."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
    return re.sub(r"\{\{ \$value(?: \| \w+)? \}\}", value, text)


def expected(name: str, case: Case) -> list[dict[str, Any]]:
    rule = RULES[name]
    return [
        {
            "exp_labels": {**labels, **rule["labels"]},
            "exp_annotations": {
                key: filled_in(text, labels, case.value)
                for key, text in rule["annotations"].items()
            },
        }
        for labels in case.fires
    ]


def test_every_alert_has_cases() -> None:
    assert list(ALERTS) != []
    assert set(ALERTS) == set(RULES)
    assert all(alert.fires.fires and alert.quiet for alert in ALERTS.values())


@pytest.mark.slow
def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps(monitoring.rule_groups()))
    done = monitoring.promtool("check", "rules", "--lint-fatal", rules)
    assert done.returncode == 0, done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), CASES.values(), ids=CASES)
def test_the_alert_fires_or_is_quiet(name: str, case: Case, tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(monitoring.rule_groups()))
    test = {
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values} for series, values in case.series.items()
        ],
        "alert_rule_test": [
            {"eval_time": case.at, "alertname": name, "exp_alerts": expected(name, case)}
        ],
    }
    file = tmp_path / "test.json"
    file.write_text(
        json.dumps({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": [test]})
    )
    done = monitoring.promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr

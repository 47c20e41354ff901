"""The figures of victims come from the API server and the workloads, not from the operator."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.victims import audit, figures, pods, relay
from bench.victims.audit import PodChange
from bench.victims.figures import BARE, NOTIFIER, REPRIEVE, OperatorStart, Traffic, VictimsTurn
from bench.victims.workload import Workloads
from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config.settings import PolicySettings

OPERATOR = "system:serviceaccount:reprieve-system:reprieve-operator"


def an_entry(
    pod: str, verb: str, at: float, *, user: str = OPERATOR, status: int = 200
) -> PodChange:
    return PodChange(user, verb, "", pod, status, received_at=at, answered_at=at + 0.01)


def a_turn(contender: str = REPRIEVE, **fields: Any) -> VictimsTurn:
    told: dict[str, Any] = {
        "victims": 100,
        "bystanders": 1000,
        "round": 1,
        "hint_seconds": [0.1] * 98 + [0.5, 0.9] if contender == REPRIEVE else [],
        "marks_seconds": 2.0,
        "whole_seconds": 6.0 if contender == REPRIEVE else 3.0,
        "writes": {4: 99, 5: 1} if contender == REPRIEVE else {2: 100},
        "refused": 0,
        "cpu_seconds": 0.5,
        "api_server_cpu_seconds": 2.0,
        "rss_mib": 80.0,
        "calls": {"patch": 300, "delete": 100},
        "dropped_events": 0,
    }
    return VictimsTurn(contender=contender, **{**told, **fields})


def test_hints_count_from_the_marks_answer_and_the_whole_to_the_last_delete() -> None:
    entries = [
        an_entry("a", "create", 0.0, user=pods.ADMIN),
        an_entry("a", "patch", 10.0, user=pods.ADMIN),
        an_entry("b", "patch", 11.0, user=pods.ADMIN),
        an_entry("a", "patch", 10.2),
        an_entry("a", "delete", 12.0, status=409),
        an_entry("a", "delete", 13.0),
        an_entry("b", "delete", 14.0),
        an_entry("a", "patch", 20.0, user="kwok"),
    ]
    seen = figures.measure(entries, {"a": 10.51, "b": 12.01}, OPERATOR)

    assert seen["hint_seconds"] == pytest.approx([0.5, 1.0])
    assert seen["marks_seconds"] == pytest.approx(1.01)
    assert seen["whole_seconds"] == pytest.approx(4.01)
    assert seen["writes"] == {1: 1, 2: 1}
    assert seen["refused"] == 1


def test_the_ratio_is_to_the_bare_program_in_the_same_round() -> None:
    # The machine was ten times slower in the second round, for both.
    turns = [
        *(a_turn(whole_seconds=6.0), a_turn(BARE, whole_seconds=3.0)),
        *(a_turn(BARE, round=2, whole_seconds=30.0), a_turn(round=2, whole_seconds=60.0)),
    ]
    ours, bare = figures.summarise(turns)

    assert (ours.ratio, bare.ratio) == (2.0, 1.0)
    assert (ours.p50_seconds, ours.p99_seconds) == (0.1, 0.5)
    assert math.isnan(bare.p99_seconds)
    assert (ours.mean_writes, ours.most_writes) == (4.01, 5)


def test_the_table_is_aligned() -> None:
    assert figures.table(figures.summarise([a_turn(), a_turn(BARE, rss_mib=0.0)])).splitlines() == [
        (
            "victims               others  hint p50 s  p99 s  whole s  × bare    writes  CPU "
            "s/1,000  "
            "API server's  RSS MiB"
        ),
        (
            "100 Reprieve           1,000        0.10   0.50      6.0    2.00  4.0, ≤ 5        "
            "  5.0   "
            "       20.0       80"
        ),
        (
            "100 patch and delete   1,000                         3.0    1.00  2.0, ≤ 2        "
            "  5.0   "
            "       20.0         "
        ),
    ]


def test_times_and_cost_are_compared_when_the_other_pods_doubled() -> None:
    doubled = a_turn(
        bystanders=2000,
        hint_seconds=[0.2] * 98 + [0.4, 0.9],
        whole_seconds=5.5,
        cpu_seconds=0.52,
        rss_mib=78.0,
        api_server_cpu_seconds=2.2,
    )

    [sentence] = figures.doubled(figures.summarise([a_turn(), doubled, a_turn(victims=50)]))
    assert sentence == (
        "100 victims among 2,000 pods instead of 1,000: hint p50 0.10 → 0.20 s, p99 0.50 → "
        "0.40 s, whole 6.0 → 5.5 s; operator's CPU +4.0%, memory -2.5%, API server's CPU +10.0%"
    )


def test_the_duration_of_the_marks_is_reported_for_each_round() -> None:
    turns = [
        a_turn(),
        a_turn(BARE),
        a_turn(round=2, marks_seconds=3.0, hint_seconds=[0.3] * 100),
        a_turn(bystanders=2000),
    ]

    assert figures.by_round(turns) == [
        (
            "100 victims among 1,000 pods, by round: marks over 2.00, 3.00 s, hint p50 0.10, "
            "0.30 s, "
            "p99 0.50, 0.30 s"
        ),
        "100 victims among 2,000 pods, by round: marks over 2.00 s, hint p50 0.10 s, p99 0.50 s",
    ]


def test_the_wait_for_a_hint_is_compared_with_the_least_that_gives_notice_in_the_same_round() -> (
    None
):
    turns = [
        a_turn(),
        a_turn(NOTIFIER, hint_seconds=[0.05] * 98 + [0.2, 0.3], whole_seconds=4.0),
        a_turn(BARE),
        a_turn(round=2, hint_seconds=[0.9] * 100),
    ]

    [sentence] = figures.beside_notifier(turns)
    assert sentence == (
        "100 victims among 1,000 pods, beside watch, notify and delete: hint p50 +0.05 s, p99 "
        "+0.30 s; whole × 1.50"
    )


def test_the_first_patch_of_the_bare_notifier_and_the_admin_is_the_mark() -> None:
    entries = [
        an_entry("a", "patch", 1.0, user=pods.ADMIN),
        an_entry("a", "patch", 2.0, user=pods.ADMIN),
        an_entry("a", "delete", 3.0, user=pods.ADMIN),
    ]
    seen = figures.measure(entries, {"a": 2.51}, pods.ADMIN)
    assert seen["hint_seconds"] == pytest.approx([1.5])


def test_figures_without_a_table_are_reported_in_sentences() -> None:
    start = OperatorStart(
        bystanders=1000, rss_mib=70.4, idle_rss_mib=64.0, sweep_cpu_seconds=0.25, sweep_seconds=1.0
    )
    traffic = Traffic(
        contender=REPRIEVE,
        victims=10,
        sent=10_240,
        received={"watch pods": 102_390, "GET pods": 10},
        answers={"watch pods": 1, "GET pods": 1},
    )

    assert figures.sentences([a_turn(dropped_events=3), a_turn(BARE)], [start], [traffic]) == [
        "calls to the API server a victim, as the operator counts them: 1.00 delete, 3.00 patch",
        "3 Events were dropped",
        (
            "among 1,000 pods without a victim: RSS 64 MiB, 70 after a sweep, which takes 0.2 "
            "s of CPU "
            "in 1 s, every 5 minutes"
        ),
        "Reprieve: 1.0 KiB sent to the API server and 10.0 KiB received, a victim",
    ]


def test_received_bytes_are_listed_by_call_the_most_first() -> None:
    traffic = Traffic(
        contender=BARE,
        victims=10,
        sent=0,
        received={"GET jobs": 99, "DELETE pods": 51_200, "watch pods": 102_400},
        answers={"GET jobs": 1, "DELETE pods": 10},
    )

    assert figures.traffic_table(traffic).splitlines() == [
        "patch and delete receives  answers/victim  KiB/victim",
        "watch pods                           0.00       10.00",
        "DELETE pods                          1.00        5.00",
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "name"),
    [
        ("GET", "/api/v1/pods?watch=true", b"", 200, "watch pods"),
        ("POST", "/apis/events.k8s.io/v1/namespaces/n/events", b"{}", 201, "POST events"),
        ("GET", "/apis/batch/v1/namespaces/n/jobs/j", b"", 404, "GET jobs, 404"),
        ("PATCH", "/api/v1/namespaces/n/pods/p/status", b"{}", 200, "PATCH pods/status"),
        (
            "PATCH",
            "/api/v1/namespaces/n/pods/p",
            b'{"metadata":{"uid":"u","resourceVersion":"1","finalizers":[]}}',
            200,
            "PATCH pods, finalizer removed",
        ),
        ("GET", "/api/v1/namespaces", b"", 200, "GET namespaces"),
    ],
)
def test_calls_are_named_by_what_they_do(
    method: str, path: str, body: bytes, status: int, name: str
) -> None:
    place, _, query = path.partition("?")

    assert relay.name_of(method, place, dict.fromkeys(query.split("=")[:1], ""), body, status) == (
        name
    )


def test_reasons_to_mistrust_a_turn_are_reported() -> None:
    assert figures.doubts([a_turn(), a_turn(BARE)]) == []
    assert figures.doubts([a_turn(hint_seconds=[0.1] * 99, writes={4: 97, 7: 2})]) == [
        "1 victims were never hinted",
        "1 victims are not in the audit log",
        "2 victims got more than 6 writes",
    ]


def test_the_document_holds_each_turn_as_it_was_measured() -> None:
    turn = a_turn(calls=Counter(patch=300))  # as the measurement counts them
    written = json.loads(json.dumps(figures.document([turn], conditions={"cores": 2})))

    assert written["turns"][0]["writes"] == {"4": 99, "5": 1}
    assert written["turns"][0]["calls"] == {"patch": 300}
    assert written["conditions"] == {"cores": 2}


def test_the_audit_log_is_read_with_its_full_predecessor(tmp_path: Path) -> None:
    def line(namespace: str, pod: str, verb: str) -> str:
        return json.dumps(
            {
                "verb": verb,
                "user": {"username": pods.ADMIN},
                "objectRef": {"resource": "pods", "namespace": namespace, "name": pod},
                "responseStatus": {"code": 200},
                "requestReceivedTimestamp": "2026-11-22T02:00:00.000000Z",
                "stageTimestamp": "2026-11-22T02:00:00.250000Z",
            },
            separators=(",", ":"),
        )

    hung_up = line("here", "a", "patch").replace("responseStatus", "annotations")
    (tmp_path / "audit-2026-11-22T02-00-01.000.log").write_text(line("here", "a", "patch") + "\n")
    (tmp_path / "audit.log").write_text(
        f"{line('there', 'a', 'patch')}\n{line('here', 'a', 'delete')}\n{hung_up}\n"
    )
    found = audit.read(tmp_path / "audit.log", "here")

    assert [entry.verb for entry in found] == ["patch", "delete"]
    assert found[0].answered_at - found[0].received_at == 0.25


def test_a_victims_hint_names_the_victim() -> None:
    victim = pods.victim("here", 7, nodes=2, port=4711)
    plan = checkpoint_plan.read_leniently(victim["metadata"]["annotations"], PolicySettings())

    assert plan.hint == checkpoint_plan.HttpHint(port=4711, path="/here/pod-7")
    assert victim["spec"]["nodeName"] == "kwok-1"
    assert keys.CHECKPOINT_HINT not in pods.bystander(7, nodes=2)["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("answer", "states"), [("saving", ["saving", "saved"]), ("saved", ["saved", "idle"])]
)
def test_a_workload_gives_the_configured_answer_and_records_its_first_hint(
    answer: str, states: list[str]
) -> None:
    workloads = Workloads(answer)
    lines = [
        workloads.answer("", "POST", "/here/pod-7", b'{"id":"7"}'),
        workloads.answer("", "GET", "/here/pod-7", b""),
    ]

    assert [document["state"] for document in lines] == states
    assert list(workloads.answer("", "GET", "/heard/here", b"")) == ["pod-7"]
    assert workloads.answer("", "GET", "/heard/here", b"") == {}

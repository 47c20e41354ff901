"""The benchmark sends the reviews that it describes, and its table has what was measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench import figures, reviews
from bench.figures import WebhooksTurn
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config import preemption_class
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import ObjectMeta, Resource
from reprieve_webhooks.admission import review
from reprieve_webhooks.admission.review import Malformed

REFERENCE = "slow"
SIZES = (4096, 30720)


def a_turn(server: str, number: int, requests: int, size: int = 4096) -> WebhooksTurn:
    return WebhooksTurn(
        server=server,
        size=size,
        round=number,
        seconds=2.0,
        microseconds={500: requests - 1, 9000: 1},
        server_cpu_seconds=1.0,
        load_cpu_seconds=0.5,
        rss_mib=40.0,
    )


@pytest.mark.parametrize("size", [*SIZES, 3500])
def test_a_review_has_the_size_that_was_asked_for(size: int) -> None:
    assert [len(asked.body) for asked in reviews.build(size)] == [size] * reviews.COUNT


def test_a_size_below_that_of_a_pod_is_refused() -> None:
    with pytest.raises(ValueError, match="a review of a pod has at least"):
        reviews.build(1000)


def test_reviews_of_one_size_are_distinguished_by_their_uid() -> None:
    assert len({asked.uid for asked in reviews.build(4096)}) == reviews.COUNT


@pytest.mark.parametrize("size", SIZES)
def test_every_review_is_decided_by_our_rules_as_the_peers_must_decide_it(size: int) -> None:
    priority_class = Resource(
        metadata=ObjectMeta(name=reviews.PRIORITY_CLASS), value=reviews.PRIORITY
    )
    facts = Facts(priority_classes={reviews.PRIORITY_CLASS: priority_class})
    for asked in reviews.build(size):
        request = review.parse(asked.body)
        assert not isinstance(request, Malformed)
        assert request.object is not None
        verdict = decide_admission(request.object, None, facts, user=request.user_info.username)
        assert (verdict.is_allowed, verdict.warnings) == (asked.allowed, ())
        if not asked.allowed:
            assert int(verdict.status) == asked.code


def test_the_admitted_classes_are_those_of_a_namespace_without_a_policy() -> None:
    assert reviews.HIGHEST_ALLOWED == preemption_class.HIGHEST_UNLISTED


def test_the_load_generators_line_is_json_with_the_expected_answer() -> None:
    refused = reviews.build(4096)[-1]
    line = json.loads(refused.line())
    assert line["body"] == json.loads(refused.body)
    assert {name: line[name] for name in ("uid", "allowed", "code")} == {
        "uid": refused.uid,
        "allowed": False,
        "code": 400,
    }


def test_a_percentile_is_a_latency_that_was_seen() -> None:
    seen = {100: 50, 200: 49, 7000: 1}
    assert [figures.percentile(seen, share) for share in (0.5, 0.51, 0.99, 1.0)] == [
        100,
        200,
        200,
        7000,
    ]
    with pytest.raises(ValueError, match="no request"):
        figures.percentile({}, 0.5)


def test_a_ratio_is_of_the_same_round() -> None:
    # Twice as fast in every round, on a machine that slowed to a tenth in the second.
    turns = [
        a_turn("fast", 1, 2000),
        a_turn(REFERENCE, 1, 1000),
        a_turn("fast", 2, 200),
        a_turn(REFERENCE, 2, 100),
    ]
    fast, slow = figures.summarise(turns, REFERENCE)[4096]
    assert (fast.server, fast.ratio, slow.server, slow.ratio) == ("fast", 2.0, REFERENCE, 1.0)


def test_rows_are_medians_over_rounds_for_each_size() -> None:
    turns = [
        a_turn(REFERENCE, number, requests) for number, requests in enumerate((900, 1000, 5000))
    ]
    turns.append(a_turn(REFERENCE, 1, 50, size=30720))
    summary = figures.summarise(turns, REFERENCE)
    (row,) = summary[4096]
    assert list(summary) == [4096, 30720]
    assert row.requests_per_second == 500.0
    assert (row.p50_ms, row.p99_ms, row.cpu_seconds_per_thousand, row.rss_mib) == (
        0.5,
        0.5,
        1.0,
        40.0,
    )


def test_the_table_is_aligned_and_names_the_reference_of_the_ratios() -> None:
    rows = figures.summarise([a_turn("fast", 1, 6000), a_turn(REFERENCE, 1, 1000)], REFERENCE)[4096]
    assert figures.table(rows, REFERENCE).splitlines() == [
        "server  requests/s  p50 ms  p99 ms  CPU s/1,000  RSS MiB  × slow",
        "fast         3,000    0.50    0.50        0.167       40    6.00",
        "slow           500    0.50    0.50        1.000       40    1.00",
    ]


def test_a_saturated_load_generator_is_reported() -> None:
    calm = a_turn("fast", 1, 1000)
    assert figures.doubts([calm]) == []
    (doubt,) = figures.doubts([calm, replace(calm, load_cpu_seconds=1.9)])
    assert doubt == (
        "the load generator was busy 95% of its core against fast, which may be faster than shown"
    )


def test_the_document_holds_each_turn_as_it_was_measured() -> None:
    turn = a_turn(REFERENCE, 1, 1000)
    written = json.loads(json.dumps(figures.document([turn], REFERENCE, {"cores": 2})))
    assert written["turns"][0]["microseconds"] == {"500": 999, "9000": 1}
    assert written["rows"]["4096"][0]["requests_per_second"] == 500.0

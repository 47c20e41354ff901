"""A policy's cost is separated from the machine's load; only its own objects are in place."""

from __future__ import annotations

import json

import pytest
import yaml

from bench import added, pods, policies
from bench.added import AdmissionTurn
from bench.policies import Policy
from bench.servers import Server
from realcluster.install import BASE
from reprieve_policy.keys import PREEMPTION_CLASS

NOTHING = "nothing"
SERVER = Server("Reprieve", 8443, 1, "192.0.2.1")


def a_turn(
    contender: str, number: int, milliseconds: float, *, clients: int = 1, failed_open: int = 0
) -> AdmissionTurn:
    return AdmissionTurn(
        contender=contender,
        clients=clients,
        round=number,
        seconds=1.0,
        microseconds={round(milliseconds * 1000): 98, round(milliseconds * 3000): 2},
        server_cpu_seconds=0.1,
        api_server_cpu_seconds=milliseconds / 10,
        failed_open=failed_open,
    )


def test_the_addition_is_the_difference_within_a_round() -> None:
    # The machine was ten times slower in the second round, for both.
    turns = [
        *(a_turn("policy", 1, 3.0), a_turn(NOTHING, 1, 2.0)),
        *(a_turn(NOTHING, 2, 20.0), a_turn("policy", 2, 21.0)),
    ]
    row = added.summarise(turns, NOTHING)[1]["policy"]

    assert (row.added_p50_ms, row.added_p99_ms) == (1.0, 3.0)
    assert row.server_cpu_seconds_per_thousand == 1.0
    assert row.added_api_server_cpu_seconds_per_thousand == pytest.approx(1.0)


def test_no_policy_adds_nothing_with_any_number_of_clients() -> None:
    summary = added.summarise(
        [a_turn(NOTHING, 1, 2.0), a_turn(NOTHING, 1, 9.0, clients=16)], NOTHING
    )

    assert {clients: rows[NOTHING].added_p50_ms for clients, rows in summary.items()} == {
        1: 0.0,
        16: 0.0,
    }


def test_a_ratio_is_of_whole_creations_in_the_same_round() -> None:
    turns = [a_turn("a", 1, 2.2), a_turn("b", 1, 2.0), a_turn("a", 2, 11.0), a_turn("b", 2, 10.0)]

    assert added.ratio(turns, "a", "b", 1, 0.5) == pytest.approx(1.1)


def test_processor_time_is_compared_by_what_is_added_in_all_rounds() -> None:
    turns = [
        *(a_turn(NOTHING, 1, 2.0), a_turn("a", 1, 5.0), a_turn("b", 1, 4.0)),
        *(a_turn("b", 2, 11.0), a_turn(NOTHING, 2, 10.0), a_turn("a", 2, 13.0)),
        a_turn("a", 1, 9.0, clients=16),
    ]

    assert added.cpu_ratio(turns, "a", "b", NOTHING, 1) == pytest.approx(6.0 / 3.0)


def test_copies_of_a_policy_are_bound_to_themselves() -> None:
    copies = policies.copied(policies.by_hand(), 3)

    names = [f"by-hand.bench.reprieve.dev-{number}" for number in range(3)]
    assert [item["metadata"]["name"] for item in copies] == [
        name for name in names for _ in ("policy", "binding")
    ]
    assert [item["spec"]["policyName"] for item in copies[1::2]] == names


def test_webhook_calls_that_failed_open_are_reported() -> None:
    turns = [
        a_turn("a", 1, 2.0, failed_open=2),
        a_turn("a", 2, 2.0, failed_open=1),
        a_turn("b", 1, 2.0),
    ]

    assert added.doubts(turns) == [
        "3 calls for a failed, and their pods were admitted without a review"
    ]


def test_the_table_is_aligned() -> None:
    rows = added.summarise([a_turn("policy", 1, 3.0), a_turn(NOTHING, 1, 2.0)], NOTHING)[1]

    assert added.table([rows[NOTHING], rows["policy"]]).splitlines() == [
        "contender  p50 ms  p99 ms  added p50  added p99  CPU s/1,000  API server's",
        "nothing      2.00    6.00      +0.00      +0.00        1.000        +0.000",
        "policy       3.00    9.00      +1.00      +3.00        1.000        +1.000",
    ]


def test_the_document_holds_each_turn_as_it_was_measured() -> None:
    written = json.loads(
        json.dumps(added.document([a_turn(NOTHING, 1, 2.0)], NOTHING, conditions={"cores": 2}))
    )

    assert written["turns"][0]["microseconds"] == {"2000": 98, "6000": 2}
    assert written["conditions"] == {"cores": 2}


def test_webhooks_are_called_on_the_server_that_is_measured_and_nothing_else_of_them_changes() -> (
    None
):
    documents = list(yaml.safe_load_all((BASE / "webhook-configurations.yaml").read_text()))
    pointed = policies.switched(documents, SERVER, "Y2E=")

    assert [item["kind"] for item in pointed] == [item["kind"] for item in documents]
    for before, after in zip(documents, pointed, strict=True):
        for webhook, called in zip(before["webhooks"], after["webhooks"], strict=True):
            path = webhook["clientConfig"]["service"]["path"]
            assert called["clientConfig"] == {
                "url": f"https://192.0.2.1:8443{path}",
                "caBundle": "Y2E=",
            }
            assert called | {"clientConfig": 0} == webhook | {"clientConfig": 0}


def test_a_policys_objects_determine_how_it_is_probed() -> None:
    both = tuple(
        policies.of_controller_runtime(SERVER, "Y2E=", f"{how}WebhookConfiguration")
        for how in ("Validating", "Mutating")
    )

    assert (Policy("both", both).validates, Policy("both", both).mutates) == (True, True)
    assert (Policy("one", both[:1]).validates, Policy("one", both[:1]).mutates) == (True, False)
    assert (Policy("none", ()).validates, Policy("none", ()).mutates) == (False, False)
    assert Policy("by hand", policies.by_hand()).validates


def test_every_created_pod_has_a_class_and_a_probe_has_the_probed_one() -> None:
    made = [json.loads(line) for line in pods.lines().splitlines()]

    assert [pod["metadata"]["labels"][PREEMPTION_CLASS] for pod in made] == [
        str(number) for number in range(7)
    ]
    assert PREEMPTION_CLASS not in pods.probe()["metadata"]["labels"]
    assert pods.probe("11")["metadata"]["labels"][PREEMPTION_CLASS] == "11"

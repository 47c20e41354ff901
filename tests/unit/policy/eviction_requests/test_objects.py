"""A native Eviction as the responder reads it, and which new pods name the responder."""

import json
from typing import Any

import msgspec
import pytest

from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.eviction_requests import objects
from reprieve_policy.eviction_requests.objects import (
    RESPONDER_NAME,
    EvictionSpec,
    EvictionStatus,
    PodReference,
    ReportedStatus,
    ResponderAssignment,
    ResponderTurn,
)
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import NameOnly
from reprieve_policy.verdict import ListAddition
from reprieve_testing.builders import NOW, PodBuilder, a_pod, after

POD = {"name": "train", "uid": "pod-uid"}
STARTED = "2026-11-21T12:00:00Z"
WANTS = {"name": "acme.io/drainer", "intent": "Eviction"}
WITHDRAWN = {"name": "acme.io/drainer", "intent": "Withdrawn"}


def read(
    state: str = "Active",
    *,
    pod: Any = POD,
    own: Any = None,
    name: str = RESPONDER_NAME,
    **status: Any,
) -> ResponderAssignment | None:
    spec = {"target": {} if pod is None else {"pod": pod}}
    document = {
        "targetResponders": [
            {"name": "other.io/first", "state": "Completed"},
            {"name": name, "state": state},
        ],
        "responders": [
            {"name": "other.io/first"},
            {"name": name, "startTime": STARTED, **(own or {})},
        ],
        "requesters": [WANTS],
        **status,
    }
    return objects.read(
        "uid",
        msgspec.json.decode(json.dumps(spec), type=EvictionSpec),
        msgspec.json.decode(json.dumps(document), type=EvictionStatus),
    )


def turn_of(*args: Any, **kwargs: Any) -> ResponderTurn:
    found = read(*args, **kwargs)
    assert found is not None
    return found.turn


def condition(kind: str, reason: str, status: str = "True") -> Any:
    return {"conditions": [{"type": kind, "status": status, "reason": reason}]}


TURNS: dict[str, tuple[ResponderTurn, ResponderTurn]] = {
    "active": (turn_of("Active"), ResponderTurn.ACTIVE),
    "not yet": (turn_of("Inactive"), ResponderTurn.INACTIVE),
    "handed on for want of a heartbeat": (turn_of("Interrupted"), ResponderTurn.INACTIVE),
    "done, as the controller has seen": (turn_of("Completed"), ResponderTurn.INACTIVE),
    "done, as the controller has not seen yet": (
        turn_of(own={"completionTime": STARTED}),
        ResponderTurn.INACTIVE,
    ),
    "cancelled": (turn_of("Canceled"), ResponderTurn.CANCELLED),
    "cancelled, by its condition": (
        turn_of("Interrupted", **condition("Failed", "CanceledDueToNoRequesters")),
        ResponderTurn.CANCELLED,
    ),
    "withdrawn by all requesters": (turn_of(requesters=[WITHDRAWN]), ResponderTurn.CANCELLED),
    "withdrawn by one of two": (turn_of(requesters=[WITHDRAWN, WANTS]), ResponderTurn.ACTIVE),
    "without requesters": (turn_of(requesters=[]), ResponderTurn.ACTIVE),
    "over: the pod is evicted": (
        turn_of(**condition("TargetEvicted", "PodDeleted")),
        ResponderTurn.INACTIVE,
    ),
    "over: it failed": (
        turn_of(**condition("Failed", "NoFurtherResponder")),
        ResponderTurn.INACTIVE,
    ),
    "in progress, by its conditions": (
        turn_of(**condition("Failed", "AwaitingEviction", "False")),
        ResponderTurn.ACTIVE,
    ),
}


@pytest.mark.parametrize(("turn", "want"), TURNS.values(), ids=TURNS)
def test_the_turn_of_the_responder(turn: ResponderTurn, want: ResponderTurn) -> None:
    assert turn is want


def test_the_request_and_our_report_are_read() -> None:
    own = {
        "heartbeatTime": "2026-11-21T12:00:05Z",
        "expectedCompletionTime": "2026-11-21T12:10:00Z",
        "message": "saving",
    }
    assert read(own=own) == ResponderAssignment(
        uid="uid",
        pod=PodReference(name="train", uid="pod-uid"),
        turn=ResponderTurn.ACTIVE,
        requesters=("acme.io/drainer",),
        reported=ReportedStatus(
            started_at=NOW, heartbeat_at=after(5), expected_at=after(600), message="saving"
        ),
    )


def test_a_requester_that_has_withdrawn_does_not_count() -> None:
    found = read(requesters=[WITHDRAWN, {"name": "b.io/x", "intent": "Eviction"}])
    assert found is not None
    assert found.requesters == ("b.io/x",)


def test_a_status_without_our_report_is_empty() -> None:
    found = read(responders=None)
    assert found is not None
    assert found.reported == ReportedStatus()


@pytest.mark.parametrize(
    "found", [read(pod=None), read(name="other.io/x"), objects.read("uid", None, None)]
)
def test_an_eviction_that_does_not_name_us_is_ignored(found: ResponderAssignment | None) -> None:
    assert found is None


SERVED = Facts(settings=PolicySettings(eviction_responder=True), eviction_api_served=True)
OURS = {"name": RESPONDER_NAME, "priority": 20_000}
ADDED = ListAddition("/spec/evictionResponders", OURS, list_exists=False)
MORE = ListAddition("/spec/evictionResponders", OURS, list_exists=True)


def with_responders(*names: str) -> PodBuilder:
    return (
        a_pod()
        .with_hint()
        .with_containers(evictionResponders=tuple(NameOnly(name=name) for name in names))
    )


CREATED: dict[str, tuple[PodBuilder, Facts, ListAddition | None]] = {
    "one with a hint gets us": (a_pod().with_hint(), SERVED, ADDED),
    "one that polls gets us": (a_pod().with_checkpoint("auto"), SERVED, ADDED),
    "one that wants no checkpoint does not": (a_pod(), SERVED, None),
    "nor one with checkpoint none": (a_pod().with_hint().with_checkpoint("none"), SERVED, None),
    "nor one of a native group": (a_pod().with_hint().in_native_gang("train"), SERVED, None),
    "nor one that has us": (with_responders(RESPONDER_NAME), SERVED, None),
    "beside others": (with_responders("a.io/x"), SERVED, MORE),
    "to an empty list": (with_responders(), SERVED, MORE),
    "not beside ten others": (
        with_responders(*(f"a.io/{number}" for number in range(10))),
        SERVED,
        None,
    ),
    "not if the policy does not want it": (
        a_pod().with_hint(),
        Facts(eviction_api_served=True),
        None,
    ),
    "not where they are not served": (a_pod().with_hint(), Facts(settings=SERVED.settings), None),
}


@pytest.mark.parametrize(("pod", "facts", "want"), CREATED.values(), ids=CREATED)
def test_which_new_pods_name_us(pod: PodBuilder, facts: Facts, want: ListAddition | None) -> None:
    changes = decide_defaults(pod.build(), None, facts)
    found = [change for change in changes if isinstance(change, ListAddition)]
    assert found == ([] if want is None else [want])


def test_only_new_pods_do() -> None:
    pod = a_pod().with_hint().build()
    assert decide_defaults(pod, pod, SERVED) == ()
    assert not objects.wants_responder(a_pod().with_hint().in_template_of("Job"), SERVED.settings)

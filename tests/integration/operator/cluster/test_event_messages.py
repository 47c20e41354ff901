"""The operator's parts without I/O: endpoints, delivery states, pod states, Event notes."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest

from reprieve_operator.checkpointing import delivery, endpoints
from reprieve_operator.checkpointing.delivery import DeliveryState
from reprieve_operator.checkpointing.endpoints import HttpEndpoint
from reprieve_operator.checkpointing.transport import ReplyKind
from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.event_recorder import REASONS
from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy import keys
from reprieve_policy.checkpointing.checkpoint_plan import FileHint, GrpcHint, HttpHint, SignalHint
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import (
    Checkpoint,
    CheckpointOutcome,
    Device,
    Eviction,
    Phase,
    RecordedCost,
    Source,
)
from reprieve_policy.lifecycle.transitions import TABLE, Observation

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HINT = HttpHint(8080, "/checkpoint?x=%2F")


def pod(**fields: Any) -> VictimPod:
    document = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", **fields.pop("metadata", {})},
        **fields,
    }
    return msgspec.convert(document, VictimPod)


def at(address: str, host: str = "10.0.0.1", **spec: Any) -> VictimPod:
    return pod(status={"phase": "Running", "podIP": address, "hostIP": host}, spec=spec)


CLASSES_OF_LABELS = {
    "the class of the pod's label": ("3", NamespacePolicy(), 3),
    "the highest class that the Namespace allows": ("9", NamespacePolicy(), 6),
    "the class of the pod's label, where the Namespace allows it": (
        "9",
        NamespacePolicy(allowed_classes=ClassSet(frozenset({9}))),
        9,
    ),
    "the Namespace's default, without a label": ("none", NamespacePolicy(default_class=2), 2),
    "the default of the cluster without any other": ("none", NamespacePolicy(), 4),
}


@pytest.mark.parametrize(
    ("label", "policy", "want"), CLASSES_OF_LABELS.values(), ids=CLASSES_OF_LABELS
)
def test_the_request_names_the_class(label: str, policy: NamespacePolicy, want: int) -> None:
    victim = pod(metadata={"labels": {keys.PREEMPTION_CLASS: label}})
    state = Eviction(eviction_id="e", phase=Phase.HINTED, requested_at=NOW, deadline=NOW)
    assert pod_state.request_of(victim, state, PolicySettings(), policy).preemption_class == want


EXTENSIONS = {
    "before the ceiling": ({"deadline": NOW + timedelta(seconds=1799)}, {}, True),
    "no extension at the ceiling": ({"deadline": NOW + timedelta(seconds=1800)}, {}, False),
    "no second extension": ({"deadline": NOW, "phase": Phase.EXTENDED}, {}, False),
    "no extension if extensions are off": ({"deadline": NOW}, {"extension_percent": 0}, False),
}


@pytest.mark.parametrize(("fields", "settings", "want"), EXTENSIONS.values(), ids=EXTENSIONS)
def test_the_request_says_whether_an_extension_is_possible(
    fields: Any, settings: Any, *, want: bool
) -> None:
    state = Eviction(**{"eviction_id": "e", "phase": Phase.HINTED, "requested_at": NOW} | fields)
    assert (
        pod_state.request_of(pod(), state, PolicySettings(**settings), NamespacePolicy()).may_extend
        is want
    )


CALLED = {
    "a pod's own address": ("10.244.1.7", "http://10.244.1.7:8080/checkpoint?x=%2F"),
    "a public address": ("8.8.4.4", "http://8.8.4.4:8080/checkpoint?x=%2F"),
    "an IPv6 address, in brackets": ("fd00::7", "http://[fd00::7]:8080/checkpoint?x=%2F"),
    "an IPv4-mapped IPv6 address": (
        "::ffff:10.244.1.7",
        "http://10.244.1.7:8080/checkpoint?x=%2F",
    ),
}


@pytest.mark.parametrize(("address", "want"), CALLED.values(), ids=CALLED)
def test_a_hint_is_sent_to_the_address_of_the_pod(address: str, want: str) -> None:
    target = endpoints.resolve(at(address), HINT, allow_loopback=False)
    assert isinstance(target, HttpEndpoint)
    assert str(target.url) == want


REFUSED = {
    "loopback": "127.0.0.1",
    "IPv4-mapped loopback": "::ffff:127.0.0.1",
    "the node's own, IPv4-mapped": "::ffff:10.0.0.1",
    "IPv6 loopback": "::1",
    "cloud metadata, link-local": "169.254.169.254",
    "IPv6 link-local": "fe80::1",
    "cloud metadata of Alibaba": "100.100.100.200",
    "cloud metadata of Azure": "168.63.129.16",
    "cloud metadata of Oracle": "192.0.0.192",
    "cloud metadata of AWS, IPv6": "fd00:ec2::254",
    "the credentials of EKS's pods, IPv6": "fd00:ec2::23",
    "cloud metadata of Scaleway, IPv6": "fd00:42::42",
    "cloud metadata of Google, IPv6": "fd20:ce::254",
    "cloud metadata, NAT64": "64:ff9b::a9fe:a9fe",
    "cloud metadata, local NAT64": "64:ff9b:1::a9fe:a9fe",
    "cloud metadata, 6to4": "2002:a9fe:a9fe::1",
    "cloud metadata, Teredo": "2001:0:1:2:3:4:5601:5601",
    "cloud metadata, IPv4-compatible": "::169.254.169.254",
    "cloud metadata, IPv4-translated": "::ffff:0:169.254.169.254",
    "multicast": "224.0.0.1",
    "broadcast, reserved": "255.255.255.255",
    "unspecified": "0.0.0.0",
    "the node's own": "10.0.0.1",
    "no address": "",
    "a name": "metadata.google.internal",
}


@pytest.mark.parametrize("address", REFUSED.values(), ids=REFUSED)
def test_a_hint_is_sent_to_no_other_address(address: str) -> None:
    assert isinstance(endpoints.resolve(at(address), HINT, allow_loopback=False), str)
    assert isinstance(endpoints.resolve(at(address), GrpcHint(9000), allow_loopback=False), str)


def test_a_grpc_hint_is_sent_to_the_same_address() -> None:
    found = endpoints.resolve(at("fd00::7"), GrpcHint(9000), allow_loopback=False)
    assert found == endpoints.GrpcEndpoint(ip_address("fd00::7"), 9000)


def test_a_pod_on_its_nodes_network_is_not_called() -> None:
    assert isinstance(
        endpoints.resolve(at("10.0.0.1", hostNetwork=True), HINT, allow_loopback=True), str
    )


def test_loopback_is_called_where_nodes_are_simulated() -> None:
    target = endpoints.resolve(at("127.1.0.5", host="127.0.0.1"), HINT, allow_loopback=True)
    assert isinstance(target, HttpEndpoint)
    assert str(target.url) == "http://127.1.0.5:8080/checkpoint?x=%2F"


@pytest.mark.parametrize("hint", [FileHint("/run/x/request"), SignalHint("USR1", "main")])
def test_the_agent_is_called_at_its_own_port_for_files_and_signals(
    hint: FileHint | SignalHint,
) -> None:
    target = endpoints.resolve(
        at("10.244.1.7", initContainers=[{"name": "reprieve-agent"}]), hint, allow_loopback=False
    )
    assert isinstance(target, HttpEndpoint)
    assert str(target.url) == "http://10.244.1.7:10473/"


def test_a_file_hint_without_the_agent_has_no_endpoint() -> None:
    for containers in ([], [{"name": "init"}], None):
        found = at("10.244.1.7", initContainers=containers)
        assert endpoints.resolve(found, FileHint("/run/x/request"), allow_loopback=False) is None


def test_without_the_agent_a_signal_goes_to_the_declared_container_of_exactly_this_pod() -> None:
    found = endpoints.resolve(at("10.244.1.7"), SignalHint("USR1", "main"), allow_loopback=False)
    assert found == endpoints.SignalEndpoint("n", "p", "u", "main", "USR1")


@pytest.mark.parametrize("shared", ["hostPID", "shareProcessNamespace"])
def test_a_process_1_that_is_not_the_containers_own_is_never_signalled(shared: str) -> None:
    found = endpoints.resolve(
        at("10.244.1.7", **{shared: True}), SignalHint("INT", "main"), allow_loopback=False
    )
    assert found == f"process 1 of the container is not its own ({shared})"


LEARNED = {
    "an answer is an answer, whatever was known": [
        (known, ReplyKind.ANSWER, DeliveryState.ANSWERED) for known in DeliveryState
    ],
    "a refused hint may be sent again": [
        (DeliveryState.UNSENT, ReplyKind.NOT_RECEIVED, DeliveryState.UNSENT)
    ],
    "a hint that may have arrived is not sent again": [
        (DeliveryState.UNSENT, ReplyKind.OUTCOME_UNKNOWN, DeliveryState.OUTCOME_UNKNOWN)
    ],
    "a hint that the workload does not know is sent again": [
        (DeliveryState.OUTCOME_UNKNOWN, ReplyKind.UNKNOWN_REQUEST, DeliveryState.UNSENT)
    ],
    "a signal that was delivered is sent once": [
        (DeliveryState.UNSENT, ReplyKind.DELIVERED, DeliveryState.CANNOT_POLL)
    ],
    "a signal that may have been delivered is sent once": [
        (DeliveryState.UNSENT, ReplyKind.OUTCOME_UNKNOWN, DeliveryState.OUTCOME_UNKNOWN),
        (DeliveryState.OUTCOME_UNKNOWN, ReplyKind.UNSUPPORTED, DeliveryState.CANNOT_POLL),
        (DeliveryState.CANNOT_POLL, ReplyKind.UNSUPPORTED, DeliveryState.CANNOT_POLL),
    ],
    "a way that leads nowhere is not tried again": [
        (DeliveryState.UNSENT, ReplyKind.UNDELIVERABLE, DeliveryState.CANNOT_POLL)
    ],
    "a workload that cannot be polled gets no second hint": [
        (DeliveryState.OUTCOME_UNKNOWN, ReplyKind.UNSUPPORTED, DeliveryState.CANNOT_POLL)
    ],
    "an inherited hint that the workload does not know was lost": [
        (DeliveryState.INHERITED, heard, DeliveryState.LOST)
        for heard in (
            ReplyKind.UNKNOWN_REQUEST,
            ReplyKind.UNATTRIBUTED,
            ReplyKind.UNSUPPORTED,
            ReplyKind.NOT_RECEIVED,
        )
    ],
    "a missing reply about an inherited hint has no effect": [
        (DeliveryState.INHERITED, ReplyKind.OUTCOME_UNKNOWN, DeliveryState.INHERITED)
    ],
    "a workload that answered once is polled and gets no second hint": [
        (DeliveryState.ANSWERED, heard, DeliveryState.ANSWERED)
        for heard in ReplyKind
        if heard is not ReplyKind.UNKNOWN_REQUEST
    ],
    "a workload that twice in a row knows of no request has lost it": [
        (DeliveryState.ANSWERED, ReplyKind.UNKNOWN_REQUEST, DeliveryState.RECHECKING),
        (DeliveryState.RECHECKING, ReplyKind.ANSWER, DeliveryState.ANSWERED),
        (DeliveryState.RECHECKING, ReplyKind.UNKNOWN_REQUEST, DeliveryState.FORGOTTEN),
    ],
    "an unknown request, then an answer without an id: the request is lost": [
        (DeliveryState.RECHECKING, ReplyKind.UNATTRIBUTED, DeliveryState.FORGOTTEN),
    ],
    "a workload that is starting neither keeps nor loses its request": [
        (DeliveryState.RECHECKING, heard, DeliveryState.RECHECKING)
        for heard in (ReplyKind.NOT_RECEIVED, ReplyKind.OUTCOME_UNKNOWN, ReplyKind.UNSUPPORTED)
    ],
    "an answer without an id neither confirms a hint nor repeats one of this attempt": [
        (DeliveryState.UNSENT, ReplyKind.UNATTRIBUTED, DeliveryState.UNSENT),
        (DeliveryState.OUTCOME_UNKNOWN, ReplyKind.UNATTRIBUTED, DeliveryState.UNATTRIBUTED),
        (DeliveryState.CANNOT_POLL, ReplyKind.UNATTRIBUTED, DeliveryState.CANNOT_POLL),
    ],
    "a hint of another attempt is sent unless the workload answers this attempt": [
        (known, heard, known)
        for known in (DeliveryState.LOST, DeliveryState.FORGOTTEN, DeliveryState.UNATTRIBUTED)
        for heard in ReplyKind
        if heard is not ReplyKind.ANSWER
    ],
}


@pytest.mark.parametrize("cases", LEARNED.values(), ids=LEARNED)
def test_the_delivery_state_after_each_reply(
    cases: list[tuple[DeliveryState, ReplyKind, DeliveryState]],
) -> None:
    for before, heard, after in cases:
        assert delivery.next_state(before, heard) is after


def test_without_attempts_left_only_a_workload_that_answered_is_polled() -> None:
    assert delivery.state_without_attempts(DeliveryState.FORGOTTEN) is DeliveryState.RECHECKING
    assert (
        delivery.next_state(DeliveryState.RECHECKING, ReplyKind.UNATTRIBUTED)
        is DeliveryState.FORGOTTEN
    )
    assert (
        delivery.state_without_attempts(DeliveryState.LOST)
        is delivery.state_without_attempts(DeliveryState.UNATTRIBUTED)
        is DeliveryState.CANNOT_POLL
    )


def test_an_answered_eviction_gets_no_second_hint_after_a_restart() -> None:
    assert delivery.initial_state(an_eviction(answered_at=NOW)) is DeliveryState.ANSWERED
    assert delivery.initial_state(an_eviction()) is DeliveryState.INHERITED


def test_a_pod_that_has_not_started_has_nothing_to_save() -> None:
    annotations = {"reprieve.dev/checkpoint-hint": "http://:80/x"}
    waiting = pod(metadata={"annotations": annotations}, status={"phase": "Pending"})
    running = pod(metadata={"annotations": annotations}, status={"phase": "Running"})
    assert not pod_state.plan_of(waiting, PolicySettings()).gives_notice
    assert pod_state.plan_of(running, PolicySettings()).gives_notice


MARKED = {
    "our label alone": ({"reprieve.dev/soft-eviction": "hinted"}, {}, Source.LABEL, True),
    "our label taken away": ({}, {}, Source.LABEL, False),
    "Koordinator's mark and our label": (
        {"reprieve.dev/soft-eviction": "hinted"},
        {"scheduling.koordinator.sh/soft-eviction": "true"},
        Source.KOORDINATOR,
        True,
    ),
    "Koordinator's mark taken away": (
        {"reprieve.dev/soft-eviction": "hinted"},
        {},
        Source.KOORDINATOR,
        False,
    ),
    "Koordinator's mark removed, and our label requests an eviction": (
        {"reprieve.dev/soft-eviction": "requested"},
        {},
        Source.KOORDINATOR,
        True,
    ),
    "our label taken away, Koordinator's mark left": (
        {},
        {"scheduling.koordinator.sh/soft-eviction": "true"},
        Source.KOORDINATOR,
        False,
    ),
}


@pytest.mark.parametrize(("labels", "annotations", "source", "want"), MARKED.values(), ids=MARKED)
def test_a_mark_counts_until_it_is_removed(
    labels: dict[str, str], annotations: dict[str, str], source: Source, *, want: bool
) -> None:
    metadata = pod(metadata={"labels": labels, "annotations": annotations}).metadata
    assert pod_state.is_marked(metadata, source) is want


KOORDINATOR = {keys.KOORDINATOR_SOFT_EVICTION: "true"}
BEGINS = {
    "our label alone requests an eviction": ("requested", {}, Source.LABEL),
    "the guard's label requests an eviction": ("evict", {}, Source.LABEL),
    "the guard's label requests an eviction beside a mark": ("evict", KOORDINATOR, Source.LABEL),
    "our label requests an eviction beside a mark, and must be removed itself": (
        "requested",
        KOORDINATOR,
        Source.LABEL,
    ),
    "a mark in another dialect requests an eviction until it is removed": (
        "marked",
        KOORDINATOR,
        Source.KOORDINATOR,
    ),
    "a mark that was removed before the operator saw it evicts no pod": ("marked", {}, None),
    "a mark with the value false is no mark": (
        "marked",
        {keys.KOORDINATOR_SOFT_EVICTION: "false"},
        None,
    ),
    "a phase as the label's value requests no eviction": ("cancelled", KOORDINATOR, None),
}


@pytest.mark.parametrize(("label", "annotations", "want"), BEGINS.values(), ids=BEGINS)
def test_an_eviction_begins_if_a_mark_requests_it(
    label: str, annotations: dict[str, str], want: Source | None
) -> None:
    marked = pod(metadata={"labels": {keys.SOFT_EVICTION: label}, "annotations": annotations})
    begun = pod_state.initial_state(marked, NOW)
    assert (begun and begun.source) == want
    assert (begun is not None and begun.must_evict) is (label == "evict")


@pytest.mark.parametrize("label", ["marked", "hinted", "terminating"])
def test_the_label_of_an_eviction_by_an_eviction_request_is_stale(label: str) -> None:
    """Written before the responder to EvictionRequests was removed; the resync removes it."""
    state = {**json.loads(eviction.render(an_eviction(deadline=NOW))), "source": "eviction-request"}
    annotations = {
        keys.EVICTION: json.dumps({**state, "request": "uid", "mustEvict": True}),
        "reprieve.dev/eviction-request": '{"uid":"uid","requesters":"acme.io/drainer"}',
    }
    victim = pod(metadata={"labels": {keys.SOFT_EVICTION: label}, "annotations": annotations})
    assert not pod_state.is_victim(victim.metadata)
    assert pod_state.initial_state(victim, NOW) is None
    assert pod_state.has_stale_label(victim.metadata)


def test_the_checkpoint_of_a_cancelled_eviction_is_kept_in_the_next() -> None:
    saved = Checkpoint(saved_at=NOW, step=7, path="/ckpt/7")
    before = an_eviction(
        phase=Phase.CANCELLED, outcome=CheckpointOutcome.CANCELLED, checkpoint=saved
    )
    annotations = {keys.EVICTION: eviction.render(before)}
    marked = pod(metadata={"labels": {keys.SOFT_EVICTION: "requested"}, "annotations": annotations})
    begun = pod_state.initial_state(marked, NOW)
    assert begun is not None
    assert (begun.phase, begun.outcome, begun.checkpoint) == (Phase.REQUESTED, None, saved)


ENDED = {
    "a pod that failed": ({"phase": "Failed"}, {}, True),
    "a pod that never got a node": ({"phase": "Pending"}, {}, True),
    "a pod that a kubelet starts right now": ({"phase": "Pending"}, {"nodeName": "n"}, False),
    "a running pod of which nothing is reported yet": (
        {"phase": "Running"},
        {"nodeName": "n"},
        False,
    ),
    "a second container still runs": (
        {
            "phase": "Running",
            "containerStatuses": [{"state": {"terminated": {}}}, {"state": {"running": {}}}],
        },
        {"nodeName": "n"},
        False,
    ),
    "all containers have ended": (
        {"phase": "Running", "containerStatuses": [{"state": {"terminated": {}}}]},
        {"nodeName": "n"},
        True,
    ),
    "a native sidecar still runs": (
        {
            "phase": "Running",
            "containerStatuses": [{"state": {"terminated": {}}}],
            "initContainerStatuses": [{"state": {"terminated": {}}}, {"state": {"running": {}}}],
        },
        {"nodeName": "n"},
        False,
    ),
    "a container for debugging still runs": (
        {
            "phase": "Running",
            "containerStatuses": [{"state": {"terminated": {}}}],
            "ephemeralContainerStatuses": [{"state": {"running": {}}}],
        },
        {"nodeName": "n"},
        False,
    ),
    "a native sidecar has ended too": (
        {
            "phase": "Running",
            "containerStatuses": [{"state": {"terminated": {}}}],
            "initContainerStatuses": [{"state": {"terminated": {}}}],
        },
        {"nodeName": "n"},
        True,
    ),
}


@pytest.mark.parametrize(("status", "spec", "want"), ENDED.values(), ids=ENDED)
def test_our_finalizer_is_removed_when_the_containers_have_ended(
    status: dict[str, Any], spec: dict[str, str], *, want: bool
) -> None:
    assert pod_state.have_containers_ended(pod(status=status, spec=spec)) is want


def test_every_transition_event_has_a_known_reason() -> None:
    state = an_eviction(deadline=NOW, attempt=1, grace_seconds=30)
    moves = [move for moves in TABLE.values() for move in moves.values()]
    told = [
        found
        for found in (event_messages.transition(move, state) for move in moves)
        if found is not None
    ]
    told += [
        event_messages.deleting(state),
        event_messages.completed(state),
        event_messages.waiting_for_finalizers([("example.com/x", NOW)], NOW),
        event_messages.waiting_for_cleaners([("example.com/x", NOW)], NOW, NOW),
        event_messages.cleaners_not_done([("example.com/x", NOW)], NOW),
    ]
    assert {reason for reason, _ in told} <= set(REASONS)
    assert all("None" not in note and "Outcome." not in note for _, note in told)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, ""),
        ({"progress": 0.5}, "; it says 50%"),
        ({"message": "shard 3\nof 4"}, '; it says "shard 3\\nof 4"'),
        ({"progress": 1, "message": "almost"}, '; it says 100%, "almost"'),
    ],
)
def test_the_event_quotes_progress_and_message_of_the_answer(
    said: dict[str, Any], told: str
) -> None:
    move, state = (
        TABLE[Phase.HINTED][Observation.ANSWERED],
        an_eviction(phase=Phase.CHECKPOINTING, deadline=NOW),
    )
    found = event_messages.transition(
        move, state, CheckpointAnswer(state=AnswerState.SAVING, **said)
    )
    assert found == (
        "CheckpointAcknowledged",
        f"the workload is saving; it has until 12:00:00Z{told}",
    )


@pytest.mark.parametrize("phase", [Phase.CHECKPOINTING, Phase.EXTENDED, Phase.DEFERRED])
def test_a_repeated_request_has_the_same_event_as_the_first(phase: Phase) -> None:
    again, state = (
        TABLE[phase][Observation.REQUEST_FORGOTTEN],
        an_eviction(phase=phase, deadline=NOW, attempt=2),
    )
    told = event_messages.transition(
        again, state, CheckpointAnswer(state=AnswerState.SAVING, message="of before")
    )
    assert told == ("CheckpointRequested", "asked to save a checkpoint by 12:00:00Z (attempt 2)")


def test_an_idle_answer_is_not_quoted() -> None:
    move, state = (
        TABLE[Phase.HINTED][Observation.DEADLINE_UNANSWERED],
        an_eviction(phase=Phase.SETTLED),
    )
    idle = CheckpointAnswer(state=AnswerState.IDLE, message="ready")
    assert event_messages.transition(move, state, idle) == event_messages.transition(move, state)


def test_the_event_of_a_grace_period_of_0_names_its_reason() -> None:
    _, note = event_messages.deleting(an_eviction(grace_seconds=0))
    assert note == "deleting the pod at once: its node is gone"


def test_the_events_of_a_save_on_sigterm_claim_no_result() -> None:
    state = an_eviction(outcome=CheckpointOutcome.ON_SIGTERM, grace_seconds=120)
    _, note = event_messages.deleting(state)
    assert note == "deleting the pod: SIGTERM now for its workload to save, SIGKILL after 120s"
    _, note = event_messages.completed(state)
    assert note == "the pod is gone; whether its workload saved on SIGTERM is not known"


def test_the_event_of_a_victim_that_is_not_asked_says_that_it_waits() -> None:
    move = TABLE[Phase.REQUESTED][Observation.CHECKPOINT_UNWANTED]
    waiting = an_eviction(phase=Phase.SETTLED, outcome=CheckpointOutcome.SKIPPED, deadline=NOW)
    assert event_messages.transition(move, waiting) == (
        "SoftEvictionWaiting",
        (
            "ready to be deleted; waiting for the other victims of its preemptor on this node, "
            f"until {NOW:%H:%M:%SZ} at the latest"
        ),
    )
    assert event_messages.transition(move, an_eviction(phase=Phase.TERMINATING)) is None


@pytest.mark.parametrize(
    ("phase", "then"),
    [
        (Phase.TERMINATING, "deleting the pod"),
        (Phase.SETTLED, "waiting for the other victims of its preemptor on this node"),
    ],
)
def test_the_event_of_a_victim_that_loses_less_by_ending_at_once_says_why(
    phase: Phase, then: str
) -> None:
    move = TABLE[Phase.REQUESTED][Observation.CHECKPOINT_LOSES_MORE]
    state = an_eviction(phase=phase, outcome=CheckpointOutcome.LOSES_LESS, deadline=NOW)
    assert event_messages.transition(move, state) == (
        "CheckpointNotRequested",
        f"a save would take as long as the work that it keeps, or longer; {then}",
    )


def test_the_event_of_a_victim_that_is_not_needed_says_why() -> None:
    state = an_eviction(phase=Phase.CANCELLED, outcome=CheckpointOutcome.NOT_NEEDED)
    event = event_messages.transition(TABLE[Phase.HINTED][Observation.NOT_NEEDED], state)
    assert event is not None
    reason, note = event
    assert reason == "SoftEvictionCancelled"
    assert note == (
        "its preemptor no longer needs its room: it was placed, is gone, or turned elsewhere; "
        "the pod stays"
    )


@pytest.mark.parametrize(
    ("gang", "awaited"),
    [
        ("", "the other victims of its preemptor on this node"),
        ("train", "the rest of its gang"),
    ],
)
def test_the_event_of_a_saved_victim_names_what_it_waits_for(gang: str, awaited: str) -> None:
    state = an_eviction(phase=Phase.SAVED, gang=gang)
    event = event_messages.transition(TABLE[Phase.HINTED][Observation.SAVED], state)
    assert event is not None
    assert event[1].endswith(f"; waiting for {awaited}")


@pytest.mark.parametrize(
    ("hours", "told"),
    [
        (0.0, ""),
        (0.004, ""),
        (0.0061, "; that costs about 0.01 GPU-hours"),
        (12345.6, "; that costs about 12,345.60 GPU-hours"),
    ],
)
def test_the_event_names_the_cost_unless_it_is_negligible(hours: float, told: str) -> None:
    _, note = event_messages.deleting(
        an_eviction(grace_seconds=30, cost=RecordedCost(hours=hours, device=Device.GPU))
    )
    assert note == f"deleting the pod: SIGTERM now, SIGKILL after 30s{told}"


def test_events_name_neither_initiator_nor_reason() -> None:
    state = an_eviction(
        initiator="tenant-b/their-pod",
        reason="for their-pod",
        deadline=NOW,
        outcome=CheckpointOutcome.SKIPPED,
    )
    moves = [move for moves in TABLE.values() for move in moves.values()]
    told = [event_messages.transition(move, state) for move in moves] + [
        event_messages.deleting(state),
        event_messages.completed(state),
    ]
    assert not [found for found in told if found and "their-pod" in found[1]]


def an_eviction(**fields: Any) -> Eviction:
    return Eviction(**{"eviction_id": "u-1", "phase": Phase.HINTED, "requested_at": NOW, **fields})


def test_a_hint_that_was_not_sent_blames_no_workload() -> None:
    move = TABLE[Phase.HINTED][Observation.DEADLINE_UNANSWERED]
    not_sent = an_eviction(outcome=CheckpointOutcome.UNRESPONSIVE)
    reason, note = event_messages.transition(move, not_sent) or ("", "")
    assert reason == "CheckpointNotSent"
    assert "the workload did nothing wrong" in note
    assert "was not sent" in event_messages.ended_of_owner("p", not_sent)[1]
    sent = replace(not_sent, hinted_at=NOW)
    assert (event_messages.transition(move, sent) or ("",))[0] == "CheckpointUnanswered"
    assert "did not answer" in event_messages.ended_of_owner("p", sent)[1]


def test_a_hint_that_waits_for_a_call_was_not_requested_yet() -> None:
    move = TABLE[Phase.REQUESTED][Observation.CHECKPOINT_WANTED]
    queued = an_eviction(phase=Phase.HINTED, deadline=NOW)
    assert event_messages.transition(move, queued) is None
    called = replace(queued, hinted_at=NOW, attempt=1)
    assert (event_messages.transition(move, called) or ("",))[0] == "CheckpointRequested"


def test_the_events_of_cleaners_before_sigterm_name_each_with_how_long_it_has_held() -> None:
    held = [("example.com/a", NOW), ("example.com/b", NOW - timedelta(minutes=1))]
    later = NOW + timedelta(seconds=5)
    assert event_messages.waiting_for_cleaners(held, NOW + timedelta(minutes=10), later) == (
        "WaitingForCleaners",
        (
            'SIGTERM waits until finalizers "example.com/a" (held for 5s), '
            '"example.com/b" (held for 1m5s) are removed, until 12:10:00Z at the latest'
        ),
    )
    assert event_messages.cleaners_not_done(held[:1], later) == (
        "CleanersTimedOut",
        'finalizers "example.com/a" (held for 5s) were not removed in time; SIGTERM comes now',
    )


def test_the_event_of_a_saved_victim_says_that_its_cleaners_are_asked() -> None:
    waiting = an_eviction(phase=Phase.SAVED, outcome=CheckpointOutcome.SAVED, deadline=NOW)
    waiting = replace(waiting, cleaners_until=NOW)
    move = TABLE[Phase.HINTED][Observation.SAVED]
    assert event_messages.transition(move, waiting) == (
        "CheckpointSaved",
        (
            "the workload acknowledged a checkpoint; "
            "its cleaners are asked before SIGTERM, until 12:00:00Z at the latest"
        ),
    )
    done = TABLE[Phase.SAVED][Observation.CLEANERS_DONE]
    assert event_messages.transition(done, waiting) is None

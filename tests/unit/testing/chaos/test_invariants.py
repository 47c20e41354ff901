"""Each check of the chaos tests can fail: a history that keeps every promise, and its breaches."""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Phase
from reprieve_policy.lifecycle.transitions import Observation
from reprieve_testing.chaos import edges, invariants, records, scripted_victims
from reprieve_testing.chaos.edges import Edge, PodAction
from reprieve_testing.chaos.invariants import History, Outage, VictimExpectation
from reprieve_testing.chaos.proxy import ProxiedCall
from reprieve_testing.chaos.records import Write
from reprieve_testing.chaos.sample_history import (
    DELETED,
    HINT,
    HINTED,
    SAVED,
    TERMINATING,
    VICTIM,
    write,
)
from reprieve_testing.objects.builders import after

EARLY = "no_delete_before_acknowledgement_or_deadline: team/victim: deleted at "
CANCELLED = replace(HINTED, phase=Phase.CANCELLED, outcome=CheckpointOutcome.CANCELLED)
HINT_WRITTEN = write(1, "patch", HINTED)
MARKED = write(20, "patch", TERMINATING, subresource="status")
REFUSED_MARK = replace(MARKED, status=409)
GOOD = History(
    victims=[VICTIM], writes=[HINT_WRITTEN, MARKED, DELETED], hints=[HINT], answers=[SAVED]
)


@dataclass(frozen=True)
class Case:
    history: History
    want: list[str] = field(default_factory=list)


def good(**changes: Any) -> History:
    return replace(GOOD, **changes)


def expected_victims(**changes: Any) -> list[VictimExpectation]:
    return [replace(VICTIM, **changes)]


CASES = {
    "an acknowledged victim is deleted at once": Case(GOOD),
    "a victim without an answer is deleted after its deadline": Case(
        good(answers=[], writes=[HINT_WRITTEN, write(60.5, "delete")])
    ),
    "a victim without an answer is not deleted before its deadline": Case(
        good(answers=[], writes=[HINT_WRITTEN, write(59, "delete")]),
        [EARLY + "{59}, unacknowledged, before its deadline {60}"],
    ),
    "a victim without an answer has its requested time, whatever deadline was written": Case(
        good(
            victims=expected_victims(min_notice=timedelta(seconds=61)),
            answers=[],
            writes=[HINT_WRITTEN, write(60.5, "delete")],
        ),
        [EARLY + "{60.5}, unacknowledged, less than 61 s after its mark"],
    ),
    "an answer after the DELETE is too late": Case(
        good(answers=[replace(SAVED, at=after(21))]),
        [EARLY + "{20.2}, unacknowledged, before its deadline {60}"],
    ),
    "progress is no acknowledgement": Case(
        good(answers=[replace(SAVED, state="saving")]),
        [EARLY + "{20.2}, unacknowledged, before its deadline {60}"],
    ),
    "a deadline in a hint counts like a written one": Case(
        good(
            answers=[],
            hints=[replace(HINT, deadline=after(65))],
            writes=[HINT_WRITTEN, write(62, "delete")],
        ),
        [EARLY + "{62}, unacknowledged, before its deadline {65}"],
    ),
    "an extension counts from when it was written": Case(
        good(
            answers=[],
            victims=expected_victims(max_duration=timedelta(seconds=100)),
            writes=[
                HINT_WRITTEN,
                write(60, "patch", replace(HINTED, phase=Phase.CHECKPOINTING, deadline=after(90))),
                write(80, "delete"),
            ],
        ),
        [EARLY + "{80}, unacknowledged, before its deadline {90}"],
    ),
    "a victim whose time is over may wait for its gang and end with it": Case(
        good(
            answers=[],
            writes=[
                HINT_WRITTEN,
                write(
                    60,
                    "patch",
                    replace(
                        HINTED,
                        phase=Phase.SETTLED,
                        outcome=CheckpointOutcome.UNRESPONSIVE,
                        deadline=after(600),
                    ),
                ),
                write(65, "delete"),
            ],
        )
    ),
    "a victim with notice gets notice": Case(
        good(writes=[write(1, "delete")], hints=[], answers=[]),
        [EARLY + "{1} without notice"],
    ),
    "a victim without notice needs none": Case(
        good(
            victims=expected_victims(has_notice=False),
            writes=[write(1, "delete")],
            hints=[],
            answers=[],
        )
    ),
    "a refused DELETE does not count": Case(
        good(writes=[HINT_WRITTEN, write(5, "delete", status=409), MARKED, DELETED])
    ),
    "a second DELETE is one too many, also through the Eviction API": Case(
        good(
            writes=[
                HINT_WRITTEN,
                MARKED,
                DELETED,
                write(20.5, "create", subresource="eviction", status=201),
            ]
        ),
        ["one_delete_each: team/victim: deleted 2 times"],
    ),
    "a victim that is never deleted is a breach": Case(
        good(writes=[HINT_WRITTEN, MARKED]),
        [
            "one_delete_each: team/victim: never deleted",
            "every_victim_ends_in_time: team/victim: has not ended",
        ],
    ),
    "a DELETE during which the API server was killed may have taken effect": Case(
        good(writes=[HINT_WRITTEN, MARKED, write(20.2, "delete", status=0, uid="")])
    ),
    "a DELETE during which the API server was killed is not sent early": Case(
        good(answers=[], writes=[HINT_WRITTEN, write(59, "delete", status=0, uid="")]),
        [EARLY + "{59}, unacknowledged, before its deadline {60}"],
    ),
    "a DELETE during which the API server was killed may have had no effect": Case(
        good(writes=[HINT_WRITTEN, MARKED, write(20.1, "delete", status=0, uid=""), DELETED])
    ),
    "a victim that others delete need not be deleted": Case(
        good(
            victims=expected_victims(must_be_deleted=False, ended_at=after(5)),
            writes=[HINT_WRITTEN],
        )
    ),
    "a DELETE of a namesake is not the victim's": Case(
        good(writes=[HINT_WRITTEN, MARKED, DELETED, write(30, "delete", uid="another")])
    ),
    "two attempts are two hints": Case(good(hints=[HINT, replace(HINT, attempt=2)])),
    "two hints for one attempt": Case(
        good(hints=[HINT, HINT]),
        ["no_hint_twice_for_one_attempt: u-1: attempt 1 was hinted 2 times"],
    ),
    "a victim that takes longer than its longest time is late": Case(
        good(victims=expected_victims(max_duration=timedelta(seconds=20))),
        ["every_victim_ends_in_time: team/victim: took 20.3 s, at most 20.0 s are right"],
    ),
    "the time without an operator does not count": Case(
        good(
            victims=expected_victims(max_duration=timedelta(seconds=16)),
            outages=[Outage(after(5), after(10))],
        )
    ),
    "only the part of an outage within the victim's life counts": Case(
        good(
            victims=expected_victims(max_duration=timedelta(seconds=16)),
            outages=[Outage(after(-50), after(1)), Outage(after(19), after(99))],
        ),
        ["every_victim_ends_in_time: team/victim: took 20.3 s, at most 18.3 s are right"],
    ),
    "a cancelled victim has ended": Case(
        good(
            victims=expected_victims(must_be_deleted=False),
            writes=[HINT_WRITTEN, write(3, "patch", CANCELLED)],
        )
    ),
    "a pod that lost its mark before the first write is left alone": Case(
        good(
            victims=expected_victims(
                must_be_deleted=False, may_be_touched=False, ended_at=after(1)
            ),
            writes=[write(1, "patch", HINTED, status=409)],
            hints=[],
            answers=[],
        )
    ),
    "writes and hints to a pod that is no victim are breaches": Case(
        good(victims=expected_victims(may_be_touched=False), writes=[HINT_WRITTEN, DELETED]),
        [
            "no_write_to_former_victims: team/victim: patch at {1}, though it was no victim",
            "no_write_to_former_victims: team/victim: delete at {20.2}, though it was no victim",
            "no_write_to_former_victims: team/victim: hinted at {2}, though it was no victim",
        ],
    ),
    "a patch without a uid could hit a namesake": Case(
        good(writes=[replace(HINT_WRITTEN, uid=""), HINT_WRITTEN, MARKED, DELETED]),
        ["every_write_names_its_pod: team/victim: patch at {1} without a uid"],
    ),
    "a write that was refused before it was read names nothing": Case(
        good(
            writes=[
                replace(HINT_WRITTEN, status=403, uid="", version=""),
                HINT_WRITTEN,
                MARKED,
                DELETED,
            ]
        )
    ),
    "a patch without a resourceVersion could undo an unseen change": Case(
        good(writes=[HINT_WRITTEN, replace(MARKED, version=""), DELETED]),
        ["every_write_names_its_pod: team/victim: patch status at {20} without a resourceVersion"],
    ),
    "two conflicts are no reason to leave the resourceVersion out": Case(
        good(writes=[HINT_WRITTEN, *[REFUSED_MARK] * 2, replace(MARKED, version=""), DELETED]),
        ["every_write_names_its_pod: team/victim: patch status at {20} without a resourceVersion"],
    ),
    "after three conflicts in a row, the uid alone counts": Case(
        good(writes=[HINT_WRITTEN, *[REFUSED_MARK] * 3, replace(MARKED, version=""), DELETED])
    ),
    "conflicts before another write do not count": Case(
        good(writes=[*[REFUSED_MARK] * 3, HINT_WRITTEN, replace(MARKED, version=""), DELETED]),
        ["every_write_names_its_pod: team/victim: patch status at {20} without a resourceVersion"],
    ),
    "a phase never changes backwards": Case(
        good(writes=[HINT_WRITTEN, MARKED, write(20.1, "patch", HINTED), DELETED]),
        ["every_phase_follows_from_the_one_before: u: hinted was written after terminating"],
    ),
    "another eviction starts at the first phase again": Case(
        good(
            writes=[
                HINT_WRITTEN,
                write(3, "patch", CANCELLED),
                write(4, "patch", replace(HINTED, eviction_id="u-4")),
                MARKED,
                DELETED,
            ]
        )
    ),
}


def dated(sentence: str) -> str:
    """Put moments in the place of `{seconds after}`."""
    head, *parts = sentence.split("{")
    return head + "".join(
        f"{after(float(seconds))}{rest}"
        for seconds, _, rest in (part.partition("}") for part in parts)
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_broken_promise_is_reported(case: Case):
    assert invariants.broken_promises(case.history) == [dated(sentence) for sentence in case.want]


def test_every_promise_has_a_case_that_breaks_it():
    broken = {sentence.partition(":")[0] for case in CASES.values() for sentence in case.want}
    assert broken == {promise.__name__ for promise in invariants.ALL}


def test_a_remaining_finalizer_is_reported():
    pods = [
        {"metadata": {"namespace": "team", "name": name, **metadata}}
        for name, metadata in {
            "held": {"finalizers": ["example.com/held", keys.CLEANUP_FINALIZER]},
            "others": {"finalizers": ["example.com/held"]},
            "free": {},
        }.items()
    ]
    assert list(invariants.no_finalizer_left(pods)) == [
        "team/held: still held by reprieve.dev/cleanup"
    ]


def entry(**changes: Any) -> dict[str, Any]:
    body = {
        "metadata": {
            "uid": "u",
            "resourceVersion": "7",
            "annotations": {keys.EVICTION: eviction.render(HINTED)},
        },
    }
    return {
        "auditID": "a-1",
        "stage": "ResponseComplete",
        "verb": "patch",
        "user": {"username": "system:serviceaccount:reprieve-system:reprieve-operator"},
        "objectRef": {"resource": "pods", "namespace": "team", "name": "victim"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": timestamp.render_micro(after(1)),
        "stageTimestamp": timestamp.render_micro(after(1.1)),
        "requestObject": body,
        **changes,
    }


EVICTED = {"deleteOptions": {"gracePeriodSeconds": 30, "preconditions": {"uid": "u"}}}
ENTRIES: dict[str, tuple[dict[str, Any], Callable[[Write], bool]]] = {
    "a patch carries state and preconditions": ({}, lambda write: write == HINT_WRITTEN),
    "a DELETE names the pod in its options": (
        {"verb": "delete", "requestObject": {"preconditions": {"uid": "u"}}},
        lambda write: write.is_deletion and write.uid == "u",
    ),
    "an eviction is a deletion": (
        {
            "verb": "create",
            "requestObject": EVICTED,
            "objectRef": entry()["objectRef"] | {"subresource": "eviction"},
        },
        lambda write: write.is_deletion and write.uid == "u",
    ),
    "a patch without metadata names nothing": (
        {"requestObject": {"status": {}}},
        lambda write: (write.uid, write.version, write.state) == ("", "", None),
    ),
}


@pytest.mark.parametrize(("changes", "holds"), ENTRIES.values(), ids=ENTRIES)
def test_an_audit_log_entry_is_parsed(changes: dict[str, Any], holds: Callable[[Write], bool]):
    assert holds(records.write_of(entry(**changes)))


def test_only_the_operators_writes_to_pods_count_also_in_rotated_audit_logs(
    tmp_path: Path,
):
    received = {"stage": "RequestReceived", "requestObject": None, "responseStatus": {}}
    lines = [
        entry(**received),
        entry(),
        entry(auditID="a-2", user={"username": "admin"}),
        entry(auditID="a-3", objectRef={"resource": "jobs", "namespace": "team", "name": "j"}),
        entry(
            auditID="a-4", objectRef={"resource": "pods", "namespace": "team-2", "name": "victim"}
        ),
        entry(
            auditID="a-5",
            verb="delete",
            requestReceivedTimestamp=timestamp.render_micro(after(2)),
            **received,
        ),
    ]
    (tmp_path / "audit-2026-11-21T12-00-00.000.log").write_text(
        json.dumps(entry(auditID="a-0", verb="update")) + "\n"
    )
    cut = '{"user": ":reprieve-operator", "namespace": "team'
    (tmp_path / "audit.log").write_text("\n".join([*map(json.dumps, lines), cut]))
    found = [
        (write.verb, write.status) for write in records.read_writes(tmp_path / "audit.log", "team")
    ]
    assert found == [("update", 200), ("patch", 200), ("delete", 0)]


def test_every_edge_of_the_table_has_a_setup_or_a_reason():
    written = {*edges.written_edges(), edges.AT_THE_CEILING}
    excused = {*edges.NO_WRITE, *edges.NEEDS_A_SCHEDULER, *edges.NEEDS_A_CLEANER}
    passed = {edge for first in written for edge in edges.edges_in_one_write(first)[1:]}
    assert written | excused | passed == set(edges.all_edges()) | excused
    assert [
        edge
        for edge in written
        if edge.phase not in edges.PHASE_SETUPS or edge.observation not in edges.TRIGGERS
    ] == []


def test_only_edges_of_the_table_are_excused():
    assert set(edges.NO_WRITE) - set(edges.all_edges()) == set()
    assert {*edges.lost_edges(), *edges.unseen_edges()} - set(edges.NO_WRITE) == set()


def test_the_operator_is_killed_at_all_edges():
    assert edges.left_edges() == []


@pytest.mark.parametrize("edge", edges.unseen_edges(), ids=str)
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_operator_of_a_former_victim_is_killed_at_its_first_state(
    edge: Edge, when: scripted_victims.When
):
    victim = scripted_victims.unseen_at(edge, when, "v")
    [kill] = victim.kills
    act = PodAction.UNMARK if edge.observation is Observation.MARK_REMOVED else PodAction.VANISH
    assert (victim.acts_before_first_state, victim.trigger.action, str(kill)) == (
        True,
        act,
        f"{when} {edge}",
    )
    annotations = {keys.EVICTION: eviction.render(HINTED)}
    first = ProxiedCall(
        "PATCH", "/api/v1/namespaces/team/pods/v", {"metadata": {"annotations": annotations}}
    )
    assert kill.point.matches(victim, first)
    victim.marked_at = after(0)
    expected = victim.as_victim("team/v")
    assert (expected.must_be_deleted, expected.may_be_touched) == (False, False)


def test_a_member_that_disappears_answers_nothing_before_its_partner_is_reached():
    victim = scripted_victims.lost_at(Edge(Phase.SAVED, Observation.OBJECT_GONE), "v")
    assert victim.partner is not None
    assert victim.answer is None
    victim.partner.observe_state(HINTED)
    assert victim.answer == edges.SAVED


@pytest.mark.parametrize("edge", edges.lost_edges(), ids=str)
def test_the_operator_of_a_disappearing_victim_is_killed_at_the_write_of_its_phase(edge: Edge):
    def call(phase: Phase) -> ProxiedCall:
        annotations = {keys.EVICTION: eviction.render(replace(HINTED, phase=phase))}
        return ProxiedCall(
            "PATCH", "/api/v1/namespaces/team/pods/v", {"metadata": {"annotations": annotations}}
        )

    victim = scripted_victims.lost_at(edge, "v")
    [kill] = victim.kills
    assert (victim.trigger_phase, victim.trigger.action, str(kill)) == (
        edge.phase,
        PodAction.VANISH,
        f"after {edge}",
    )
    assert [phase for phase in edges.PHASE_SETUPS if kill.point.matches(victim, call(phase))] == [
        edge.phase
    ]


def test_a_victim_that_loses_less_by_ending_at_once_is_a_scheduler_s_and_gets_no_notice():
    edge = Edge(Phase.REQUESTED, Observation.CHECKPOINT_LOSES_MORE)
    victim = scripted_victims.victim_for_edge(edge, scripted_victims.point_of(edge), "after", "v")
    assert (victim.has_hint, victim.is_preempted) == (True, True)
    assert victim.annotations == {keys.ESTIMATED_CHECKPOINT_TIME: "1h"}
    victim.marked_at = after(0)
    expected = victim.as_victim("team/v")
    assert (expected.has_notice, expected.must_be_deleted) == (False, True)
    ended = replace(HINTED, phase=Phase.TERMINATING, outcome=CheckpointOutcome.LOSES_LESS)
    skipped = replace(ended, outcome=CheckpointOutcome.SKIPPED)
    assert [
        victim.kills[0].point.matches(
            victim,
            ProxiedCall(
                "PATCH",
                "/api/v1/namespaces/team/pods/v",
                {"metadata": {"annotations": {keys.EVICTION: eviction.render(state)}}},
            ),
        )
        for state in (ended, skipped)
    ] == [True, False]


FORGETFUL = [
    edge for edge in edges.written_edges() if edge.observation is Observation.REQUEST_FORGOTTEN
]


@pytest.mark.parametrize("edge", FORGETFUL, ids=str)
def test_a_restarted_workload_forgets_its_request_once_at_its_phase(edge: Edge):
    victim = scripted_victims.victim_for_edge(edge, scripted_victims.point_of(edge), "after", "v")
    victim.heard_eviction_id, victim.attempt_heard = "u-1", 1
    victim.observe_state(HINTED)
    assert (victim.heard_eviction_id, victim.is_about_to_be_hinted) == ("u-1", False)
    there = replace(HINTED, phase=edge.phase)
    victim.observe_state(there)
    assert (victim.heard_eviction_id, victim.is_about_to_be_hinted) == (None, False)
    again = {keys.EVICTION: eviction.render(replace(there, attempt=2))}
    call = ProxiedCall(
        "PATCH", "/api/v1/namespaces/team/pods/v", {"metadata": {"annotations": again}}
    )
    assert victim.kills[0].point.matches(victim, call)
    victim.observe_state(replace(there, attempt=2))
    assert victim.is_about_to_be_hinted
    victim.heard_eviction_id, victim.attempt_heard = "u-1", 2
    victim.observe_state(replace(there, attempt=2))
    assert (victim.heard_eviction_id, victim.is_about_to_be_hinted) == ("u-1", False)


def test_a_restarted_workload_has_time_for_two_polls():
    seconds = {edge.phase: edges.seconds_of(edge) for edge in FORGETFUL}
    longest, brief = edges.LONG, edges.FORGETFUL
    assert seconds == {Phase.CHECKPOINTING: longest, Phase.EXTENDED: brief, Phase.DEFERRED: longest}


def test_the_ends_of_a_victim_are_also_tried_with_evictions():
    chosen = edges.ending_edges()
    assert {edge.phase for edge in edges.written_edges()} - {edge.phase for edge in chosen} == {
        Phase.REPRIEVED
    }
    ends = {
        Observation.CHECKPOINT_UNWANTED,
        Observation.CHECKPOINT_LOSES_MORE,
        Observation.CHECKPOINT_ON_SIGTERM,
        Observation.SAVED,
        Observation.CANNOT,
        Observation.DEADLINE_UNANSWERED,
    }
    ends |= {
        Observation.DEADLINE_ANSWERED,
        Observation.RELEASED,
        Observation.MARK_REMOVED,
        Observation.CONTAINERS_ENDED,
    }
    assert {edge.observation for edge in chosen} == ends


@pytest.mark.parametrize(
    ("method", "path", "is_one"),
    [
        ("DELETE", "/api/v1/namespaces/team/pods/v", True),
        ("POST", "/api/v1/namespaces/team/pods/v/eviction", True),
        ("POST", "/apis/events.k8s.io/v1/namespaces/team/events", False),
        ("PATCH", "/api/v1/namespaces/team/pods/v", False),
    ],
)
def test_a_call_that_deletes_or_evicts_is_recognised(method: str, path: str, is_one: bool):  # noqa: FBT001 - a case's answer
    assert scripted_victims.is_deletion(ProxiedCall(method, path, {})) is is_one


ALIKE = {
    Phase.REPRIEVED: [Observation.PROTECTION_OVER, Observation.REQUESTED_AGAIN],
    Phase.SAVED: [Observation.DELETED_BY_OTHERS, Observation.RELEASED],
}
"""Written the same: of each, a victim's script lets only one happen."""


def test_written_states_distinguish_the_observations_of_a_phase():
    for phase in edges.PHASE_SETUPS:
        lands = defaultdict(list)
        for edge in (edge for edge in edges.written_edges() if edge.phase is phase):
            lands[edges.written_state(edge)].append(edge.observation)
        alike = [found for found in lands.values() if len(found) > 1]
        assert alike == ([ALIKE[phase]] if phase in ALIKE else []), phase

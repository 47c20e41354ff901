"""The state of a soft eviction as the pod carries it."""

import json
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import CheckpointAnswer
from reprieve_policy.kube.values import text as texts
from reprieve_policy.lifecycle import eviction, machine, mark
from reprieve_policy.lifecycle.eviction import (
    MAX_ANNOTATION,
    WITH_DEADLINE,
    Checkpoint,
    CheckpointOutcome,
    Device,
    Eviction,
    Phase,
    PreemptionCause,
    ProtectionReason,
    RecordedCost,
    Source,
)
from reprieve_policy.lifecycle.mark import Mark
from reprieve_testing.objects.builders import NOW, after, an_eviction

REQUESTED = an_eviction().build()
FULL = Eviction(
    eviction_id="0b9e4d0e-6b0f-4f0e-9a57-3f6f2f1c2d3e-1795262400",
    phase=Phase.TERMINATING,
    requested_at=NOW,
    source=Source.KOORDINATOR,
    initiator="descheduler",
    reason="node is overloaded",
    mark_grace_seconds=20,
    attempt=2,
    hinted_at=after(1),
    answered_at=after(2),
    deadline=after(600),
    checkpoint=Checkpoint(saved_at=after(3), step=4200, path="/ckpt/4200"),
    outcome=CheckpointOutcome.SAVED,
    grace_seconds=20,
    cause=PreemptionCause.PRIORITY,
    cost=RecordedCost(hours=12.5, device=Device.GPU),
    refused_on=ProtectionReason.NEAR_COMPLETION,
    must_evict=True,
)


LAST_STATES = {
    "after a save": replace(FULL, phase=Phase.TERMINATING, outcome=CheckpointOutcome.SAVED),
    "without notice": replace(
        REQUESTED,
        phase=Phase.TERMINATING,
        outcome=CheckpointOutcome.SKIPPED,
        must_evict=True,
        grace_seconds=0,
    ),
    "again": replace(
        REQUESTED,
        phase=Phase.TERMINATING,
        outcome=CheckpointOutcome.SAVED,
        must_evict=True,
        grace_seconds=30,
        held_since=after(-60),
    ),
}


@pytest.mark.parametrize("carried", LAST_STATES.values(), ids=LAST_STATES)
def test_a_pod_that_is_full_has_room_for_the_short_record_of_a_budgets_hold(
    carried: Eviction,
) -> None:
    held = replace(carried, phase=Phase.CANCELLED, outcome=CheckpointOutcome.HELD_BY_BUDGET)
    short = eviction.shortened(held)
    assert len(eviction.render(short)) <= len(eviction.render(carried))
    assert eviction.parse(eviction.render(short)) == short
    kept = (short.eviction_id, short.phase, short.requested_at, short.outcome, short.held_since)
    assert kept == (
        held.eviction_id,
        held.phase,
        held.requested_at,
        held.outcome,
        held.held_since,
    )


def test_fields_that_say_nothing_are_left_out() -> None:
    assert eviction.render(REQUESTED) == (
        '{"v":1,"id":"pod-uid-1795262400","phase":"requested","requestedAt":"2026-11-21T12:00:00Z"}'
    )


def test_the_whole_state_is_compact_json() -> None:
    assert eviction.render(FULL) == (
        '{"v":1,"id":"0b9e4d0e-6b0f-4f0e-9a57-3f6f2f1c2d3e-1795262400","phase":"terminating",'
        '"requestedAt":"2026-11-21T12:00:00Z","source":"koordinator","initiator":"descheduler",'
        '"reason":"node is overloaded","markGraceSeconds":20,"attempt":2,'
        '"hintedAt":"2026-11-21T12:00:01Z",'
        '"answeredAt":"2026-11-21T12:00:02Z","deadline":"2026-11-21T12:10:00Z",'
        '"checkpoint":{"at":"2026-11-21T12:00:03Z","step":4200,"path":"/ckpt/4200"},"outcome":"saved","graceSeconds":20,'
        '"cause":"priority","cost":{"gpuHours":12.5},"refusedOn":"near-completion",'
        '"mustEvict":true}'
    )
    assert eviction.parse(eviction.render(FULL)) == FULL


def test_every_field_has_a_name_and_a_reader() -> None:
    names = {field.name for field in fields(Eviction)}
    assert set(eviction._JSON_NAMES) == names
    assert set(eviction._READERS) == names


MOMENTS = st.datetimes(max_value=datetime(8999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - the zone is beside
COUNTS = st.integers(min_value=0, max_value=2**63 - 1)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
TEXTS = ANY_TEXT.map(texts.clip)
CHECKPOINTS = st.builds(
    Checkpoint, saved_at=MOMENTS, step=st.none() | COUNTS, path=st.none() | TEXTS
)
HOURS = st.floats(min_value=0, allow_infinity=False, allow_nan=False)
EVICTIONS = st.builds(
    Eviction,
    eviction_id=TEXTS,
    phase=st.sampled_from(Phase),
    requested_at=MOMENTS,
    source=st.sampled_from(Source),
    initiator=TEXTS,
    reason=TEXTS,
    mark_grace_seconds=st.none() | COUNTS,
    attempt=COUNTS,
    hinted_at=st.none() | MOMENTS,
    answered_at=st.none() | MOMENTS,
    deadline=MOMENTS,
    checkpoint=st.none() | CHECKPOINTS,
    outcome=st.none() | st.sampled_from(CheckpointOutcome),
    grace_seconds=st.none() | COUNTS,
    cause=st.none() | st.sampled_from(PreemptionCause),
    cost=st.none() | st.builds(RecordedCost, hours=HOURS, device=st.sampled_from(Device)),
    refused_on=st.none() | st.sampled_from(ProtectionReason),
    gang=TEXTS,
    decision_id=TEXTS,
    must_evict=st.booleans(),
    cleaners_until=st.none() | MOMENTS,
)


@given(EVICTIONS)
def test_a_rendered_state_is_read_back(state: Eviction) -> None:
    assert eviction.parse(eviction.render(state)) == state


DEAREST = RecordedCost(hours=1.2345678901234567e-300, device=Device.GPU)
WORST = {
    "the longest in two bytes": "é",
    "the longest in three bytes": "再",
    "the longest in four bytes": "𝕏",
    "control characters": "\0",
    "quotes": '"',
    "backslashes": "\\",
    "lone surrogates": "\ud800",
}


@pytest.mark.parametrize("character", WORST.values(), ids=WORST)
def test_the_largest_state_that_strangers_can_cause_fits_into_a_container_label(
    character: str,
) -> None:
    text = json.dumps(character * 600)
    asked = mark.parse_annotation(f'{{"initiator":{text},"reason":{text}}}', "path")
    path = json.dumps(texts.clip(character * 600))
    answer = contract.parse_answer(
        f'{{"state":"saved","id":{text},"step":{2**53},"path":{path}}}', "path"
    )
    assert isinstance(asked, Mark)
    assert isinstance(answer, CheckpointAnswer)
    saved = Checkpoint(saved_at=after(0.000001), step=answer.step, path=answer.path)
    begun = machine.begin_eviction(
        replace(asked, grace_seconds=2**63 - 1),
        Source.KOORDINATOR,
        FULL.eviction_id,
        after(0.000001),
    )
    times = dict.fromkeys(("hinted_at", "answered_at", "deadline"), after(0.000001))
    largest = replace(
        begun,
        phase=Phase.CHECKPOINTING,
        outcome=CheckpointOutcome.UNRESPONSIVE,
        checkpoint=saved,
        **times,
    )
    largest = replace(largest, gang="leader-worker-set/" + "g" * 264, decision_id=FULL.eviction_id)
    rendered = eviction.render(
        replace(
            largest,
            grace_seconds=30,
            attempt=3,
            refused_on=ProtectionReason.NON_PREEMPTIBLE,
            cost=DEAREST,
            cause=PreemptionCause.SENSITIVE,
        )
    )
    assert len(rendered.encode()) < MAX_ANNOTATION * 3 // 4
    assert eviction.parse(rendered) is not None


def changed(**values: object) -> str:
    return json.dumps({**json.loads(eviction.render(FULL)), **values})


GARBAGE = {
    "nothing": "",
    "no JSON": "requested",
    "a list": "[]",
    "an empty object": "{}",
    "another version": changed(v=2),
    "no id": '{"v":1,"phase":"requested","requestedAt":"2026-11-21T12:00:00Z"}',
    "a number as id": changed(id=1),
    "an id with a line end": changed(id="a\nb"),
    "a lone surrogate": changed(initiator="\ud800"),
    "an unknown phase": changed(phase="paused"),
    "an unknown outcome": changed(outcome="lost"),
    "an unknown source": changed(source="us"),
    "no timestamp": changed(requestedAt="yesterday"),
    "a number as timestamp": changed(requestedAt=1795262400),
    "a deadline to which nothing can be added": changed(deadline="9999-12-31T23:59:59Z"),
    "a boolean as count": changed(attempt=True),
    "a number as flag": changed(mustEvict=1),
    "a fraction as count": changed(attempt=1.5),
    "a negative grace": changed(graceSeconds=-1),
    "a text as checkpoint": changed(checkpoint="yes"),
    "a checkpoint without a time": changed(checkpoint={"step": 1}),
    "a checkpoint with a text as step": changed(
        checkpoint={"at": "2026-11-21T12:00:03Z", "step": "1"}
    ),
    "a number as cost": changed(cost=12.5),
    "a cost of nothing known": changed(cost={"tpuHours": 1}),
    "a boolean as hours": changed(cost={"gpuHours": True}),
    "negative hours": changed(cost={"gpuHours": -1}),
    "more hours than any number holds": changed(cost={"gpuHours": 10**400}),
    "infinitely many hours": changed(cost={"cpuHours": float("inf")}),
    "hours that are not a number": changed(cost={"cpuHours": float("nan")}),
    "an unknown cause": changed(cause="mood"),
    "an unknown protection reason": changed(refusedOn="mood"),
    "JSON of depth 200": "[" * 200 + "]" * 200,
    "JSON of depth 2000": "[" * 2000 + "]" * 2000,
    "more than 4096 characters": changed(x="x" * 4096),
}


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_an_invalid_state_is_none(text: str) -> None:
    assert eviction.parse(text) is None


def test_a_state_from_an_eviction_request_is_none_and_the_uid_of_one_is_ignored() -> None:
    """Both were written before the responder to EvictionRequests was removed."""
    assert eviction.parse(changed(source="eviction-request", request="uid")) is None
    assert eviction.parse(changed(request="uid")) == FULL


@pytest.mark.parametrize("phase", WITH_DEADLINE)
def test_a_state_that_would_wait_for_ever_is_none(phase: Phase) -> None:
    assert eviction.parse(eviction.render(replace(FULL, phase=phase, deadline=None))) is None


@given(ANY_TEXT)
def test_any_text_is_a_state_or_none(text: str) -> None:
    assert eviction.parse(text) is None


def test_unknown_fields_are_ignored_so_that_an_older_operator_can_go_on() -> None:
    assert eviction.parse(changed(colour="red")) == FULL


def test_only_lost_work_is_a_failure() -> None:
    failures = {outcome for outcome in CheckpointOutcome if outcome.is_failure}
    assert failures == {
        CheckpointOutcome.UNRESPONSIVE,
        CheckpointOutcome.TIMED_OUT,
        CheckpointOutcome.REFUSED,
    }


def test_a_cached_state_is_the_same_and_a_changed_text_is_read_again() -> None:
    state = an_eviction().hinted(deadline=after(600)).build()
    later = replace(state, deadline=after(601))
    for _ in range(2):
        assert (eviction.parse(eviction.render(state)), eviction.parse(eviction.render(later))) == (
            state,
            later,
        )
    assert eviction.parse(eviction.render(state)) is eviction.parse(eviction.render(state))


def test_a_text_that_is_too_long_is_not_cached() -> None:
    before = eviction._parse.cache_info()
    assert eviction.parse("x" * (eviction.MAX_ANNOTATION + 1)) is None
    assert eviction._parse.cache_info() == before

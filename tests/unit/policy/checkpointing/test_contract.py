"""Reprieve's requests to a workload, and the workload's answers."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest
from reprieve_policy.verdict import Violation
from reprieve_testing.objects.builders import after
from reprieve_testing.safe_texts import is_showable

REQUEST = CheckpointRequest(
    eviction_id="uid-1",
    attempt=2,
    deadline=after(600),
    reason="descheduler",
    preemption_class=4,
    may_extend=True,
)


def test_the_request_is_compact_json_with_an_absolute_deadline() -> None:
    assert contract.render_request(REQUEST) == (
        '{"version":1,"id":"uid-1","attempt":2,"deadline":"2026-11-21T12:10:00Z","reason":"descheduler",'
        '"preemptionClass":4,"mayExtend":true}'
    )


def test_the_request_fits_into_an_annotation() -> None:
    assert len(contract.render_request(replace(REQUEST, reason="𝕏" * 64)).encode()) < 4096


def test_a_cancelled_request_names_its_eviction() -> None:
    assert contract.render_cancelled("uid-1") == '{"version":1,"id":"uid-1","cancelled":true}'


READ = {
    "idle, without a request": ('{"state":"idle"}', CheckpointAnswer(state=AnswerState.IDLE)),
    "accepted": ('{"state":"accepted"}', contract.ACCEPTED_WITHOUT_DOCUMENT),
    "saving, with progress": (
        '{"state":"saving","progress":0.25}',
        CheckpointAnswer(state=AnswerState.SAVING, progress=0.25),
    ),
    "progress as a whole number": (
        '{"state":"saving","progress":1}',
        CheckpointAnswer(state=AnswerState.SAVING, progress=1.0),
    ),
    "saved, with step and path": (
        '{"state":"saved","id":"uid-1","step":4200,"path":"/ckpt/4200"}',
        CheckpointAnswer(
            state=AnswerState.SAVED, eviction_id="uid-1", step=4200, path="/ckpt/4200"
        ),
    ),
    "a deferral": (
        '{"state":"defer","deferSeconds":60}',
        CheckpointAnswer(state=AnswerState.DEFER, defer_seconds=60),
    ),
    "cannot, with a reason": (
        '{"state":"cannot","message":"disk full\\n"}',
        CheckpointAnswer(state=AnswerState.CANNOT, message="disk full "),
    ),
    "unknown fields are ignored": (
        '{"state":"accepted","pid":1}',
        contract.ACCEPTED_WITHOUT_DOCUMENT,
    ),
    "a path too long to be kept is left out, not cut": (
        json.dumps({"state": "saved", "path": "x" * 513}),
        CheckpointAnswer(state=AnswerState.SAVED),
    ),
    "a path of the longest kind is kept": (
        json.dumps({"state": "saved", "path": "x" * 512}),
        CheckpointAnswer(state=AnswerState.SAVED, path="x" * 512),
    ),
    "a path with a line end is left out": (
        '{"state":"saved","path":"a\\nb"}',
        CheckpointAnswer(state=AnswerState.SAVED),
    ),
    "bytes are read as text": (b'{"state":"accepted"}', contract.ACCEPTED_WITHOUT_DOCUMENT),
}


@pytest.mark.parametrize(("text", "want"), READ.values(), ids=READ)
def test_answers_are_read(text: str | bytes, want: CheckpointAnswer) -> None:
    assert contract.parse_answer(text, "answer") == want


STATES = '"idle", "delivered", "accepted", "saving", "saved", "defer", "cannot"'

REFUSED = {
    "nothing": ("", 'answer: Invalid value: "": must be JSON'),
    "not JSON": ("OK", 'answer: Invalid value: "OK": must be JSON'),
    "bytes that are not text": (b"\xff\xfe\xfa", "answer: Invalid value: "),
    "a list": ("[]", 'answer: Invalid value: "[]": must be a JSON object'),
    "no state": ("{}", f'answer.state: Unsupported value: "null": supported values: {STATES}'),
    "an unknown state": (
        '{"state":"done"}',
        f'answer.state: Unsupported value: "done": supported values: {STATES}',
    ),
    "a list as state": (
        '{"state":["saved"]}',
        'answer.state: Unsupported value: "[…]": supported values: ',
    ),
    "a number as id": (
        '{"state":"saved","id":1}',
        'answer.id: Invalid value: "1": must be a string',
    ),
    "a negative step": (
        '{"state":"saved","step":-1}',
        'answer.step: Invalid value: "-1": must be a whole number, 0 or more',
    ),
    "a boolean as step": (
        '{"state":"saved","step":true}',
        'answer.step: Invalid value: "true": must be a whole',
    ),
    "a step that no number format holds": (
        '{"state":"saved","step":9007199254740993}',
        "answer.step: Invalid value",
    ),
    "a number as path": (
        '{"state":"saved","path":1}',
        'answer.path: Invalid value: "1": must be a string',
    ),
    "progress above 1": (
        '{"state":"saving","progress":1.5}',
        'answer.progress: Invalid value: "1.5": must be between 0',
    ),
    "NaN": (
        '{"state":"saving","progress":NaN}',
        'answer.progress: Invalid value: "NaN": must be between 0 and 1',
    ),
    "a text as seconds": (
        '{"state":"defer","deferSeconds":"60"}',
        'answer.deferSeconds: Invalid value: "60": must be a whole number, 0 or more',
    ),
    "a list as message": (
        '{"state":"cannot","message":[]}',
        'answer.message: Invalid value: "[…]": must be a string',
    ),
    "20 KB": ("x" * 20_480, "answer: Invalid value: "),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_answer_is_a_violation(text: str | bytes, message: str) -> None:
    found = contract.parse_answer(text, "answer")
    assert isinstance(found, Violation)
    assert str(found).startswith(message)
    assert len(str(found)) < 400


def test_an_answer_that_names_another_eviction_is_not_about_this_one() -> None:
    answer = CheckpointAnswer(state=AnswerState.SAVED, eviction_id="uid-1")
    assert answer.may_belong_to("uid-1")
    assert not answer.may_belong_to("uid-2")


def test_an_answer_that_names_no_eviction_may_belong_to_any() -> None:
    assert contract.ACCEPTED_WITHOUT_DOCUMENT.may_belong_to("uid-1")


@pytest.mark.parametrize("depth", [200, *range(960, 1000, 3), 8000])
def test_json_of_any_depth_causes_no_exception(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    assert isinstance(contract.parse_answer(f'{{"state":{nested}}}', "answer"), Violation)


ANSWERS = st.fixed_dictionaries(
    {"state": st.sampled_from(AnswerState)},
    optional={
        name: st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
        for name in ("id", "step", "path", "progress", "deferSeconds", "message")
    },
).map(json.dumps)


@given(ANSWERS | st.text(st.characters(exclude_categories=())) | st.binary())
def test_anything_is_an_answer_or_a_violation_in_one_line(text: str | bytes) -> None:
    found = contract.parse_answer(text, "answer")
    assert isinstance(found, CheckpointAnswer) or is_showable(str(found))

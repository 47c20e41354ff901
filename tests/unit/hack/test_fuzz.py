"""The fuzzer is repeatable from its seed, and it recognises wrong answers."""

from __future__ import annotations

import argparse
import json
from random import Random

import pytest

from fuzz import __main__ as program
from fuzz import bodies, corpus, oracle, process_health, values
from fuzz.oracle import Expected

SENT = b'{"request":{"uid":"7"}}'


def an_answer(**response: object) -> bytes:
    whole = {"uid": "7", "allowed": True} | response
    return json.dumps(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": whole}
    ).encode()


@pytest.mark.parametrize("number", [0, 17, 4711])
def test_a_case_depends_only_on_the_seed_and_its_number(number: int) -> None:
    first, again = (bodies.make(Random(f"3/{number}"), corpus.load(), "uid") for _ in range(2))

    assert first == again


def test_cases_differ_and_many_of_them_are_still_json() -> None:
    recorded = corpus.load()
    made = [bodies.make(Random(f"3/{number}"), recorded, "uid").content for number in range(400)]
    readable = [content for content in made if _is_json(content)]

    assert len(set(made)) > 300
    assert 150 < len(readable) < 350


def test_no_case_changes_the_input_of_another() -> None:
    rng, before = Random(3), repr(values.VALUES)
    drawn = [values.hostile(rng) for _ in range(1000)]
    for value in drawn:
        if isinstance(value, dict | list):
            value.clear()

    assert any(isinstance(value, dict) for value in drawn)
    assert repr(values.VALUES) == before


def test_values_that_no_encoder_writes_are_written() -> None:
    written = values.encode({"a": values.raw("not UTF-8"), "b": 1, f"b{values.TWICE}": 2})

    assert written == b'{"a": "\xff\xfe", "b": 1, "b": 2}'


def test_another_status_is_wrong() -> None:
    assert oracle.one_of(400, 413).complaint(413, b"") is None
    assert (
        oracle.one_of(400, 413).complaint(500, b"why")
        == "answered 500 instead of 400 or 413: b'why'"
    )


def test_another_verdict_is_wrong() -> None:
    expected = Expected(frozenset({200}), an_answer())

    assert expected.complaint(200, an_answer()) is None
    assert expected.complaint(200, an_answer(allowed=False)) is not None


@pytest.mark.parametrize(
    "answered",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"response":{}}',
        an_answer().replace(b"AdmissionReview", b"Pod"),
        an_answer(uid="8"),
        an_answer(allowed="true"),
        an_answer(allowed=False),
        an_answer(allowed=False, status={"code": 500}),
    ],
)
def test_an_answer_in_another_form_is_wrong(answered: bytes) -> None:
    assert oracle.check_form(SENT, answered) is not None


@pytest.mark.parametrize("sent", [SENT, b"[" * 50_000, b'{"request":{"uid":"8"},"skipped":"\xff"}'])
def test_an_answer_in_the_right_form_is_right_also_to_what_python_cannot_read(sent: bytes) -> None:
    assert oracle.check_form(sent, an_answer()) is None
    assert oracle.check_form(sent, an_answer(allowed=False, status={"code": 403})) is None


@pytest.mark.parametrize(
    "line", ['{"level":"error"}', '{"level":"critical"}', "Traceback (most recent call last):", ""]
)
def test_an_internal_error_in_the_log_is_found(line: str) -> None:
    assert process_health.is_fault(line)
    assert not process_health.is_fault('{"level":"warning"}')


def test_a_budget_is_a_number_or_a_time() -> None:
    assert (program.budget("100_000"), program.budget("90s")) == ((100_000, 0.0), (0, 90.0))
    for text in ("", "0", "-1", "s", "1h", "1.5"):
        with pytest.raises(argparse.ArgumentTypeError):
            program.budget(text)


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True

"""What kubectl users read: *path: what: value: what would be accepted*."""

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.verdict import (
    MAX_VALUE_SHOWN,
    Verdict,
    Violation,
    ViolationKind,
    annotation_path,
    label_path,
    quote,
)
from reprieve_testing.safe_texts import is_showable

CLASS_PATH = "metadata.labels[reprieve.dev/preemption-class]"
BAD = Violation(CLASS_PATH, ViolationKind.INVALID, "11", "must be between 0 and 10")
FORBIDDEN = Violation(
    CLASS_PATH, ViolationKind.FORBIDDEN, None, "may only be lowered after creation"
)

MESSAGES = {
    "an invalid value": (BAD, f'{CLASS_PATH}: Invalid value: "11": must be between 0 and 10'),
    "something forbidden": (
        FORBIDDEN,
        f"{CLASS_PATH}: Forbidden: may only be lowered after creation",
    ),
    "an unsupported value": (
        Violation("p", ViolationKind.UNSUPPORTED, "x", 'supported values: "a"'),
        'p: Unsupported value: "x": supported values: "a"',
    ),
    "something missing": (
        Violation("p", ViolationKind.REQUIRED, None, "needed for gangs"),
        "p: Required value: needed for gangs",
    ),
    "something unknown": (
        Violation("p", ViolationKind.NOT_FOUND, "gold", ""),
        'p: Not found: "gold"',
    ),
    "an empty value": (
        Violation("p", ViolationKind.INVALID, "", "must be a class"),
        'p: Invalid value: "": must be a class',
    ),
}


@pytest.mark.parametrize(("violation", "text"), MESSAGES.values(), ids=MESSAGES)
def test_a_violation_reads_like_the_api_servers_own(violation: Violation, text: str) -> None:
    assert str(violation) == text


def test_every_kind_has_the_api_servers_words_and_cause() -> None:
    assert {kind.text: kind.cause for kind in ViolationKind} == {
        "Required value": "FieldValueRequired",
        "Invalid value": "FieldValueInvalid",
        "Unsupported value": "FieldValueNotSupported",
        "Forbidden": "FieldValueForbidden",
        "Not found": "FieldValueNotFound",
    }


QUOTED = {
    "a plain text": ("1h", '"1h"'),
    "quotes": ('say "no"', r'"say \"no\""'),
    "a backslash": ("a\\b", r'"a\\b"'),
    "a line end": ("two\nlines", r'"two\nlines"'),
    "a terminal's escape": ("\x1b[31mred", '"\ufffd[31mred"'),
    "a line separator": ("a\u2028b", '"a\ufffdb"'),
    "text with its direction reversed": ("a\u202eb", '"a\ufffdb"'),
    "a lone surrogate": ("\ud800", '"\ufffd"'),
    "another script": ("高", '"高"'),
    "the longest text": ("x" * MAX_VALUE_SHOWN, f'"{"x" * MAX_VALUE_SHOWN}"'),
    "longer": ("x" * 200_000, f'"{"x" * MAX_VALUE_SHOWN}…"'),
}


@pytest.mark.parametrize(("value", "shown"), QUOTED.values(), ids=QUOTED)
def test_values_are_shown_in_one_short_line(value: str, shown: str) -> None:
    assert quote(value) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_any_value_is_shown_as_a_line_that_moves_no_cursor(value: str) -> None:
    assert is_showable(quote(value))


STATUS = {
    "nothing is violated": ((), HTTPStatus.OK),
    "a value is bad": ((BAD,), HTTPStatus.BAD_REQUEST),
    "something is forbidden": ((FORBIDDEN,), HTTPStatus.FORBIDDEN),
    "a value is bad and something is forbidden": ((FORBIDDEN, BAD), HTTPStatus.BAD_REQUEST),
}


@pytest.mark.parametrize(("violations", "status"), STATUS.values(), ids=STATUS)
def test_the_http_status_of_a_verdict(
    violations: tuple[Violation, ...], status: HTTPStatus
) -> None:
    verdict = Verdict(violations=violations)
    assert verdict.status is status
    assert verdict.is_allowed is (status is HTTPStatus.OK)


def test_one_violation_is_a_line() -> None:
    assert Verdict(violations=(BAD,)).message == str(BAD)


def test_several_violations_stand_in_brackets_as_the_api_server_writes_them() -> None:
    assert Verdict(violations=(BAD, FORBIDDEN)).message == f"[{BAD}, {FORBIDDEN}]"


def test_verdicts_are_joined_in_order_and_warn_once() -> None:
    first, second = (
        Verdict(violations=(BAD,), warnings=("a", "b")),
        Verdict(violations=(FORBIDDEN,), warnings=("b", "c")),
    )
    joined = Verdict.merged([first, Verdict(), second])
    assert joined == Verdict(violations=(BAD, FORBIDDEN), warnings=("a", "b", "c"))


def test_an_empty_verdict_has_no_message() -> None:
    assert Verdict().is_empty
    assert not Verdict(warnings=("a",)).is_empty
    assert not Verdict(violations=(BAD,)).is_empty


def test_paths_lead_into_templates() -> None:
    assert label_path("spec.template.", "key") == "spec.template.metadata.labels[key]"
    assert annotation_path("", "key") == "metadata.annotations[key]"

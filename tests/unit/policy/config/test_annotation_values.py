"""The values that one label or annotation accepts."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.admission import fields
from reprieve_policy.admission.rules import RULES
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config import toleration
from reprieve_policy.config.annotation_values import (
    LONGEST,
    Duration,
    Matches,
    OneOf,
    Value,
    WholeNumber,
)
from reprieve_policy.config.preemption_class import CLASSES
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.values import duration
from reprieve_policy.verdict import Violation, ViolationKind

FIELDS = (*fields.pod_fields(PolicySettings()), *fields.PRIORITY_CLASS_FIELDS)
COLOUR = OneOf(("red", "green"))
NAME = Matches("[a-z]+", "must be lower case", ViolationKind.UNSUPPORTED, 5)
PERCENT = WholeNumber(0, 100)
CAPPED = WholeNumber(-1, 100, detail="must be a share", too_high="must be at most all")
BRIEF = Duration(90, ", says the test")

READ: dict[str, tuple[Value[Any], str, object]] = {
    "an allowed word": (COLOUR, "green", "green"),
    "the lowest number": (PERCENT, "0", 0),
    "the highest number": (PERCENT, "+100", 100),
    "a number of the longest kind": (PERCENT, "7".zfill(LONGEST), 7),
    "a duration at its limit": (BRIEF, "1m30s", 90),
    "a duration without a limit": (Duration(), "999999h", 999_999 * 3600),
}

REFUSED: dict[str, tuple[Value[Any], str, ViolationKind, str]] = {
    "another word": (COLOUR, "Red", ViolationKind.UNSUPPORTED, 'supported values: "red", "green"'),
    "a text beside the pattern": (NAME, "ab1", ViolationKind.UNSUPPORTED, "must be lower case"),
    "a line end behind the pattern": (
        NAME,
        "ab\n",
        ViolationKind.UNSUPPORTED,
        "must be lower case",
    ),
    "a text longer than may be": (NAME, "abcdef", ViolationKind.UNSUPPORTED, "must be lower case"),
    "a number too low": (
        PERCENT,
        "-1",
        ViolationKind.INVALID,
        "must be a whole number between 0 and 100",
    ),
    "a number too high": (
        PERCENT,
        "101",
        ViolationKind.INVALID,
        "must be a whole number between 0 and 100",
    ),
    "a number too high, in its own words": (
        CAPPED,
        "101",
        ViolationKind.INVALID,
        "must be at most all",
    ),
    "a number too low, in its own words": (CAPPED, "-2", ViolationKind.INVALID, "must be a share"),
    "a number beyond int64": (
        CAPPED,
        "9223372036854775808",
        ViolationKind.INVALID,
        "must be at most all",
    ),
    "a number below int64": (
        CAPPED,
        "-9223372036854775809",
        ViolationKind.INVALID,
        "must be a share",
    ),
    "a number with too many zeros before it": (
        CAPPED,
        "7".zfill(LONGEST + 1),
        ViolationKind.INVALID,
        "must be a share",
    ),
    "a number with too many digits to be read": (
        CAPPED,
        "9" * (LONGEST + 1),
        ViolationKind.INVALID,
        "must be a share",
    ),
    "a list of classes longer than may be": (
        CLASSES,
        "0," * (LONGEST // 2) + "0",
        ViolationKind.INVALID,
        'must be classes or ranges between 0 and 10, like "0-6" or "0-2,5"',
    ),
    "not a duration": (BRIEF, "soon", ViolationKind.INVALID, duration.EXPECTED),
    "a duration of zero": (BRIEF, "0h", ViolationKind.INVALID, "must be longer than 0s"),
    "a longer duration": (
        BRIEF,
        "91s",
        ViolationKind.INVALID,
        "must be at most 1m30s, says the test",
    ),
}


@pytest.mark.parametrize(("value", "text", "want"), READ.values(), ids=READ)
def test_an_accepted_text_is_read(value: Value[Any], text: str, want: object) -> None:
    assert value.parse(text, "path") == want
    assert value.check(text, "path") is None


@pytest.mark.parametrize(("value", "text", "kind", "detail"), REFUSED.values(), ids=REFUSED)
def test_any_other_text_is_a_violation(
    value: Value[Any], text: str, kind: ViolationKind, detail: str
) -> None:
    want = Violation("path", kind, text, detail)
    assert value.parse(text, "path") == want
    assert value.check(text, "path") == want


def test_a_match_has_the_patterns_groups() -> None:
    match = checkpoint_plan.HINT.parse("http://:80/x", "path")
    assert isinstance(match, re.Match)
    assert (match["port"], match["path"]) == ("80", "/x")


@given(st.integers(0, 10), st.integers(0, 10))
def test_a_range_of_classes_ascends(first: int, last: int) -> None:
    assert (CLASSES.check(f"{first}-{last}", "path") is None) is (first <= last)


@given(st.integers(0, 99_999))
def test_the_port_of_a_hint_is_between_1_and_65535(port: int) -> None:
    assert (checkpoint_plan.HINT.check(f"http://:{port}/", "path") is None) is (1 <= port <= 65535)


@given(st.integers(-(2**64), 2**64))
def test_seconds_stay_in_upstreams_range(seconds: int) -> None:
    holds = -(2**63) <= seconds <= toleration.MAX_SECONDS
    assert (toleration.SECONDS.check(str(seconds), "path") is None) is holds


def test_every_field_belongs_to_a_rule() -> None:
    assert {field.rule for field in FIELDS} <= {rule.id for rule in RULES}


def test_a_field_knows_its_path() -> None:
    label, annotation = FIELDS[0], fields.PRIORITY_CLASS_FIELDS[-1]
    assert (
        label.path("spec.template.")
        == "spec.template.metadata.labels[reprieve.dev/preemption-class]"
    )
    assert annotation.path() == "metadata.annotations[reprieve.dev/default-preemption-class]"

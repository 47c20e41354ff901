"""The violations of one metadata field, as CEL.

Only changes are checked: unchanged text was as wrong before, and an update that does not make an
object worse passes. At creation everything counts as changed.
"""

from functools import singledispatch
from typing import Any, NamedTuple

from reprieve_policy.admission.fields import MetadataField
from reprieve_policy.config.annotation_values import (
    INT64,
    LONGEST,
    Duration,
    Matches,
    OneOf,
    Value,
    WholeNumber,
)
from reprieve_policy.kube.values import duration, go_int
from reprieve_policy.verdict import ViolationKind, unsupported

from . import term


class TextRequirement(NamedTuple):
    """A condition that a text must meet, and the refusal if it does not."""

    condition: str
    kind: ViolationKind
    detail: str


# The compiler takes the type of a text `t` from the first function that is called with it: that
# must be a function of texts. Without this, `int(t)` is compiled for numbers and fails on every
# text.


def violations(
    field: MetadataField, prefix: str, new: str, old: str | None, otherwise: str = "[]"
) -> str:
    """Return the expression of a list: the field's violation, if its text is new and refused.

    `new` and `old` are the expressions of the entry in both objects; `old` is None if there is no
    old object. `otherwise` is the expression for a text `t` that the field accepts.
    """
    arms = "".join(
        f"!({condition}) ? {term.refusal(field.path(prefix), kind, 't', detail)} : "
        for condition, kind, detail in text_requirements(field.value, "t")
    )
    found = f"{new}.optMap(t, {arms}{otherwise}).orValue([])"
    # Most objects have few of the keys: the check for an absent key is the cheapest.
    return found if old is None else f"(!{new}.hasValue() || {new} == {old} ? [] : {found})"


def is_absent_or_accepted(value: Value[Any], entry: str) -> str:
    """Return the condition that an entry is absent, or that `value` accepts its text."""
    if isinstance(value, OneOf):
        return f"{entry}.orValue({term.text(value.choices[0])}) in {term.texts(value.choices)}"
    accepted = f"{entry}.optMap(t, {is_accepted(value, 't')}).orValue(false)"
    return f"(!{entry}.hasValue() || {accepted})"


def is_accepted(value: Value[Any], text: str) -> str:
    """Return the condition that `value` accepts the text of the expression `text`."""
    return " && ".join(f"({demand.condition})" for demand in text_requirements(value, text))


@singledispatch
def text_requirements(value: Value[Any], text: str) -> tuple[TextRequirement, ...]:
    """Return what `value` requires of the expression `text`; the first unmet is reported."""
    raise NotImplementedError(value, text)


@text_requirements.register
def _(value: OneOf, text: str) -> tuple[TextRequirement, ...]:
    detail = unsupported("", "", value.choices).detail
    return (
        TextRequirement(
            f"{text} in {term.texts(value.choices)}", ViolationKind.UNSUPPORTED, detail
        ),
    )


@text_requirements.register
def _(value: Matches, text: str) -> tuple[TextRequirement, ...]:
    assert value.longest is not None
    condition = matches(text, value.pattern, value.longest)
    return (TextRequirement(condition, value.kind, value.detail),)


@text_requirements.register
def _(value: WholeNumber, text: str) -> tuple[TextRequirement, ...]:
    is_high_enough = "" if value.lowest == INT64.start else f" && int({text}) >= {value.lowest}"
    is_number = f"({is_int64(text)}){is_high_enough}"
    if not value.too_high:
        return (
            TextRequirement(is_number, ViolationKind.INVALID, value.expected),
            TextRequirement(
                f"int({text}) <= {value.highest}", ViolationKind.INVALID, value.expected
            ),
        )
    # A larger number than `int()` can read is too high, too.
    is_larger = matches(text, go_int.LARGE, LONGEST)
    return (
        TextRequirement(f"{is_number} || {is_larger}", ViolationKind.INVALID, value.expected),
        TextRequirement(
            f"({is_int64(text)}) && int({text}) <= {value.highest}",
            ViolationKind.INVALID,
            value.too_high,
        ),
    )


@text_requirements.register
def _(value: Duration, text: str) -> tuple[TextRequirement, ...]:
    found = [
        TextRequirement(
            f"{text} != '' && {matches(text, duration.PATTERN, duration.LONGEST)}",
            ViolationKind.INVALID,
            duration.EXPECTED,
        ),
        TextRequirement(
            f"duration({text}) > duration('0s')", ViolationKind.INVALID, duration.TOO_SHORT
        ),
    ]
    if value.longest is not None:
        found.append(
            TextRequirement(
                f"duration({text}) <= duration('{value.longest}s')",
                ViolationKind.INVALID,
                value.too_long,
            )
        )
    return tuple(found)


def matches(text: str, pattern: str, longest: int) -> str:
    """Return the condition that the whole text matches `pattern`, in `longest` characters at most.

    The size comes first. Without this, a long text would cost more than the API server lets an
    expression cost, and be admitted. Without `dyn`, the compiler would take the text for bytes.
    """
    assert "'" not in pattern
    return f"dyn({text}).size() <= {longest} && {text}.matches(r'^(?:{pattern})$')"


def is_int64(text: str) -> str:
    """Return the condition that `int()` can read the text: without this, the whole policy fails.

    Up to 18 digits always fit; 19 digits compare as texts do.
    """
    short, long = (
        matches(text, pattern, LONGEST)
        for pattern in ("[+-]?0*[0-9]{1,18}", "[+-]?0*[1-9][0-9]{18}")
    )
    highest = f"{text}.startsWith('-') ? '{-INT64.start}' : '{INT64.stop - 1}'"
    return f"{short} || {long} && {text}.find('[1-9][0-9]*$') <= ({highest})"

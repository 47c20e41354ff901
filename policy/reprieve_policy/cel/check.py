"""What a field of the table refuses, as CEL.

Only what changed is looked at: text that was there before was as wrong before, and an update that does not make an object
worse passes. At creation everything has changed.
"""

from functools import singledispatch
from typing import Any, NamedTuple

from reprieve_policy.admission.fields import Field
from reprieve_policy.config.annotation_values import INT64, Duration, Matches, OneOf, Value, WholeNumber
from reprieve_policy.kube import duration
from reprieve_policy.verdict import Kind, unsupported

from . import term


class Demand(NamedTuple):
    """A condition that a text must meet, and how one is refused that does not."""

    condition: str
    kind: Kind
    detail: str


# The compiler takes the first function that a text `t` is given to for `t`'s type: that must be one of texts. Without this,
# `int(t)` is compiled for numbers and fails on every text.


def violations(field: Field, prefix: str, otherwise: str = "[]") -> str:
    """Return the expression of a list: the field's violation, where its text is new and refused.

    `otherwise` is what is said of a text `t` that the table accepts.
    """
    new, old = term.entry(field.part, field.key), term.entry(term.old(field.part), field.key)
    arms = "".join(
        f"!({condition}) ? {term.refusal(field.path(prefix), kind, 't', detail)} : "
        for condition, kind, detail in demands(field.value, "t")
    )
    # Most objects say little: that a key is absent is the cheapest question.
    is_absent = f"!({term.text(field.key)} in variables.{field.part})"
    return f"({is_absent} || {new} == {old} ? [] : {new}.optMap(t, {arms}{otherwise}).orValue([]))"


def is_accepted(value: Value[Any], text: str) -> str:
    """Return the condition that `value` accepts the text of the expression `text`."""
    return " && ".join(f"({demand.condition})" for demand in demands(value, text))


@singledispatch
def demands(value: Value[Any], text: str) -> tuple[Demand, ...]:
    """Return what `value` demands of the text of the expression `text`; the first that is not met is said."""
    raise NotImplementedError(value, text)


@demands.register
def _(value: OneOf, text: str) -> tuple[Demand, ...]:
    detail = unsupported("", "", value.choices).detail
    return (Demand(f"{text} in {term.texts(value.choices)}", Kind.UNSUPPORTED, detail),)


@demands.register
def _(value: Matches, text: str) -> tuple[Demand, ...]:
    is_short = "" if value.longest is None else f" && {text}.size() <= {value.longest}"
    return (Demand(matches(text, value.pattern) + is_short, value.kind, value.detail),)


@demands.register
def _(value: WholeNumber, text: str) -> tuple[Demand, ...]:
    is_high_enough = "" if value.lowest == INT64.start else f" && int({text}) >= {value.lowest}"
    return (
        Demand(f"({is_int64(text)}){is_high_enough}", Kind.INVALID, value.expected),
        Demand(f"int({text}) <= {value.highest}", Kind.INVALID, value.too_high or value.expected),
    )


@demands.register
def _(value: Duration, text: str) -> tuple[Demand, ...]:
    found = [
        Demand(f"{text} != '' && {matches(text, duration.PATTERN)}", Kind.INVALID, duration.EXPECTED),
        Demand(f"duration({text}) > duration('0s')", Kind.INVALID, duration.TOO_SHORT),
    ]
    if value.longest is not None:
        found.append(Demand(f"duration({text}) <= duration('{value.longest}s')", Kind.INVALID, value.too_long))
    return tuple(found)


def matches(text: str, pattern: str) -> str:
    """Return the condition that the text matches `pattern` whole."""
    assert "'" not in pattern
    return f"{text}.matches(r'^(?:{pattern})$')"


def is_int64(text: str) -> str:
    """Return the condition that `int()` can read the text: without this, it fails, and with it the whole policy.

    Up to 18 digits always fit; 19 digits compare as texts do.
    """
    short, long = matches(text, "[+-]?0*[0-9]{1,18}"), matches(text, "[+-]?0*[1-9][0-9]{18}")
    highest = f"{text}.startsWith('-') ? '{-INT64.start}' : '{INT64.stop - 1}'"
    return f"{short} || {long} && {text}.find('[1-9][0-9]*$') <= ({highest})"

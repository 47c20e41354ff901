"""Decodes a document into a `Resource`, and finds every field that the API server cannot decode.

A field that cannot be decoded is repaired or removed, so that the rules check the rest.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from reprieve_policy.admission import manifest_form
from reprieve_policy.kube.objects import Resource
from reprieve_policy.kube.values.text import show
from reprieve_policy.verdict import Violation, ViolationKind, quote
from reprieve_runtime import deep

from . import field_paths

Written = Callable[[str], str | None]
"""Returns the scalar at a path as the file has it; `None` if that is unknown."""

MAX_ERRORS = 100
"""Errors of one object. Each costs another attempt to decode it."""

_ERROR = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_TYPES = re.compile(r"Expected `(.*?)(?: \| null)?`, got `(\w+)`")
_TYPE_NAMES = {
    "int": "a whole number",
    "int | float | str": "a quantity",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}
_TYPES_OF_VALUES: dict[str, type] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
_EMPTY: dict[str, Callable[[], Any]] = {"object": dict, "array": list, "str": str, "int": int}
"""What replaces an item of a list. Without this, the items after it would get other indices."""
_ANY_KEY = "..."
"""How the decoder names a key of a mapping."""
_WHOLE_NUMBER = re.compile("-?[0-9]{1,18}")


class Decoded(NamedTuple):
    """The object without the fields that cannot be decoded, and a violation for each of these."""

    resource: Resource | None
    """`None`: the object has too many errors."""
    violations: tuple[Violation, ...] = ()


def decode(document: dict[str, Any], written: Written) -> Decoded:
    """Return the object, as far as it can be decoded."""
    try:
        return Decoded(msgspec.convert(document, Resource))
    except msgspec.ValidationError:
        # Go reads `null` as absent everywhere. To remove it from every object first would cost
        # more than all rules.
        document = without_nulls(document)
    violations: list[Violation] = []
    while len(violations) < MAX_ERRORS:
        try:
            return Decoded(msgspec.convert(document, Resource), tuple(violations))
        except msgspec.ValidationError as error:
            violations.append(_repair(document, str(error), written))
    return Decoded(None, tuple(violations))


def without_nulls(value: Any, levels: int = deep.MAX_DEPTH) -> Any:
    """Return a document without the fields that are `null`.

    What is deeper than the levels stays as it is: no rule reads it.
    """
    if levels and isinstance(value, dict):
        return {
            key: without_nulls(item, levels - 1) for key, item in value.items() if item is not None
        }
    if levels and isinstance(value, list):
        return [without_nulls(item, levels - 1) for item in value]
    return value


def as_written(violation: Violation, written: Written) -> Violation:
    """Return the violation of a value that must be a string, with the value as the file has it.

    Without this, a user who wrote `010` would be told to write "8".
    """
    text = written(violation.path)
    if text is None or text == violation.value:
        return violation
    detail = f"{manifest_form.STRING}: without quotes it is read as {violation.value}"
    return Violation(violation.path, violation.kind, text, detail, violation.rule)


def _repair(document: dict[str, Any], text: str, written: Written) -> Violation:
    """Repair or remove the field that an error of the decoder names; return its violation."""
    error = _ERROR.fullmatch(text)
    types = _TYPES.match(text)
    assert error is not None
    assert types is not None
    wanted, got = types.groups()
    holder, step, path = _locate(document, error[2] or "", _TYPES_OF_VALUES[got])
    violation = as_written(_violation(path, holder[step], wanted, got), written)
    if wanted == "str" and not isinstance(holder[step], dict | list):
        holder[step] = violation.value
    elif wanted == "int" and _is_number_in_quotes(holder[step]):
        holder[step] = int(holder[step])
    elif isinstance(holder, list) and wanted in _EMPTY:
        holder[step] = _EMPTY[wanted]()
    else:
        del holder[step]
    return violation


def _locate(document: dict[str, Any], path: str, type_: type) -> tuple[Any, Any, str]:
    """Return the mapping or list with a field, its key or index there, and the field's path."""
    holder: Any = document
    value: Any = document
    step: Any = ""
    shown = ""
    for each in field_paths.parse(path):
        holder, step = value, each
        if each == _ANY_KEY:
            step = next(key for key, item in holder.items() if type(item) is type_)
        is_name = each == step and isinstance(step, str)
        shown += f".{step}" if is_name else f"[{step}]"
        value = holder[step]
    return holder, step, shown.removeprefix(".")


def _violation(path: str, value: Any, wanted: str, got: str) -> Violation:
    shown = None if isinstance(value, dict | list) else show(value)
    if wanted == "str" and shown is not None:
        detail = f"{manifest_form.STRING}: {quote(shown)}"
    elif wanted == "int" and _is_number_in_quotes(value):
        detail = f"must be {_TYPE_NAMES[wanted]}, without quotes"
    else:
        detail = f"must be {_TYPE_NAMES[wanted]}, not {_TYPE_NAMES[got]}"
    return Violation(path, ViolationKind.INVALID, shown, detail, manifest_form.RULE)


def _is_number_in_quotes(value: object) -> bool:
    return isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) is not None

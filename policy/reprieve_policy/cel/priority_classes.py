"""The rules for PriorityClasses that need no other object, as policies.

Left to the webhooks: `preemption-priority-class`, which names another PriorityClass.
"""

from collections.abc import Iterator
from itertools import starmap

from reprieve_policy import keys
from reprieve_policy.admission import fields
from reprieve_policy.admission.fields import MetadataField
from reprieve_policy.config import toleration
from reprieve_policy.config.annotation_values import LONGEST
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.verdict import ViolationKind, annotation_path

from . import check, document, term
from .document import Document, Validation

CONSTRAINTS = document.constraints([KINDS["PriorityClass"]])
_MINIMUM, _SECONDS = toleration.annotation_keys(keys.TOLERATION_PREFIX)
_PAIRS = tuple(
    zip(
        toleration.annotation_keys(keys.TOLERATION_PREFIX),
        toleration.annotation_keys(keys.OLD_TOLERATION_PREFIX),
        (toleration.MINIMUM, toleration.SECONDS),
        strict=True,
    )
)
_PARTS = {"annotations": "object.metadata.?annotations"}
_OLD_PARTS = {"annotations": "oldObject.?metadata.?annotations"}


def render() -> list[Document]:
    """Return the policy that refuses and the one that warns."""
    keys_read = [(field.part, field.key) for field in fields.PRIORITY_CLASS_FIELDS]
    keys_read += [("annotations", old) for _, old, _ in _PAIRS]
    condition = document.preemption_changed(keys_read, _PARTS, _OLD_PARTS, document.NOT_DELETED)
    found = ("found", "\n+ ".join(_violations()))
    name = "reprieve-rules-priority-classes"
    is_fine = "variables.found.size() == 0"
    refused = Validation(
        is_fine, document.REFUSED, f"{is_fine} ? '' : {term.message('variables.found')}"
    )
    denies = document.validating(name, "Deny", CONSTRAINTS, condition, [found], [refused])
    return denies + document.validating(
        f"{name}-warn", "Warn", CONSTRAINTS, condition, [], [*_advice()]
    )


def _new(key: str) -> str:
    return term.entry(_PARTS["annotations"], key)


def _old(key: str) -> str:
    return term.entry(_OLD_PARTS["annotations"], key)


def _violations() -> Iterator[str]:
    """Yield the expressions of lists of violations, in the order of the rules."""
    minimum, seconds, default_class = fields.PRIORITY_CLASS_FIELDS
    yield _violation(minimum, f"int(t) >= object.value ? [] : {_too_low(minimum)}")
    yield _violation(seconds)
    yield from starmap(
        _older, [(new, MetadataField("", "annotations", old, value)) for new, old, value in _PAIRS]
    )
    yield _violation(default_class)


def _violation(field: MetadataField, otherwise: str = "[]") -> str:
    return check.violations(field, "", _new(field.key), _old(field.key), otherwise)


def _too_low(minimum: MetadataField) -> str:
    before = f"{minimum.path()}: {ViolationKind.INVALID.text}: "
    start, end = (
        ": must not be below the class's own value ",
        ": only a higher priority preempts it",
    )
    return (
        f"[[{term.text(before)}, t, {term.text(start)} + string(object.value) + {term.text(end)}]]"
    )


def _older(new: str, field: MetadataField) -> str:
    """Return the check of the older prefix: readable, and equal to the newer."""
    newer, older, was_newer, was_older = _new(new), _new(field.key), _old(new), _old(field.key)
    differs = f"{older}.hasValue() && {newer}.hasValue() && {older} != {newer}"
    differed = f"{older} == {was_older} && {was_newer}.hasValue() && {was_older} != {was_newer}"
    detail = f"differs from {new}; remove this one, schedulers read only the other"
    refusal = term.refusal(field.path(), ViolationKind.INVALID, f"{older}.value()", detail)
    return f"({differs} ? ({differed} ? [] : {refusal}) : {_violation(field)})"


def _advice() -> Iterator[Validation]:
    """Yield warnings for what is legal but harmful. `Warn` shows each by itself."""
    minimum, seconds = _new(_MINIMUM), _new(_SECONDS)
    is_number, is_time = (
        check.is_accepted(value, "t") for value in (toleration.MINIMUM, toleration.SECONDS)
    )
    is_none = check.matches("t", "[+-]?0+", LONGEST)
    lasts = f"{seconds}.optMap(t, !({is_none})).orValue(false)"
    is_least = f"int(t) >= object.value && int(t) <= object.value + ({lasts} ? 1 : 0)"
    is_readable = f"{seconds}.optMap(t, {is_time}).orValue(true)"
    protects = f"!({is_readable} && {minimum}.optMap(t, {is_number} && {is_least}).orValue(false))"
    warning = f"{annotation_path('', _MINIMUM)}: tolerates no preemptor"
    yield Validation(protects, warning)
    for _, old, _ in _PAIRS:
        warning = f"{annotation_path('', old)}: unread; use *.x-k8s.io"
        yield Validation(f"!{_new(old)}.hasValue()", warning)

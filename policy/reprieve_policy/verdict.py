"""The results of rules: violations and warnings, and the changes that defaulting makes.

They are values, never parsed back from text. Texts follow the API server's own field errors
(k8s.io/apimachinery `field.Error`), because the API server puts
`admission webhook "NAME" denied the request: ` before them:
*path: what: value: what would be accepted*.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Literal, Self

MAX_VALUE_SHOWN = 64
"""Characters of a user's value that a message repeats. Without this, a 200 KB annotation would come
back in an error."""


ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
"""What CEL's `strings.quote` escapes, so that both engines show a value in the same way."""

HIDDEN_CODE_POINTS = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0xAD, 0xAD),
    (0x61C, 0x61C),
    (0x180E, 0x180E),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB),
    (0xE0000, 0xE007F),
)
"""Code points that move a terminal's cursor, reverse its text, break the line, or are invisible:
controls, format characters and separators. The table is ours because no two engines have the same
version of Unicode."""

REPLACEMENT = "\ufffd"


class ViolationKind(Enum):
    """What is wrong with a field: (the API server's words, its machine-readable cause)."""

    REQUIRED = ("Required value", "FieldValueRequired")
    INVALID = ("Invalid value", "FieldValueInvalid")
    UNSUPPORTED = ("Unsupported value", "FieldValueNotSupported")
    FORBIDDEN = ("Forbidden", "FieldValueForbidden")
    NOT_FOUND = ("Not found", "FieldValueNotFound")

    @property
    def text(self) -> str:
        """The API server's words for it, for people."""
        return self.value[0]

    @property
    def cause(self) -> str:
        """The API server's `status.details.causes[].reason`."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Violation:
    """One field whose value is not accepted."""

    path: str
    kind: ViolationKind
    value: str | None
    detail: str
    rule: str = ""

    @property
    def message(self) -> str:
        """Everything but the path, as in `status.details.causes[].message`."""
        parts = [self.kind.text]
        if self.value is not None:
            parts.append(quote(self.value))
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """Set one label or annotation of the object itself (never of a template)."""

    field: Literal["labels", "annotations"]
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class AnnotationRemoval:
    """Remove one annotation that the object itself has."""

    key: str


@dataclass(frozen=True, slots=True)
class SpecChange:
    """Set one field of the pod's own spec."""

    field: Literal["priorityClassName", "priority", "preemptionPolicy"]
    value: str | int


@dataclass(frozen=True, slots=True)
class GateAddition:
    """Add one scheduling gate to the pod itself."""

    name: str


@dataclass(frozen=True, slots=True)
class ListAddition:
    """Add one entry to a list of the pod itself."""

    path: str
    """The list's path, as a JSON pointer."""
    value: Mapping[str, object]
    list_exists: bool


Change = MetadataChange | AnnotationRemoval | SpecChange | GateAddition | ListAddition
"""What defaulting may do to an object."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The violations and warnings of all rules for one object, in the order of the rules."""

    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_allowed(self) -> bool:
        """True if there is no violation."""
        return not self.violations

    @property
    def is_empty(self) -> bool:
        """True if there is neither a violation nor a warning."""
        return not (self.violations or self.warnings)

    @property
    def status(self) -> HTTPStatus:
        """Return 200 if nothing is violated, 403 if every violation is `Forbidden`, else 400.

        400: a value is bad. 403: the value is good, but not for this user or at this time.
        """
        if self.is_allowed:
            return HTTPStatus.OK
        if all(violation.kind is ViolationKind.FORBIDDEN for violation in self.violations):
            return HTTPStatus.FORBIDDEN
        return HTTPStatus.BAD_REQUEST

    @property
    def message(self) -> str:
        """All violations in one text; several are in the API server's brackets."""
        texts = [str(violation) for violation in self.violations]
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

    @classmethod
    def merged(cls, verdicts: Iterable[Self]) -> Self:
        """Join the verdicts of several rules, in order."""
        parts = tuple(verdicts)
        return cls(
            violations=tuple(violation for part in parts for violation in part.violations),
            warnings=tuple(dict.fromkeys(warning for part in parts for warning in part.warnings)),
        )


NO_FINDINGS = Verdict()
"""The verdict of nearly every rule on nearly every object. One shared value, because making a new
one costs a fifth of a rule's time."""


def unsupported(path: str, value: str, choices: Iterable[str], what: str = "values") -> Violation:
    """Return the violation of a value that is not one of `choices`."""
    listed = ", ".join(f'"{choice}"' for choice in choices)
    return Violation(path, ViolationKind.UNSUPPORTED, value, f"supported {what}: {listed}")


def unknown(path: str, name: str, known: Iterable[str], what: str) -> Violation:
    """Return the violation of a name that is not known, with the one that it resembles, if any."""
    choices = tuple(known)
    resembled = difflib.get_close_matches(name[:MAX_VALUE_SHOWN], choices, n=1, cutoff=0.75)
    if not resembled:
        return unsupported(path, name, choices, what)
    return Violation(path, ViolationKind.UNSUPPORTED, name, f'did you mean "{resembled[0]}"?')


def quote(value: str) -> str:
    """Return `value` quoted and shortened, as one line that is safe to show in a terminal."""
    shown = value if len(value) <= MAX_VALUE_SHOWN else value[:MAX_VALUE_SHOWN] + "…"
    return '"' + _UNSHOWN.sub(REPLACEMENT, shown.translate(_ESCAPES)) + '"'


def label_path(prefix: str, key: str) -> str:
    """Return the path of a label under `prefix` (`""` or `"spec.template."`)."""
    return f"{prefix}metadata.labels[{key}]"


def annotation_path(prefix: str, key: str) -> str:
    """Return the path of an annotation under `prefix`."""
    return f"{prefix}metadata.annotations[{key}]"


_ESCAPES = str.maketrans(ESCAPES)
_SURROGATES = (0xD800, 0xDFFF)
"""Lone surrogates: no request can carry one, but a file on a disk can."""
_UNSHOWN = re.compile(
    "["
    + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in (*HIDDEN_CODE_POINTS, _SURROGATES))
    + "]"
)

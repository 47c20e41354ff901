"""What a rule says: violations and warnings; and what is filled in: changes. Values, never parsed back from text.

Texts follow the API server's own field errors (k8s.io/apimachinery `field.Error`), because the API server puts
`admission webhook "NAME" denied the request: ` before them: *path: what: value: what would be accepted*.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Literal, Self

MAX_VALUE_SHOWN = 64
"""Characters of a user's value that a message repeats: a 200 KB annotation must not come back in an error."""


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
"""What CEL's `strings.quote` escapes, so that both engines show a value alike."""

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
"""Code points that would move a terminal's cursor, turn its text around, break the line, or hide: controls, format
characters and separators. A table of our own, because no two engines have the same Unicode."""

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
        """The API server's words for it, as a person reads them."""
        return self.value[0]

    @property
    def cause(self) -> str:
        """The API server's `status.details.causes[].reason`."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Violation:
    """One field that may not be as it is."""

    path: str
    kind: ViolationKind
    value: str | None
    detail: str
    rule: str = ""

    @property
    def message(self) -> str:
        """Everything but the path, as `status.details.causes[].message` has it."""
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
class GateAddition:
    """Add one scheduling gate to the pod itself."""

    name: str


@dataclass(frozen=True, slots=True)
class ListAddition:
    """Add one entry to a list of the pod itself."""

    path: str
    """Of the list, as a JSON pointer."""
    value: Mapping[str, object]
    list_exists: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """All that the rules say of one object, in the order in which they said it."""

    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_allowed(self) -> bool:
        """True where nothing is violated."""
        return not self.violations

    @property
    def is_empty(self) -> bool:
        """True where there is nothing to say at all."""
        return not (self.violations or self.warnings)

    @property
    def status(self) -> HTTPStatus:
        """400 where a value is bad, 403 where only who or when is, 200 where nothing is violated."""
        if self.is_allowed:
            return HTTPStatus.OK
        if all(violation.kind is ViolationKind.FORBIDDEN for violation in self.violations):
            return HTTPStatus.FORBIDDEN
        return HTTPStatus.BAD_REQUEST

    @property
    def message(self) -> str:
        """Every violation in one answer: alone as a line, several in the API server's brackets."""
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
"""What nearly every rule says of nearly every object: one value for all, because making it costs a fifth of a rule."""


def unsupported(path: str, value: str, choices: Iterable[str], what: str = "values") -> Violation:
    """Return the violation of a value that is none of `choices`."""
    listed = ", ".join(f'"{choice}"' for choice in choices)
    return Violation(path, ViolationKind.UNSUPPORTED, value, f"supported {what}: {listed}")


def quote(value: str) -> str:
    """Return `value` in double quotes, shortened, as one line that a terminal shows as it is."""
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
"""Lone ones: no request can carry one, but a file on a disk can."""
_UNSHOWN = re.compile(
    "["
    + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in (*HIDDEN_CODE_POINTS, _SURROGATES))
    + "]"
)

"""The findings of `check` and `audit`: facts about one object, or about an unreadable file."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Self


class Level(StrEnum):
    """A violation would be refused, a warning shown; an unreadable object was not checked."""

    VIOLATION = "violation"
    WARNING = "warning"
    UNREADABLE = "unreadable"


class ObjectName(NamedTuple):
    """Kind, namespace and name of an object; empty where the object lacks them."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of a report. `line` counts from 1, 0 is none; `file` is empty in an audit."""

    level: Level
    message: str
    file: str = ""
    line: int = 0
    object: ObjectName | None = None
    path: str = ""
    rule: str = ""
    enforcement: str = ""
    """The enforcement of the object's Namespace; empty if unknown."""

    @property
    def text(self) -> str:
        """The message with the path of its field, as kubectl shows it."""
        return f"{self.path}: {self.message}" if self.path else self.message

    def with_location(self, file: str, line: int, name: ObjectName) -> Self:
        """Return the finding with its file, line and object."""
        return replace(self, file=file, line=line, object=name)

    def with_object(self, name: ObjectName, enforcement: str) -> Self:
        """Return the finding with its object and the enforcement of the object's Namespace."""
        return replace(self, object=name, enforcement=enforcement)


@dataclass(slots=True)
class Summary:
    """The numbers of checked files and objects and of findings."""

    files: int = 0
    objects: int = 0
    violations: int = 0
    warnings: int = 0
    unreadable: int = 0
    skipped: int = 0
    """Files of folders that hold no Kubernetes object."""

    def count(self, findings: Iterable[Finding]) -> None:
        """Add findings."""
        for finding in findings:
            self.violations += finding.level is Level.VIOLATION
            self.warnings += finding.level is Level.WARNING
            self.unreadable += finding.level is Level.UNREADABLE

    def exit_status(self, *, strict: bool = False) -> int:
        """Return 2 for unreadable objects, 1 for violations (`strict`: or warnings), else 0."""
        if self.unreadable:
            return 2
        return 1 if self.violations or (strict and self.warnings) else 0

    def __str__(self) -> str:
        findings = [counted(self.violations, "violation"), counted(self.warnings, "warning")]
        unreadable = f"; {self.unreadable} could not be read" if self.unreadable else ""
        others = (
            f"; {counted(self.skipped, 'file')} without Kubernetes objects" if self.skipped else ""
        )
        return (
            f"{counted(self.objects, 'object')} checked: {', '.join(findings)}{unreadable}{others}"
        )


def printable(text: str) -> str:
    """Return `text` as one line without control characters: names are chosen by users."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def counted(number: int, noun: str) -> str:
    """Return the number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

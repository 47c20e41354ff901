"""What `check` and `audit` say: one finding is one fact about one object, or about a file that cannot be read."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Self


class Level(StrEnum):
    """How bad it is: a violation would be refused, a warning would be shown, what is unreadable was not judged."""

    VIOLATION = "violation"
    WARNING = "warning"
    UNREADABLE = "unreadable"


class ObjectName(NamedTuple):
    """Which object, as far as it says."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of a report. `line` counts from 1, 0 where there is none; `file` is empty for what a cluster has."""

    level: Level
    message: str
    file: str = ""
    line: int = 0
    object: ObjectName | None = None
    path: str = ""
    rule: str = ""
    enforcement: str = ""
    """Of the Namespace that the object is in; empty where nobody looked."""

    @property
    def text(self) -> str:
        """The message with the path of the field that it is about, as kubectl would show it."""
        return f"{self.path}: {self.message}" if self.path else self.message

    def with_location(self, file: str, line: int, name: ObjectName) -> Self:
        """Return it with where it was found."""
        return replace(self, file=file, line=line, object=name)

    def with_object(self, name: ObjectName, enforcement: str) -> Self:
        """Return it with the object that it is about, and how strictly that object's Namespace is held to rules."""
        return replace(self, object=name, enforcement=enforcement)


@dataclass(slots=True)
class Summary:
    """How much was judged, and what came of it."""

    files: int = 0
    objects: int = 0
    violations: int = 0
    warnings: int = 0
    unreadable: int = 0

    def count(self, findings: Iterable[Finding]) -> None:
        """Add findings."""
        for finding in findings:
            self.violations += finding.level is Level.VIOLATION
            self.warnings += finding.level is Level.WARNING
            self.unreadable += finding.level is Level.UNREADABLE

    def exit_status(self, *, strict: bool = False) -> int:
        """2 where something could not be read, 1 where a rule is violated (with `strict` also where one warns), else 0."""
        if self.unreadable:
            return 2
        return 1 if self.violations or (strict and self.warnings) else 0

    def __str__(self) -> str:
        said = [_counted(self.violations, "violation"), _counted(self.warnings, "warning")]
        unread = f"; {self.unreadable} could not be read" if self.unreadable else ""
        return f"{_counted(self.objects, 'object')} checked: {', '.join(said)}{unread}"


def printable(text: str) -> str:
    """Return `text` as one line that can do nothing to a terminal: names of files and objects are anybody's."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

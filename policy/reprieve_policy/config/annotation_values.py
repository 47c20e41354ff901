"""What one label or annotation may say, as data: Python executes it, and `reprieve_policy.cel` writes it as CEL.

Two engines read these, so everything here means the same in both: patterns keep to what Python's `re` and RE2 agree on
(literals, ASCII classes, groups, alternatives, counts; no look-around, no Unicode classes), and sizes count code points. Parsing
upstream's own words (`go_int`, `duration`) is not here.
"""

import re
from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

from reprieve_policy.kube import duration, go_int
from reprieve_policy.verdict import Violation, ViolationKind, unsupported

T_co = TypeVar("T_co", covariant=True)

INT64 = range(-(2**63), 2**63)
"""What Go's `ParseInt(text, 10, 64)` holds."""


class Value(Generic[T_co]):
    """The texts that a key accepts, and what they are read as."""

    __slots__ = ()

    @abstractmethod
    def parse(self, text: str, path: str) -> T_co | Violation:
        """Return what `text` means, or what is wrong with it at `path`."""

    def check(self, text: str, path: str) -> Violation | None:
        """Return what is wrong with `text`, `None` where nothing is."""
        found = self.parse(text, path)
        return found if isinstance(found, Violation) else None


@dataclass(frozen=True, slots=True)
class OneOf(Value[str]):
    """One of a few words."""

    choices: tuple[str, ...]

    def parse(self, text: str, path: str) -> str | Violation:
        """Return the word."""
        return text if text in self.choices else unsupported(path, text, self.choices)


@dataclass(frozen=True, slots=True)
class Matches(Value[re.Match[str]]):
    """A text that a pattern matches whole, of at most `longest` characters."""

    pattern: str
    detail: str
    kind: ViolationKind = ViolationKind.INVALID
    longest: int | None = None

    def parse(self, text: str, path: str) -> re.Match[str] | Violation:
        """Return the match, with the pattern's groups."""
        is_short = self.longest is None or len(text) <= self.longest
        match = _compiled(self.pattern).fullmatch(text) if is_short else None
        return Violation(path, self.kind, text, self.detail) if match is None else match


@dataclass(frozen=True, slots=True)
class WholeNumber(Value[int]):
    """A whole number between two, written as Go's `ParseInt` reads it."""

    lowest: int
    highest: int
    detail: str = ""
    """What is accepted, where it is more than the two numbers."""
    too_high: str = ""
    """What is said of a number above `highest`, where that is not `detail`."""

    @property
    def expected(self) -> str:
        """What is accepted, in words."""
        return self.detail or f"must be a whole number between {self.lowest} and {self.highest}"

    def parse(self, text: str, path: str) -> int | Violation:
        """Return the number."""
        number = go_int.parse(text, 64)
        if number is not None and self.lowest <= number <= self.highest:
            return number
        is_too_high = number is not None and number > self.highest
        return Violation(
            path,
            ViolationKind.INVALID,
            text,
            (self.too_high if is_too_high else "") or self.expected,
        )


@dataclass(frozen=True, slots=True)
class Duration(Value[int]):
    """A duration of at least a second, in seconds; or none at all, where `0s` switches something off."""

    longest: int | None = None
    """In seconds; `None`: as long as it likes."""
    whose: str = ""
    """Whose limit `longest` is, for the message."""
    may_be_zero: bool = False

    @property
    def too_long(self) -> str:
        """What is said of a longer one."""
        return f"must be at most {duration.render(self.longest or 0)}{self.whose}"

    def parse(self, text: str, path: str) -> int | Violation:
        """Return the seconds."""
        seconds = duration.parse(text)
        if seconds is None:
            return Violation(path, ViolationKind.INVALID, text, duration.EXPECTED)
        if seconds == 0 and not self.may_be_zero:
            return Violation(path, ViolationKind.INVALID, text, duration.TOO_SHORT)
        if self.longest is not None and seconds > self.longest:
            return Violation(path, ViolationKind.INVALID, text, self.too_long)
        return seconds


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The patterns are this package's own, a handful: none comes from a user."""
    return re.compile(pattern)
